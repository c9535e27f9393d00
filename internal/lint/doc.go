// Package lint holds the rules of the house as tests: which package may import
// which, and what is not written here at all. Each rule says what to do
// instead, and each exception why it is one. An exception that nothing needs
// any more fails too.
package lint
