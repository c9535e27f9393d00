//go:build !unix

package proxy

import "net"

// present reports whether the client is still there. Here nobody can look without
// taking what it sent, so a client is there until a write to it fails.
func (c *conn) present() bool { return true }

// boundUnsent does nothing: how much the kernel takes ahead of the client can be
// bounded on Linux alone.
func boundUnsent(net.Conn) {}
