// Package proxy is the data listener: it finds out where a request goes and
// whose it is, hands effects to the journal and passes reads on, and speaks the
// agent API under "/-/v1".
//
// Start with [New] and [Server.Serve]. fasthttp reads requests and runs the
// connections; every byte of an answer is written here, so that a provider's
// header fields leave as they came, and a stream's end leaves only when the
// journal says so. docs/protocol.md is the wire protocol in prose.
package proxy
