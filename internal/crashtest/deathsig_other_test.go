//go:build !linux

package crashtest

import "syscall"

// dieWithParent is for Linux; elsewhere only a test that panics leaves a child.
func dieWithParent() *syscall.SysProcAttr { return nil }
