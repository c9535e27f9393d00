package crashtest

import "syscall"

// dieWithParent ends a child with this process, however that ends.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
