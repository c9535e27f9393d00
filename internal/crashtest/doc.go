// Package crashtest ends real sidecars at every moment of a call's life and
// holds what they say afterwards against the ledger of a real provider. It is
// tests only: start with TestC17_CrashMatrix, then TestStorm, which is make
// crash at length.
//
// The provider counts effects by the call that is named in a request's body,
// not by key, so that a second effect shows under whatever key it came.
package crashtest
