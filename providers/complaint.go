package providers

import "strconv"

// A Position is a place in a file that a person wrote.
type Position struct {
	// Source is the file's name.
	Source string
	// Line counts from 1; 0 means that no line is known.
	Line int
	// Path leads to the field, as in operations[0].lookup.found. It is empty
	// for the file as a whole.
	Path string
}

// String gives file:line: path, without the parts that are not known.
func (p Position) String() string {
	s := p.Source
	if p.Line > 0 {
		s += ":" + strconv.Itoa(p.Line)
	}
	if p.Path != "" {
		s += ": " + p.Path
	}
	return s
}

// A Complaint is one mistake in an adapter: where it is, what is wrong, and
// what to do about it. Parse joins all of them.
type Complaint struct {
	At   Position
	Text string
}

func (c *Complaint) Error() string { return c.At.String() + ": " + c.Text }
