// Package config reads Counterfoil's settings from environment variables and
// from one optional YAML file, and checks all of them before anything starts.
//
// Start with [Load]. It is handed the environment and a way to read files, and
// uses no others. A mistake is a [Complaint] that names the variable, or the
// file, line and field; Load returns all of them at once. No complaint repeats
// a secret, nor any value that may hold one.
//
// docs/configuration.md is printed from the structs here.
package config
