//go:build !linux

package main

import (
	"errors"
	"time"
)

func running() (time.Duration, error) { return 0, errors.ErrUnsupported }
