//go:build crashpoints

package journal

import (
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

// passed counts how often the chosen point was reached.
var passed atomic.Int64

// point ends the process as kill -9 would, at the nth passing of the moment
// that COUNTERFOIL_CRASH_POINT names as "name:n".
func point(name string) {
	at, n, _ := strings.Cut(os.Getenv("COUNTERFOIL_CRASH_POINT"), ":")
	if at != name {
		return
	}
	if nth, err := strconv.ParseInt(n, 10, 64); err == nil && passed.Add(1) == nth {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}
