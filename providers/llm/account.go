package llm

import (
	"encoding/json"
	"errors"
	"strconv"

	"counterfoil/providers"
)

const (
	// callBytesMax bounds what all tool calls of one answer may have together.
	callBytesMax = 1 << 20
	// callOverhead is what a call costs beside its texts.
	callOverhead = 128
)

// A reader makes an account of an answer, whole or event by event.
type reader interface {
	// event takes the next event of a stream.
	event(name string, data []byte)
	// whole takes an answer that is one JSON value. It returns false where that
	// is none of this API's answers.
	whole(body []byte) bool
	// account is what the answer came to so far.
	account() *account
}

// An account is what an answer came to.
type account struct {
	usage providers.Usage
	// isEnded: the last event was there.
	isEnded bool
	// isFailed: the provider says that it gave up.
	isFailed bool
	// gap says why not every tool call is known; "" if all are.
	gap string

	calls []call
	bytes int
}

// A call is a tool call that is still being told.
type call struct {
	id, tool string
	args     []byte
	// isText: args are a text, and not JSON.
	isText bool
}

// add returns the place of a new call, nil where there is no room.
func (a *account) add(c call) *call {
	if !a.hasRoom(len(c.id) + len(c.tool) + len(c.args) + callOverhead) {
		return nil
	}
	a.calls = append(a.calls, c)
	return &a.calls[len(a.calls)-1]
}

// extend adds a piece of the arguments. A nil call has had no room.
func (a *account) extend(c *call, piece string) {
	if c != nil && a.hasRoom(len(piece)) {
		c.args = append(c.args, piece...)
	}
}

func (a *account) hasRoom(bytes int) bool {
	if a.gap != "" {
		return false
	}
	if a.bytes += bytes; a.bytes <= callBytesMax {
		return true
	}
	a.lose("its tool calls have more than 1 MiB")
	return false
}

// lose gives up on the tool calls; nothing of them is kept.
func (a *account) lose(gap string) {
	a.gap, a.calls = gap, nil
}

// restart forgets the calls that were told, for a list of all of them.
func (a *account) restart() {
	if a.gap == "" {
		a.calls, a.bytes = nil, 0
	}
}

// decision is nil where not every call is known: half a plan is none.
func (a *account) decision() *providers.Decision {
	if a.gap != "" {
		return nil
	}
	d := &providers.Decision{Usage: a.usage}
	for i, c := range a.calls {
		t := providers.ToolCall{ID: c.id, Tool: c.tool, Args: c.json()}
		if t.ID == "" {
			t.ID = "call-" + strconv.Itoa(i+1)
		}
		d.Calls = append(d.Calls, t)
	}
	return d
}

func (c *call) json() []byte {
	if c.isText {
		quoted, err := json.Marshal(string(c.args))
		if err != nil {
			return nil
		}
		return quoted
	}
	if !json.Valid(c.args) {
		return nil
	}
	return c.args
}

// decode reads JSON into v as far as it has the types that v expects: servers
// that follow another's API get details wrong. It returns false for what is no
// JSON.
func decode(data []byte, v any) bool {
	err := json.Unmarshal(data, v)
	var mismatch *json.UnmarshalTypeError
	return err == nil || errors.As(err, &mismatch)
}

// A plain answer is one of which nothing but usage is to be read.
type plain struct{ acc account }

func newPlain() reader { return &plain{} }

func (p *plain) account() *account { return &p.acc }

// event takes none: there are no streams of these.
func (p *plain) event(string, []byte) {}

func (p *plain) whole(body []byte) bool {
	var answer struct {
		Usage chatUsage       `json:"usage"`
		Error json.RawMessage `json:"error"`
	}
	if !decode(body, &answer) {
		return false
	}
	p.acc.usage, p.acc.isFailed, p.acc.isEnded = answer.Usage.usage(), has(answer.Error), true
	return true
}
