// Package examples holds no code of its own: its test runs each example as a
// reader would, against a sidecar built from this repository.
package examples
