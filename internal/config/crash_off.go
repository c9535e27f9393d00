//go:build !crashpoints

package config

// crashVariables are settings of a binary that was built to be crashed. A
// released one has none.
var crashVariables = []string{}
