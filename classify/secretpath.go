package classify

import (
	"fmt"
	"strings"
)

// secretHole stands for the secret part of a segment in a pattern.
const secretHole = "{}"

// A secretPath says which part of a path is a credential.
type secretPath struct {
	match Match
	// before is the text of the pattern's segments, holes included: segments
	// before a hole stand one for one, so "**" can only come last.
	segments []string
}

func compileSecretPath(pattern string) (secretPath, error) {
	if !strings.Contains(pattern, secretHole) {
		return secretPath{}, fmt.Errorf("path %q does not say what is secret: write {} in its place, as in /bot{}/**", pattern)
	}
	m, err := CompileMatch(nil, strings.ReplaceAll(pattern, secretHole, "*"))
	if err != nil {
		return secretPath{}, err
	}
	p := secretPath{match: m, segments: strings.Split(pattern[1:], "/")}
	for i, s := range p.segments {
		if s == "**" && i < len(p.segments)-1 {
			return secretPath{}, fmt.Errorf("path %q: ** comes last where {} stands for something secret", pattern)
		}
		if strings.Count(s, secretHole) > 1 || s != secretHole && strings.Contains(s, secretHole) && strings.Contains(s, "*") {
			return secretPath{}, fmt.Errorf("path %q: a segment holds {} once, and no * beside it", pattern)
		}
	}
	return p, nil
}

// inPath returns where secrets stand in a path: those of the first pattern that
// matches.
func (p *Params) inPath(path string) []Span {
	for i := range p.paths {
		if p.paths[i].match.Matches("", path) {
			return p.paths[i].spans(path)
		}
	}
	return nil
}

func (p *secretPath) spans(path string) []Span {
	var list []Span
	at := 1
	for _, segment := range p.segments {
		if at > len(path) {
			break
		}
		end := segmentEnd(path, at)
		before, after, isSecret := strings.Cut(segment, secretHole)
		if start, stop := at+len(before), end-len(after); isSecret && start < stop {
			list = append(list, Span{Start: start, End: stop, Found: true})
		}
		at = end + 1
	}
	return list
}
