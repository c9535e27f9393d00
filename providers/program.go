package providers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"strings"
	"time"

	"counterfoil/classify"

	"github.com/itchyny/gojq"
)

const (
	programBytesMax = 4 << 10
	// programTimeMax bounds the memory that a program can fill, too: some
	// 200 MiB in this time.
	programTimeMax = 500 * time.Millisecond

	// documentBytesMax bounds what is read, and what a program may make of it.
	documentBytesMax = 8 << 20
	// valuesMax, depthMax and numberBytesMax keep an answer of that size from
	// taking far more memory, stack or arithmetic than its length suggests.
	valuesMax      = 1 << 20
	depthMax       = 1000
	numberBytesMax = 1000
)

// A program is a compiled jq program. It has no environment, no further input
// and no modules.
type program struct {
	source string
	at     Position
	code   *gojq.Code
}

func compileProgram(at Position, source string) (p *program, err error) {
	if len(source) > programBytesMax {
		return nil, fmt.Errorf("longer than %d bytes", programBytesMax)
	}
	// The interpreter is not ours: whatever it makes of odd text, the answer is
	// a complaint.
	defer func() {
		if r := recover(); r != nil {
			p, err = nil, errors.New("not a jq program: the compiler gave up")
		}
	}()
	query, err := gojq.Parse(source)
	if err != nil {
		return nil, fmt.Errorf("not a jq program: %w", err)
	}
	code, err := gojq.Compile(query, gojq.WithVariables(variables))
	if err != nil {
		return nil, fmt.Errorf("not a jq program: %w", err)
	}
	return &program{source: source, at: at, code: code}, nil
}

// mentions reports whether the program's text holds name.
func (p *program) mentions(name string) bool { return strings.Contains(p.source, name) }

// isIdentity reports whether the program hands on its input as it is.
func (p *program) isIdentity() bool { return strings.TrimSpace(p.source) == "." }

// run returns the one value that the program yields. The errors say what went
// wrong and never what the input was, since jq's own messages quote it.
func (p *program) run(ctx context.Context, input any, vars []any) (v any, err error) {
	ctx, cancel := context.WithTimeout(ctx, programTimeMax)
	defer cancel()
	defer func() {
		if r := recover(); r != nil {
			v, err = nil, p.failure("broke the interpreter")
		}
	}()
	results := p.code.RunWithContext(ctx, input, vars...)
	v, more := results.Next()
	if !more {
		return nil, p.failure("yielded nothing")
	}
	if err := p.check(ctx, v); err != nil {
		return nil, err
	}
	second, more := results.Next()
	if !more {
		return v, nil
	}
	if err := p.check(ctx, second); err != nil {
		return nil, err
	}
	return nil, p.failure("yielded more than one value")
}

func (p *program) check(ctx context.Context, v any) error {
	if _, failed := v.(error); !failed {
		return nil
	}
	if ctx.Err() != nil {
		return p.failure("did not end in time")
	}
	return p.failure("failed on this answer")
}

func (p *program) failure(what string) error { return &programError{p.at, what} }

// A programError says that a program failed on what it was given, which is never
// part of the text.
type programError struct {
	at   Position
	what string
}

func (e *programError) Error() string { return fmt.Sprintf("the program at %s %s", e.at, e.what) }

func isProgramFailure(err error) bool {
	var e *programError
	return errors.As(err, &e)
}

// parseDocument reads one JSON value, numbers as they are written.
func parseDocument(doc []byte) (any, error) {
	if len(doc) > documentBytesMax {
		return nil, fmt.Errorf("longer than %d bytes", documentBytesMax)
	}
	// Counting what may separate values, inside strings too, is cheap and
	// never too low.
	if bytes.Count(doc, []byte(","))+bytes.Count(doc, []byte("["))+bytes.Count(doc, []byte("{")) > valuesMax {
		return nil, errors.New("too many values")
	}
	d := json.NewDecoder(bytes.NewReader(doc))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return nil, classify.ErrNotJSON
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one JSON value")
	}
	budget := documentBytesMax
	return v, measure(v, depthMax, &budget)
}

// measure takes the size of v in JSON, or less, from budget. It ends as soon as
// that is spent: a small program can make a value whose text is endless.
func measure(v any, depth int, budget *int) error {
	*budget--
	switch v := v.(type) {
	case string:
		*budget -= len(v)
	case json.Number:
		*budget -= len(v)
		if len(v) > numberBytesMax {
			return errors.New("a number too long to work with")
		}
	case *big.Int:
		if v.BitLen() > 3*numberBytesMax {
			return errors.New("a number too long to work with")
		}
	case []any:
		for _, e := range v {
			if err := measureInner(e, depth, budget); err != nil {
				return err
			}
		}
	case map[string]any:
		for name, e := range v {
			*budget -= len(name)
			if err := measureInner(e, depth, budget); err != nil {
				return err
			}
		}
	}
	if *budget < 0 {
		return errors.New("too large")
	}
	return nil
}

func measureInner(v any, depth int, budget *int) error {
	if depth == 0 {
		return errors.New("nested too deep")
	}
	return measure(v, depth-1, budget)
}
