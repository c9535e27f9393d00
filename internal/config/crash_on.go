//go:build crashpoints

package config

// crashVariables are settings of a binary that was built to be crashed.
var crashVariables = []string{"COUNTERFOIL_CRASH_POINT"}
