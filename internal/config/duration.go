package config

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

const day = 24 * time.Hour

// durationMax keeps every duration far from overflow, whatever is added to it.
const durationMax = 100 * 365 * day

var days = regexp.MustCompile(`^(\d{1,5})d`)

// parseDuration reads a Go duration, in which a number of days may come first:
// 30d, 1d12h.
func parseDuration(text string) (time.Duration, error) {
	var whole time.Duration
	rest := text
	if m := days.FindStringSubmatch(text); m != nil {
		n, _ := strconv.Atoi(m[1])
		whole, rest = time.Duration(n)*day, text[len(m[0]):]
	}
	var part time.Duration
	if rest != "" || text == "" {
		var err error
		if part, err = time.ParseDuration(rest); err != nil {
			return 0, fmt.Errorf("%q is no duration: write a number and a unit, as in 30s, 5m, 24h or 30d", text)
		}
	}
	if part < 0 {
		return 0, errors.New("a duration cannot be negative")
	}
	if part > durationMax || whole > durationMax-part {
		return 0, errors.New("a duration of more than 100 years is not possible")
	}
	return whole + part, nil
}

// checkRange complains of a duration outside its bounds.
func checkRange(d, least, most time.Duration) error {
	if d < least || d > most {
		return fmt.Errorf("%s is out of range: from %s to %s is possible", d, least, most)
	}
	return nil
}

// Drain bounds a graceful end.
type Drain time.Duration

// UnmarshalText reads a duration of 0s to 1h.
func (d *Drain) UnmarshalText(text []byte) error {
	value, err := parseDuration(string(text))
	if err != nil {
		return err
	}
	*d = Drain(value)
	return checkRange(value, 0, time.Hour)
}

// Retention says how long what is on record is kept. Each is at least 1 s.
type Retention struct {
	AfterEnd    time.Duration `yaml:"after_end"`
	AfterChange time.Duration `yaml:"after_change"`
	Tombstone   time.Duration `yaml:"tombstone"`
}

// UnmarshalText reads after_end=30d,after_change=90d,tombstone=400d, of which
// any may be left out, or after_end's duration alone.
func (r *Retention) UnmarshalText(text []byte) error {
	if !strings.Contains(string(text), "=") {
		return r.set("after_end", string(text))
	}
	var errs []error
	seen := map[string]bool{}
	for part := range strings.SplitSeq(string(text), ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		if seen[name] {
			errs = append(errs, fmt.Errorf("%s is given twice: keep one", name))
			continue
		}
		seen[name] = true
		if err := r.set(name, value); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (r *Retention) set(name, text string) error {
	fields := map[string]*time.Duration{"after_end": &r.AfterEnd, "after_change": &r.AfterChange, "tombstone": &r.Tombstone}
	field, known := fields[name]
	if !known {
		return fmt.Errorf("%q is none of after_end, after_change, tombstone: write after_end=30d,after_change=90d,tombstone=400d", name)
	}
	d, err := parseDuration(text)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	*field = d
	return nil
}

func (l *loader) checkRetention() {
	r, p := l.cfg.Retention, l.at("retention")
	for _, f := range []struct {
		name  string
		value time.Duration
	}{{"after_end", r.AfterEnd}, {"after_change", r.AfterChange}, {"tombstone", r.Tombstone}} {
		if err := checkRange(f.value, time.Second, durationMax); err != nil {
			l.complain(p, "%s: %s", f.name, err)
		}
	}
	if r.AfterEnd > r.AfterChange {
		l.complain(p, "after_end (%s) would never be reached, since after_change (%s) ends it before: raise after_change too", r.AfterEnd, r.AfterChange)
	}
}
