package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// A Complaint is one mistake: where it is, what is wrong, and what to do.
type Complaint struct {
	// Source is the name of a variable or of the file.
	Source string
	// Line counts from 1; 0 means that no line is known.
	Line int
	// Path leads to the field, as in upstreams.tickets.timeouts.idle; in a
	// variable it is the entry, or empty.
	Path string
	Text string
}

func (c *Complaint) Error() string {
	return place{source: c.Source, line: c.Line, path: c.Path}.String() + ": " + c.Text
}

// A place is where a field was set.
type place struct {
	source string
	line   int
	path   string
}

// String gives file:line: path, without the parts that are not known. What a
// file calls its fields is quoted where it would break the line.
func (p place) String() string {
	s := p.source
	if p.line > 0 {
		s += ":" + strconv.Itoa(p.line)
	}
	if p.path == "" {
		return s
	}
	if strings.ContainsFunc(p.path, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return s + ": " + strconv.Quote(p.path)
	}
	return s + ": " + p.path
}

// complaintsMax is how many mistakes are named at once. Who mends these sees
// the others.
const complaintsMax = 100

func (l *loader) complain(p place, format string, args ...any) {
	l.add(&Complaint{Source: p.source, Line: p.line, Path: p.path, Text: fmt.Sprintf(format, args...)})
}

func (l *loader) add(more ...*Complaint) {
	l.complaints = append(l.complaints, more[:min(len(more), complaintsMax-len(l.complaints))]...)
}

// follow complains unless p, something in it or something around it has been
// complained of: then this may be no more than what follows from that.
func (l *loader) follow(p place, format string, args ...any) {
	for _, c := range l.complaints {
		if c.Source == p.source && (isWithin(c.Path, p.path) || isWithin(p.path, c.Path)) {
			return
		}
	}
	l.complain(p, format, args...)
}

// isWithin reports whether inner is outer, or a field in it.
func isWithin(inner, outer string) bool {
	rest, ok := strings.CutPrefix(inner, outer)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// warn notes what is allowed and yet unwise.
func (l *loader) warn(p place, format string, args ...any) {
	l.cfg.Warnings = append(l.cfg.Warnings, p.String()+": "+fmt.Sprintf(format, args...))
}

// complainOf complains of each of the errors that err joins.
func (l *loader) complainOf(p place, err error) {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			l.complainOf(p, e)
		}
		return
	}
	if err != nil {
		l.complain(p, "%s", err)
	}
}

// err joins the complaints: those of the file by line, the others in the order
// in which they were found.
func (l *loader) err() error {
	slices.SortStableFunc(l.complaints, func(a, b *Complaint) int { return cmp.Compare(a.Line, b.Line) })
	errs := make([]error, len(l.complaints))
	for i, c := range l.complaints {
		errs[i] = c
	}
	return errors.Join(errs...)
}
