// Package graphql reads requests that are GraphQL: what a document does, where a
// value of ours goes in it, and how to ask for what a mutation made.
package graphql
