// Package keystore holds what is on record about calls, and the rules by which
// it changes. It is pure: identities, records, the state machine of a call and
// the codec do no I/O, read no clock and draw no randomness.
//
// Start with [Key], [Record], [Next] and [Decide]; [Store] is the contract that
// every journal store keeps, and package storetest is its conformance suite.
package keystore
