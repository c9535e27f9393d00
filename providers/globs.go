package providers

import (
	"fmt"
	"strings"
)

// A glob is text in which each * stands for any bytes.
type glob struct {
	text  string
	parts []string
}

func compileGlob(text string) glob { return glob{text: text, parts: strings.Split(text, "*")} }

func (g *glob) matches(s string) bool {
	first, last := g.parts[0], g.parts[len(g.parts)-1]
	if len(g.parts) == 1 {
		return s == first
	}
	if len(s) < len(first)+len(last) || !strings.HasPrefix(s, first) || !strings.HasSuffix(s, last) {
		return false
	}
	s = s[len(first) : len(s)-len(last)]
	for _, part := range g.parts[1 : len(g.parts)-1] {
		at := strings.Index(s, part)
		if at < 0 {
			return false
		}
		s = s[at+len(part):]
	}
	return true
}

// A named is a glob for the value of one header, parameter or field.
type named struct {
	name  string
	value glob
}

func (n *named) String() string { return fmt.Sprintf("%s: %s", n.name, n.value.text) }

// globs reads a mapping of names to patterns.
func (l *loader) globs(p place, what string) []named {
	if !p.given() {
		return nil
	}
	var list []named
	for _, f := range l.pairs(p) {
		value, ok := l.required(f, "write what the "+what+" has to be, with * for any text")
		if ok {
			list = append(list, named{f.name, compileGlob(value)})
		}
	}
	return list
}
