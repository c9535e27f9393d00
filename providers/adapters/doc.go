// Package adapters holds what is known about particular providers, in the
// language of package providers. None is built in so far: an upstream is
// described by the operations in its own configuration.
package adapters
