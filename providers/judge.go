package providers

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"counterfoil/classify"

	"github.com/itchyny/gojq"
)

// A Discovery is what a lookup's answer shows.
type Discovery uint8

const (
	// Inconclusive: the answer proves nothing either way.
	Inconclusive Discovery = iota + 1
	// Absent: the provider does not show the effect. What that is worth is in
	// [Operation.Quiesce] and [Consistency].
	Absent
	// Found: the effect exists.
	Found
)

var discoveryNames = [...]string{Inconclusive: "inconclusive", Absent: "absent", Found: "found"}

func (d Discovery) String() string {
	if d == 0 || int(d) >= len(discoveryNames) {
		return "invalid"
	}
	return discoveryNames[d]
}

// An Answer is a whole answer: its status, its header lines and its body with
// transfer coding removed and content coding kept.
type Answer struct {
	Status int
	Header classify.Header
	Body   []byte
}

// A Finding is what a lookup came to.
type Finding struct {
	Discovery Discovery
	// Reason says in plain words why, unless the effect was found. It holds
	// nothing of the answer but its status.
	Reason string
	// Answer is what the agent gets when the effect was found, without content
	// coding. Where the body is handed on unchanged it shares the memory of
	// the lookup's answer.
	Answer Answer
	// Hits is how many effects were found. More than one is success, and an
	// alarm.
	Hits int
	// Lasting comes with Inconclusive: asking again would not help.
	Lasting bool
	// Stuck comes with Inconclusive: a program failed, so that nothing may be
	// sent again, and a person decides.
	Stuck bool
}

func inconclusive(format string, args ...any) Finding {
	return Finding{Discovery: Inconclusive, Reason: fmt.Sprintf(format, args...)}
}

// Judge says what the whole answer a to the lookup's request shows about the
// call q. Only a 200 with one JSON value of at most 8 MiB (gzip is undone), and
// the statuses that the adapter names as absence, show anything. Each jq
// program gets half a second at most, and less if ctx ends earlier. An effect that
// was found but whose response cannot be made is Inconclusive, since there
// would be no receipt.
func (l *Lookup) Judge(ctx context.Context, q Query, a Answer) Finding {
	if slices.Contains(l.notFound, a.Status) {
		return Finding{Discovery: Absent, Reason: fmt.Sprintf("the lookup was answered %d", a.Status)}
	}
	if a.Status != 200 {
		return inconclusive("the lookup was answered %d, which shows nothing%s", a.Status, hint(a.Status))
	}
	body, err := decoded(a)
	if err != nil {
		return inconclusive("the lookup's answer cannot be read: %v", err)
	}
	document, err := parseDocument(body)
	if err != nil {
		return inconclusive("the lookup's answer cannot be used: %v", err)
	}
	vars, err := l.variables(q)
	if err != nil {
		return inconclusive("the request cannot be used: %v", err)
	}
	seen, err := l.found.run(ctx, document, vars)
	if err != nil {
		return inconclusive("%v", err)
	}
	switch seen {
	case true:
		return l.receipt(ctx, a, body, document, vars)
	case false:
		return Finding{Discovery: Absent, Reason: "the lookup's answer does not show the effect"}
	}
	return inconclusive("the program at %s yielded neither true nor false", l.found.at)
}

func hint(status int) string {
	switch {
	case status == 401 || status == 403:
		return ": its credential may not read there"
	case status == 404 || status == 410:
		return ": not_found does not list it"
	case status/100 == 3:
		return ": redirects are not followed"
	}
	return ""
}

func (l *Lookup) variables(q Query) ([]any, error) {
	vars := []any{q.Key, q.Run, q.Turn, q.Call, nil}
	wanted := l.found.mentions("$request") || l.body.mentions("$request")
	if !wanted {
		return vars, nil
	}
	if q.Original == nil || isCoded(q.Original.Header) {
		return nil, errors.New("its body is not plain JSON")
	}
	request, err := parseDocument(q.Original.Body)
	if err != nil {
		return nil, fmt.Errorf("its body: %w", err)
	}
	vars[len(vars)-1] = request
	return vars, nil
}

// receipt makes the answer that the agent gets.
func (l *Lookup) receipt(ctx context.Context, a Answer, body []byte, document any, vars []any) Finding {
	answer := Answer{Status: l.status, Body: body}
	if l.body.isIdentity() {
		answer.Header = a.Header.Without(dropped(a.Header, sameBody(a.Header)))
		return Finding{Discovery: Found, Answer: answer}
	}
	made, err := l.body.run(ctx, document, vars)
	if err != nil {
		return inconclusive("the effect exists, but its response cannot be made: %v", err)
	}
	budget := documentBytesMax
	if err := measure(made, depthMax, &budget); err != nil {
		return inconclusive("the effect exists, but its response cannot be made: the value of %s is %v", l.body.at, err)
	}
	if answer.Body, err = gojq.Marshal(made); err != nil {
		return inconclusive("the effect exists, but its response cannot be written as JSON")
	}
	answer.Header = a.Header.Without(dropped(a.Header, newBody)).Set("Content-Type", "application/json")
	return Finding{Discovery: Found, Answer: answer}
}

// A change is what became of the body between lookup and receipt.
type change uint8

const (
	sameBytes change = iota
	uncompressed
	newBody
)

func sameBody(h classify.Header) change {
	if isCoded(h) {
		return uncompressed
	}
	return sameBytes
}

// Connections, ranges and the lookup's own freshness say nothing about the
// answer to the agent's request. The validators and digests of a body go once
// its bytes are others, and its description once it is another body.
var (
	neverKept = []string{
		"accept-ranges", "age", "connection", "content-encoding", "content-length", "content-range", "keep-alive",
		"proxy-connection", "signature", "signature-input", "te", "trailer", "transfer-encoding", "upgrade",
	}
	ofTheBytes = []string{"content-digest", "content-md5", "digest", "etag", "repr-digest"}
	ofTheBody  = []string{"content-disposition", "content-language", "content-location", "content-type", "last-modified", "link"}
)

// dropped says which headers of a lookup's answer do not belong to the receipt.
func dropped(h classify.Header, c change) func(name string) bool {
	var named []string
	for _, v := range h.Values("Connection") {
		for name := range strings.SplitSeq(v, ",") {
			named = append(named, strings.ToLower(strings.TrimSpace(name)))
		}
	}
	return func(name string) bool {
		name = strings.ToLower(name)
		return slices.Contains(neverKept, name) || slices.Contains(named, name) ||
			c >= uncompressed && slices.Contains(ofTheBytes, name) ||
			c == newBody && slices.Contains(ofTheBody, name)
	}
}

// decoded returns the body without gzip, the one coding that servers apply
// although identity was asked for.
func decoded(a Answer) ([]byte, error) {
	if len(a.Body) > documentBytesMax {
		return nil, tooLong()
	}
	if !isCoded(a.Header) {
		return a.Body, nil
	}
	if c := a.Header.Values("Content-Encoding"); len(c) > 1 || !strings.EqualFold(c[0], "gzip") {
		return nil, errors.New("it has a content coding other than gzip")
	}
	z, err := gzip.NewReader(bytes.NewReader(a.Body))
	if err != nil {
		return nil, errors.New("it is not the gzip that it says")
	}
	body, err := io.ReadAll(io.LimitReader(z, documentBytesMax+1))
	if err != nil {
		return nil, errors.New("its gzip is broken")
	}
	if len(body) > documentBytesMax {
		return nil, tooLong()
	}
	return body, nil
}

func tooLong() error {
	return errors.New("it is longer than " + strconv.Itoa(documentBytesMax) + " bytes")
}
