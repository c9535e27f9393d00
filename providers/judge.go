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
// what the adapter names as absence, show anything. Each jq program gets half a
// second at most, and less if ctx ends earlier. An effect that was found but
// whose response cannot be made is Inconclusive, since there would be no receipt.
func (l *Lookup) Judge(ctx context.Context, q Query, a Answer) Finding {
	f, _ := l.judge(ctx, &scope{q: &q}, a)
	return f
}

// judge also returns the answer's document, nil where it has none.
func (l *Lookup) judge(ctx context.Context, sc *scope, a Answer) (Finding, any) {
	if slices.Contains(l.notFound, a.Status) {
		return Finding{Discovery: Absent, Reason: fmt.Sprintf("the lookup was answered %d", a.Status)}, nil
	}
	document, body, err := documentOf(a)
	if l.absent != nil && err == nil {
		v, failed := sc.run(ctx, l.absent, document)
		switch {
		case failed != nil:
			return stuck(failed), nil
		case v == true:
			return Finding{Discovery: Absent, Reason: "the lookup's answer says that there is no such thing"}, nil
		}
	}
	if a.Status != 200 {
		return inconclusive("the lookup was answered %d, which shows nothing%s", a.Status, hint(a.Status)), nil
	}
	if err != nil {
		f := inconclusive("the lookup's answer %v", err)
		f.Lasting = true
		return f, nil
	}
	if l.match != nil {
		return l.hits(ctx, sc, a, document), document
	}
	seen, err := sc.run(ctx, l.found, document)
	switch {
	case err != nil:
		return stuck(err), nil
	case seen == true:
		return l.receipt(ctx, sc, a, body, document), document
	case seen == false:
		return Finding{Discovery: Absent, Reason: "the lookup's answer does not show the effect"}, document
	}
	return stuck(l.found.failure("yielded neither true nor false")), nil
}

// hits counts what match picks out of a page.
func (l *Lookup) hits(ctx context.Context, sc *scope, a Answer, document any) Finding {
	v, err := sc.run(ctx, l.match, document)
	if err != nil {
		return stuck(err)
	}
	list, isArray := v.([]any)
	if !isArray {
		return stuck(l.match.failure("yielded no array"))
	}
	if len(list) == 0 {
		return Finding{Discovery: Absent, Reason: "the lookup's answer does not show the effect"}
	}
	body, err := gojq.Marshal(list[0])
	if err != nil {
		return inconclusive("the effect exists, but its response cannot be written as JSON")
	}
	a.Header = a.Header.Without(dropped(a.Header, newBody)).Set("Content-Type", "application/json")
	f := l.receipt(ctx, sc, a, body, list[0])
	f.Hits = len(list)
	return f
}

// stuck is the finding where a program could not be run: nobody may act on it if
// it failed on the answer.
func stuck(err error) Finding {
	return Finding{Discovery: Inconclusive, Reason: err.Error(), Lasting: true, Stuck: isProgramFailure(err)}
}

func documentOf(a Answer) (document any, body []byte, err error) {
	if body, err = decoded(a); err != nil {
		return nil, nil, fmt.Errorf("cannot be read: %w", err)
	}
	if document, err = parseDocument(body); err != nil {
		return nil, nil, fmt.Errorf("cannot be used: %w", err)
	}
	return document, body, nil
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

// receipt makes the answer that the agent gets.
func (l *Lookup) receipt(ctx context.Context, sc *scope, a Answer, body []byte, document any) Finding {
	answer := Answer{Status: l.status, Body: body}
	switch {
	case l.noBody:
		answer.Body, answer.Header = []byte{}, a.Header.Without(dropped(a.Header, newBody))
	case l.body.isIdentity():
		answer.Header = a.Header.Without(dropped(a.Header, sameBody(a.Header)))
	default:
		made, err := sc.run(ctx, l.body, document)
		if err != nil {
			f := stuck(err)
			f.Reason = "the effect exists, but its response cannot be made: " + f.Reason
			return f
		}
		budget := documentBytesMax
		if err := measure(made, depthMax, &budget); err != nil {
			return inconclusive("the effect exists, but its response cannot be made: the value of %s is %v", l.body.at, err)
		}
		if answer.Body, err = gojq.Marshal(made); err != nil {
			return inconclusive("the effect exists, but its response cannot be written as JSON")
		}
		answer.Header = a.Header.Without(dropped(a.Header, newBody)).Set("Content-Type", "application/json")
	}
	for _, f := range l.answers {
		answer.Header = answer.Header.Set(f.Name, f.Value)
	}
	return Finding{Discovery: Found, Answer: answer, Hits: 1}
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
