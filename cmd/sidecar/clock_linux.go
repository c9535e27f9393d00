package main

import (
	"time"

	"golang.org/x/sys/unix"
)

// running is how long the machine has been up, the time that it was suspended
// included. Go's own monotonic clock stands still meanwhile, and with it the age
// of a call would: a provider does not wait with forgetting a key.
func running() (time.Duration, error) {
	var ts unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts)
	return time.Duration(ts.Nano()), err
}
