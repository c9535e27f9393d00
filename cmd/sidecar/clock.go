package main

import "time"

// steadyClock is the wall clock of the start and the time that has passed since,
// so that a wall clock that is set meanwhile neither cuts a wait short nor draws
// it out. Where the system can tell, the time that it was suspended counts.
func steadyClock() func() time.Time {
	started := time.Now()
	began, err := running()
	return func() time.Time {
		if now, errNow := running(); err == nil && errNow == nil {
			return started.Add(now - began)
		}
		return started.Add(time.Since(started))
	}
}
