package proxy

import (
	"errors"
	"strings"

	"counterfoil/classify"
	"counterfoil/keystore"
)

const (
	ownPrefix      = "Counterfoil-"
	idempotencyKey = "Idempotency-Key"
)

// An identity is what one source says about whose call a request is. Empty
// parts were not named there.
type identity struct {
	run, turn, call string
	// incarnation counts the lives of an agent, nil if none was named.
	incarnation *uint32
	// fence is the number of the run's lease, 0 if none was named.
	fence keystore.Fence
}

// A claim is whose call a request is, all sources taken together.
type claim struct {
	identity
	// ownKey is the Idempotency-Key that the client chose itself, where that
	// alone is the identity; ownKeyRaw is its spelling.
	ownKey, ownKeyRaw string
	// byKey says that the call's id is the Idempotency-Key.
	byKey bool
	// flowVersion is the version of the flow that the agent runs.
	flowVersion string
	// tie is the key that an SDK made up for its own tries of one call.
	tie string
}

// life is the incarnation that a request names; a fence serves as one.
func (c *claim) life() (n uint64, named bool) {
	switch {
	case c.incarnation != nil:
		return uint64(*c.incarnation), true
	case c.fence != 0:
		return uint64(c.fence), true
	}
	return 0, false
}

// Errors of an identity. Their texts go to the client.
var (
	errTwoValues = errors.New("two values that differ")
	errQuotedKey = errors.New("Idempotency-Key: a quoted key ends in a quote and holds printable ASCII, with \\ before a quote or backslash")
)

// identify takes the identity together: the path first, then Counterfoil's own
// header fields, then what the body says, then baggage, then for the call alone
// the Idempotency-Key (design section 3.2). defaultRun may be empty.
func identify(path, content identity, h classify.Header, defaultRun string) (claim, error) {
	fields, flowVersion, err := fieldIdentity(h)
	if err != nil {
		return claim{}, err
	}
	baggage, err := baggageIdentity(h)
	if err != nil {
		return claim{}, err
	}
	c := claim{flowVersion: flowVersion}
	for _, source := range [...]*identity{&path, &fields, &content, &baggage} {
		c.fill(source)
	}
	named := c.run != "" || c.turn != "" || c.call != ""
	if c.call == "" {
		key, raw, err := clientKey(h)
		if err != nil {
			return claim{}, err
		}
		if isInvented(key) {
			c.tie, key, raw = key, "", ""
		}
		c.call, c.byKey = key, key != ""
		if !named {
			c.ownKey, c.ownKeyRaw = key, raw
		}
		if key != "" && c.run == "" && defaultRun == "" {
			c.run = keystore.NoPart
		}
	}
	c.fill(&identity{run: defaultRun, turn: keystore.NoPart})
	return c, nil
}

// fill takes from lesser what is still missing.
func (id *identity) fill(lesser *identity) {
	if id.run == "" {
		id.run = lesser.run
	}
	if id.turn == "" {
		id.turn = lesser.turn
	}
	if id.call == "" {
		id.call = lesser.call
	}
	if id.incarnation == nil {
		id.incarnation = lesser.incarnation
	}
	if id.fence == 0 {
		id.fence = lesser.fence
	}
}

// fieldIdentity reads Counterfoil-Run, -Turn, -Call, -Incarnation, -Fence and
// -Flow-Version.
func fieldIdentity(h classify.Header) (id identity, flowVersion string, err error) {
	var incarnation string
	for i := range h {
		f := &h[i]
		if !isOwn(f.Name) {
			continue
		}
		switch rest := f.Name[len(ownPrefix):]; {
		case strings.EqualFold(rest, "Run"):
			err = once(&id.run, "Counterfoil-Run", f.Value)
		case strings.EqualFold(rest, "Turn"):
			err = once(&id.turn, "Counterfoil-Turn", f.Value)
		case strings.EqualFold(rest, "Call"):
			err = once(&id.call, "Counterfoil-Call", f.Value)
		case strings.EqualFold(rest, "Incarnation"):
			if err = once(&incarnation, "Counterfoil-Incarnation", f.Value); err == nil {
				id.incarnation, err = parseIncarnation(f.Value)
			}
		case strings.EqualFold(rest, "Fence"):
			err = onceFence(&id.fence, f.Value)
		case strings.EqualFold(rest, "Flow-Version"):
			err = once(&flowVersion, "Counterfoil-Flow-Version", f.Value)
		}
		if err != nil {
			return identity{}, "", err
		}
	}
	return id, flowVersion, nil
}

// once sets a part that may be repeated, but not with another value.
func once(dst *string, where, value string) error {
	part, err := decodePart(where, value)
	if err != nil {
		return err
	}
	if *dst != "" && *dst != part {
		return partError{where, errTwoValues}
	}
	*dst = part
	return nil
}

// onceFence sets a fence likewise.
func onceFence(dst *keystore.Fence, value string) error {
	fence, err := parseFence(value)
	if err == nil && *dst != 0 && *dst != fence {
		err = errFence
	}
	*dst = fence
	return err
}

func isOwn(name string) bool {
	return len(name) > len(ownPrefix) && strings.EqualFold(name[:len(ownPrefix)], ownPrefix)
}

// baggageIdentity reads the members counterfoil.run, .turn and .call of W3C
// baggage.
func baggageIdentity(h classify.Header) (id identity, err error) {
	for i := range h {
		if !strings.EqualFold(h[i].Name, "baggage") {
			continue
		}
		for member := range strings.SplitSeq(h[i].Value, ",") {
			name, value, isOurs := ownMember(member)
			if !isOurs {
				continue
			}
			switch name {
			case "run":
				err = once(&id.run, "counterfoil.run in baggage", value)
			case "turn":
				err = once(&id.turn, "counterfoil.turn in baggage", value)
			case "call":
				err = once(&id.call, "counterfoil.call in baggage", value)
			}
			if err != nil {
				return identity{}, err
			}
		}
	}
	return id, nil
}

// ownMember splits one member of baggage, "counterfoil.name=value;properties".
func ownMember(member string) (name, value string, isOurs bool) {
	key, rest, _ := strings.Cut(member, "=")
	name, isOurs = strings.CutPrefix(strings.Trim(key, " \t"), "counterfoil.")
	value, _, _ = strings.Cut(rest, ";")
	return name, strings.Trim(value, " \t"), isOurs
}

// withoutOwn removes what speaks to Counterfoil alone: its header fields and
// its members of baggage.
func withoutOwn(h classify.Header) classify.Header {
	kept := h[:0]
	for _, f := range h {
		switch {
		case isOwn(f.Name):
			continue
		case strings.EqualFold(f.Name, "baggage") && strings.Contains(f.Value, "counterfoil."):
			if f.Value = foreignBaggage(f.Value); f.Value == "" {
				continue
			}
		}
		kept = append(kept, f)
	}
	return kept
}

// foreignBaggage keeps the members of others as they are spelt.
func foreignBaggage(value string) string {
	var kept []string
	for member := range strings.SplitSeq(value, ",") {
		if _, _, isOurs := ownMember(member); !isOurs && strings.Trim(member, " \t") != "" {
			kept = append(kept, member)
		}
	}
	return strings.Trim(strings.Join(kept, ","), " \t")
}

// clientKey returns the Idempotency-Key that the client sent, bare, and its
// spelling.
func clientKey(h classify.Header) (key, raw string, err error) {
	for i := range h {
		if !strings.EqualFold(h[i].Name, idempotencyKey) {
			continue
		}
		k, err := unquote(h[i].Value)
		if err == nil {
			err = keystore.ValidatePart(k)
		}
		if err != nil {
			return "", "", partError{idempotencyKey, err}
		}
		if raw != "" && key != k {
			return "", "", partError{idempotencyKey, errTwoValues}
		}
		key, raw = k, h[i].Value
	}
	return key, raw, nil
}

// unquote reads a key as it is, or as a string of RFC 8941 section 3.3.3.
// Parameters after the string say nothing here.
func unquote(s string) (string, error) {
	if !strings.HasPrefix(s, `"`) {
		return s, nil
	}
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		c := s[i]
		switch {
		case c == '"':
			if rest := strings.TrimLeft(s[i+1:], " "); rest != "" && rest[0] != ';' {
				return "", errQuotedKey
			}
			return b.String(), nil
		case c == '\\':
			if i++; i == len(s) || s[i] != '"' && s[i] != '\\' {
				return "", errQuotedKey
			}
			c = s[i]
		case c < ' ' || c > '~':
			return "", errQuotedKey
		}
		b.WriteByte(c)
	}
	return "", errQuotedKey
}

// discount takes a key that looks like any other for one that an SDK made up, where
// that can be told and the call can be known without it: Stripe's SDKs send a
// random UUID with each POST where they are given no key.
func (c *claim) discount(h classify.Header) {
	_, isCounted := c.life()
	if isCounted && c.byKey && c.run != keystore.NoPart && isRandomUUID(c.call) && h.Has("X-Stripe-Client-User-Agent") {
		c.tie, c.call, c.byKey, c.ownKey, c.ownKeyRaw = c.call, "", false, "", ""
	}
}

// isRandomUUID reports whether s is a UUID of version 4 (RFC 9562 section 5.4).
func isRandomUUID(s string) bool {
	if len(s) != 36 || s[14] != '4' || strings.IndexByte("89abAB", s[19]) < 0 {
		return false
	}
	for i := range len(s) {
		if isDash := i == 8 || i == 13 || i == 18 || i == 23; isDash != (s[i] == '-') || !isDash && !isHex(s[i]) {
			return false
		}
	}
	return true
}

// inventedPrefixes begin the keys that SDKs make up anew in each process. A
// restart changes them, so they identify nothing. The generator of the SDKs in
// the second row names the language: "stainless-node-retry-…".
var inventedPrefixes = [...]struct{ before, after string }{
	{"stripe-node-retry-", ""},
	{"stainless-", "-retry-"},
}

func isInvented(key string) bool {
	for _, p := range inventedPrefixes {
		if rest, found := strings.CutPrefix(key, p.before); found && strings.Contains(rest, p.after) {
			return true
		}
	}
	return false
}
