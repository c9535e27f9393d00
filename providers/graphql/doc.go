// Package graphql reads requests that are GraphQL over HTTP: what a document does
// (a query reads, a mutation is an effect), where a value of ours goes in it, what
// an answer means, and how to ask for what a mutation made.
//
// Start with [New]. The package is pure.
package graphql
