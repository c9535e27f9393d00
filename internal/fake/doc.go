// Package fake stands in for providers: real servers on loopback that behave as
// the providers' documents say, and count the effects that they had. Tests and
// examples talk to them; nothing else does. Start with [Serve]; [Specs] lists
// all of them.
package fake
