// Package journal is the only loop with effects over calls: begin, send, judge,
// finish, recover, in that order, with the intent durable before a byte leaves
// and the receipt durable before the agent is told.
//
// Start with [Journal.Do]. It reads as the order of design section 3.4; what
// may be done about a call is never decided here but in keystore.Decide, inside
// the store's atomic step.
package journal
