package graphql

import (
	"errors"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/lexer"
	"github.com/vektah/gqlparser/v2/parser"
)

const (
	// documentBytesMax and tokensMax bound a document; one that is longer is an
	// effect of which nothing is known. gqlparser bounds its depth.
	documentBytesMax = 1 << 20
	tokensMax        = 50_000
	// kept bounds how many documents are remembered, keptBytesMax each of them:
	// agents send the same few again and again.
	kept         = 256
	keptBytesMax = 32 << 10
)

// Reasons why a document cannot be told.
var (
	errTooLong    = errors.New("the document is too long")
	errNoDocument = errors.New("the document cannot be parsed")
)

// A document is one GraphQL text. It is immutable.
type document struct {
	text      string
	tree      *ast.QueryDocument
	tokens    []token
	canonical string
	// operations are by name.
	operations map[string]*operation
}

// A token is where something stands in the text, in bytes.
type token struct {
	kind       lexer.Type
	start, end int
}

// parse reads a document.
func parse(text string) (d *document, err error) {
	if len(text) > documentBytesMax {
		return nil, errTooLong
	}
	if !utf8.ValidString(text) {
		return nil, errNoDocument
	}
	// The parser is not ours: whatever it makes of odd text, the answer is an
	// error.
	defer func() {
		if r := recover(); r != nil {
			d, err = nil, errNoDocument
		}
	}()
	tree, err := parser.ParseQueryWithTokenLimit(&ast.Source{Input: text}, tokensMax)
	if err != nil || len(tree.Operations) == 0 {
		return nil, errNoDocument // its own text quotes the document
	}
	d = &document{text: text, tree: tree}
	if err := d.readOperations(); err != nil {
		return nil, err
	}
	return d, d.tokenize()
}

// tokenize finds the tokens, and the canonical text: tokens with one space
// between them. Positions in the tree count characters, those of tokens bytes.
func (d *document) tokenize() error {
	l := lexer.New(&ast.Source{Input: d.text})
	var b strings.Builder
	at, runes := 0, 0
	bytesAt := func(n int) int {
		for runes < n && at < len(d.text) {
			_, size := utf8.DecodeRuneInString(d.text[at:])
			at, runes = at+size, runes+1
		}
		return at
	}
	for {
		t, err := l.ReadToken()
		if err != nil {
			return errNoDocument
		}
		switch t.Kind { //nolint:exhaustive // the others are tokens
		case lexer.EOF:
			d.canonical = b.String()
			return nil
		case lexer.Comment:
			continue
		}
		start := bytesAt(t.Pos.Start)
		made := token{kind: t.Kind, start: start, end: bytesAt(max(t.Pos.End, t.Pos.Start))}
		d.tokens = append(d.tokens, made)
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		if t.Kind == lexer.BlockString {
			d.tokens[len(d.tokens)-1].end = blockEnd(d.text, start)
			// Its indentation does not count.
			b.WriteString(`"""` + strings.ReplaceAll(t.Value, `"""`, `\"""`) + `"""`)
			continue
		}
		b.WriteString(d.text[made.start:made.end])
	}
}

// blockEnd returns where the block string ends that begins at start (GraphQL
// October 2021, section 2.9.4).
func blockEnd(text string, start int) int {
	for i := start + 3; i < len(text); i++ {
		switch {
		case strings.HasPrefix(text[i:], `\"""`):
			i += 3
		case strings.HasPrefix(text[i:], `"""`):
			return len(text) - len(strings.TrimLeft(text[i:], `"`))
		}
	}
	return len(text)
}

// index returns the token at a position of the tree.
func (d *document) index(p *ast.Position) int {
	n := p.Start
	if !isASCII(d.text) {
		n = len(string([]rune(d.text)[:min(n, utf8.RuneCountInString(d.text))]))
	}
	low, high := 0, len(d.tokens)
	for low < high {
		if mid := (low + high) / 2; d.tokens[mid].start < n {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low
}

func isASCII(text string) bool {
	for i := range len(text) {
		if text[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// kindAt is the kind of the ith token, Invalid beyond the last.
func (d *document) kindAt(i int) lexer.Type {
	if i < 0 || i >= len(d.tokens) {
		return lexer.Invalid
	}
	return d.tokens[i].kind
}

// closing returns the token that closes what the ith opens, -1 if none does.
func (d *document) closing(i int) int {
	depth := 0
	for ; i < len(d.tokens); i++ {
		switch d.tokens[i].kind { //nolint:exhaustive // the others open and close nothing
		case lexer.ParenL, lexer.BraceL, lexer.BracketL:
			depth++
		case lexer.ParenR, lexer.BraceR, lexer.BracketR:
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return -1
}

// slice is the text from the ith token to the jth, both included.
func (d *document) slice(i, j int) string {
	if i < 0 || j < i || j >= len(d.tokens) {
		return ""
	}
	return d.text[d.tokens[i].start:d.tokens[j].end]
}

// A library remembers documents by their spelling in the body. It is safe for
// concurrent use.
type library struct {
	mu   sync.Mutex
	docs map[string]*document
	// order is a ring of the spellings, the oldest at next.
	order []string
	next  int
}

// document returns the document that is spelt so.
func (l *library) document(spelt []byte, text func() (string, bool)) (*document, error) {
	l.mu.Lock()
	d := l.docs[string(spelt)]
	l.mu.Unlock()
	if d != nil {
		return d, nil
	}
	plain, ok := text()
	if !ok {
		return nil, errNotJSON
	}
	d, err := parse(plain)
	if err == nil && len(spelt) <= keptBytesMax {
		l.keep(string(spelt), d)
	}
	return d, err
}

func (l *library) keep(spelt string, d *document) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.docs[spelt] != nil {
		return
	}
	if l.docs == nil {
		l.docs = make(map[string]*document, kept)
	}
	if len(l.order) < kept {
		l.order = append(l.order, spelt)
	} else {
		delete(l.docs, l.order[l.next])
		l.order[l.next] = spelt
		l.next = (l.next + 1) % kept
	}
	l.docs[spelt] = d
}
