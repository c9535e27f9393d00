// Package providers is the adapter language: what is to be known about one
// provider's API, as data. An [Adapter] is read from YAML by [Parse], which
// checks everything and compiles every jq program once; after that it is
// immutable and may be used from any number of goroutines.
//
// [Adapter.Match] finds the operation that a request is, [KeyPlacement.Place]
// puts the provider key into it, and a [Lookup] turns the question "did this
// happen?" into a request to send and judges the answer. The package sends
// nothing itself, reads no clock but to bound a jq program, and no
// environment.
//
// docs/adapters.md describes the language to those who write in it.
package providers
