// Package mcp reads requests that are MCP over streamable HTTP.
package mcp
