// Package adapters holds what is known about providers: one file of the adapter
// language for each. [Load] reads them all; docs/providers says in words what
// they do and where the facts come from.
package adapters
