package adapters

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"counterfoil/classify"
)

// A sample is one line of testdata/samples/ADAPTER.txt:
//
//	METHOD TARGET [Header: value] {"body": 1} => operation class
//
// with any number of headers in brackets, and a body or none. A body that begins
// with { or [ is JSON and any other a form, unless a header says so. The
// operation is - where the request is none of the adapter's, and the class what
// its method has then. Empty lines and those that begin with # are skipped.
type sample struct {
	request          classify.Request
	operation, class string
}

var sampleHeader = regexp.MustCompile(`^\[([A-Za-z0-9-]+): ([^\]]*)\] ?`)

func parseSample(line string) (sample, error) {
	asked, answer, found := cutLast(line, "=>")
	operation, class, named := strings.Cut(strings.TrimSpace(answer), " ")
	method, rest, asks := strings.Cut(strings.TrimSpace(asked), " ")
	if !found || !named || !asks {
		return sample{}, fmt.Errorf("write METHOD TARGET … => operation class")
	}
	target, rest, _ := strings.Cut(rest, " ")
	s := sample{classify.Request{Upstream: "p", Method: method, Target: target}, operation, strings.TrimSpace(class)}
	for {
		m := sampleHeader.FindStringSubmatch(rest)
		if m == nil {
			break
		}
		s.request.Header, rest = append(s.request.Header, classify.Field{Name: m[1], Value: m[2]}), rest[len(m[0]):]
	}
	s.request.Body = []byte(rest)
	if media := mediaOf(rest); media != "" && !s.request.Header.Has("Content-Type") {
		s.request.Header = append(s.request.Header, classify.Field{Name: "Content-Type", Value: media})
	}
	return s, nil
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

func mediaOf(body string) string {
	switch {
	case body == "":
		return ""
	case body[0] == '{' || body[0] == '[':
		return "application/json"
	}
	return "application/x-www-form-urlencoded"
}

// TestSamples reads one request after another as its adapter does.
func TestSamples(t *testing.T) {
	all, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("testdata/samples/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no samples: %v", err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txt")
		t.Run(name, func(t *testing.T) {
			a := bound(t, all, name)
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for i, line := range strings.Split(string(text), "\n") {
				if line == "" || line[0] == '#' {
					continue
				}
				s, err := parseSample(line)
				if err != nil {
					t.Fatalf("%s:%d: %v", file, i+1, err)
				}
				rd, refusal := a.Read(&s.request)
				if refusal != nil {
					t.Fatalf("%s:%d: refused: %+v", file, i+1, refusal)
				}
				operation, class := "-", classify.Rules(nil).Class(&s.request, rd.Class())
				if rd.Operation != nil {
					operation = rd.Operation.Name
				}
				if operation != s.operation || class.String() != s.class {
					t.Errorf("%s:%d: %s %s is %s, %s, not %s, %s (%s)", file, i+1, s.request.Method, s.request.Target, operation, class, s.operation, s.class, rd.Undecided)
				}
			}
		})
	}
}
