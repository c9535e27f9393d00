// Package demo is the story that the command demo tells: a provider with a
// ledger of its effects, an agent with a fixed plan, and a sidecar between
// them, each a process of its own, of which one is killed at the worst moment.
//
// Start with [Tell].
package demo
