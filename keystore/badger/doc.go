// Package badger is the journal store that the sidecar runs with: it keeps the
// contract of [keystore.Store] on Badger, in a directory of its own.
package badger
