// Package mcp reads requests that are MCP (Model Context Protocol) over streamable
// HTTP, in the revisions with sessions (2025-03-26 to 2025-11-25) and in the
// stateless one (2026-07-28). A tools/call is a call, judged per tool; everything
// else passes. The package is pure.
//
// Start with [New].
package mcp
