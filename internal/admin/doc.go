// Package admin is the admin listener: health, metrics, and what operators see
// of calls and decide about them. Agents have no access here.
//
// Start with [New] and [Server.Serve]; [NewMetrics] and [Observe] connect it to
// the journal. The types of its answers ([Run], [Call], [List], [Document]) and
// of its one order ([Resolution]) are what the command line speaks as well.
package admin
