package keystore

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Bounds on stores and items, see design section 3.7.
const (
	// NameCharsMax is how many characters a store's name and an item's key may
	// have. Each has at least one.
	NameCharsMax = 128
	// ValueBytesMax is how long an item's value may be.
	ValueBytesMax = 1 << 20
	// TagsMax is how many tags an item may have; a tag's key has 1 to
	// TagKeyBytesMax bytes and no colon, its value up to TagValueBytesMax.
	TagsMax          = 16
	TagKeyBytesMax   = 64
	TagValueBytesMax = 256
	// WritesMax is how many items one batch may write.
	WritesMax = 100
	// ItemsMax and ItemsDefault bound a page of items.
	ItemsMax     = 100
	ItemsDefault = 20
	// LookedAtMax is how many items one call of Items looks at, and
	// PageBytesMax how many bytes of values its page has before it ends.
	LookedAtMax  = 2000
	PageBytesMax = 8 << 20
	// RequiresMax is how many receipts one write may require.
	RequiresMax = 16
	// ItemTTLMax bounds the time to live of stores and items.
	ItemTTLMax = 10 * 365 * 24 * time.Hour
)

// An ItemStore is state that outlives its agent: what design section 3.7 calls a
// store. (A [Store] keeps the journal.)
type ItemStore struct {
	Namespace string `cbor:"1,keyasint"`
	Name      string `cbor:"2,keyasint"`
	// TTL is how long it lives after its last write; 0 is for ever.
	TTL time.Duration `cbor:"3,keyasint,omitempty"`
	// Isolation says whether each user sees only that user's items.
	Isolation Isolation `cbor:"4,keyasint,omitempty"`
	CreatedAt Instant   `cbor:"5,keyasint"`
	// WrittenAt is when an item was last written or deleted; the TTL counts from
	// it. Where there is no TTL it is up to writtenStep behind.
	WrittenAt Instant `cbor:"6,keyasint"`
}

// writtenStep bounds how often a store without a TTL is rewritten because its
// items were.
const writtenStep = time.Second

// Isolation says who sees an item store's items.
type Isolation uint8

const (
	// Shared: everybody in the namespace.
	Shared Isolation = iota
	// PerUser: only the user who wrote them.
	PerUser
)

// ExpiresAt is when the store is over, as things stand; 0 is never.
func (s *ItemStore) ExpiresAt() Instant {
	if s.TTL == 0 {
		return 0
	}
	return s.WrittenAt.Add(s.TTL)
}

// IsOver reports whether the store's time is up.
func (s *ItemStore) IsOver(now Instant) bool {
	at := s.ExpiresAt()
	return at != 0 && now >= at
}

// Written returns the store after a write to it, and whether that changes what
// is on record.
func (s *ItemStore) Written(now Instant) (next ItemStore, changed bool) {
	next = *s
	since := now - s.WrittenAt
	if changed = since > 0 && (s.TTL != 0 || since >= Instant(writtenStep)); changed {
		next.WrittenAt = now
	}
	return next, changed
}

// Owner returns the user whose items sp means, empty where the store is shared.
// The error wraps ErrInvalidKey: the items are each user's own, and sp names no
// user.
func (s *ItemStore) Owner(sp Space) (string, error) {
	switch {
	case s.Isolation == Shared:
		return "", nil
	case sp.User == "":
		return "", fmt.Errorf("user: each user of this store has items apart, name one: %w", ErrInvalidKey)
	}
	return sp.User, nil
}

// An ItemVersion is one version of one item. No other version of any item in
// the same journal store has the same; 0 is none.
type ItemVersion uint64

// ETag returns the strong entity tag of a version (RFC 9110 section 8.8.3),
// quotes included; empty for 0.
func (v ItemVersion) ETag() string {
	if v == 0 {
		return ""
	}
	return `"` + base64.RawURLEncoding.EncodeToString(binary.BigEndian.AppendUint64(nil, uint64(v))) + `"`
}

// An Item is one value in an item store.
type Item struct {
	Key  string            `cbor:"1,keyasint"`
	Tags map[string]string `cbor:"2,keyasint,omitempty"`
	// Value is JSON as it was sent; nil where only keys were asked for.
	Value []byte `cbor:"3,keyasint,omitempty"`
	// Version changes with every write.
	Version   ItemVersion `cbor:"4,keyasint"`
	CreatedAt Instant     `cbor:"5,keyasint"`
	UpdatedAt Instant     `cbor:"6,keyasint"`
	// ExpiresAt is when it is over; 0 is never.
	ExpiresAt Instant `cbor:"7,keyasint,omitempty"`
}

// IsOver reports whether the item's time is up.
func (i *Item) IsOver(now Instant) bool { return i.ExpiresAt != 0 && now >= i.ExpiresAt }

// A Space is one user's part of an item store, or all of one that is shared.
type Space struct {
	Namespace, Store string
	// User is empty where nobody was named.
	User string
}

// A Condition is what an item must be like for a write to be made. The zero
// Condition is none.
type Condition struct {
	// Absent: it must not be there (If-None-Match: *).
	Absent bool
	// Present: it must be there (If-Match: *).
	Present bool
	// Versions: it must have one of them (If-Match: "…"). Not nil and empty means
	// that no version can match.
	Versions []ItemVersion
}

// Check checks a condition against the item that is there, nil if none is. The
// error is a *Refused for ItemExists or ETagMismatch.
func (c *Condition) Check(present *Item, operation int) error {
	refused := &Refused{Reason: ETagMismatch, Operation: operation}
	if present != nil {
		refused.Version = present.Version
	}
	switch {
	case c.Absent && present != nil:
		refused.Reason = ItemExists
		return refused
	case c.Present && present == nil:
		return refused
	case c.Versions == nil:
		return nil
	}
	for _, v := range c.Versions {
		if present != nil && v == present.Version {
			return nil
		}
	}
	return refused
}

// An ItemWrite puts or deletes one item.
type ItemWrite struct {
	Kind  WriteKind
	Key   string
	Value []byte
	Tags  map[string]string
	// TTL is how long the item lives; 0 is as long as its store.
	TTL time.Duration
	If  Condition
}

// Put returns what the write makes of the item that is there, nil if none is,
// without its value. It shares no memory with the write.
func (w *ItemWrite) Put(present *Item, v ItemVersion, now Instant) *Item {
	i := &Item{Key: w.Key, Tags: maps.Clone(w.Tags), Version: v, CreatedAt: now, UpdatedAt: now}
	if present != nil {
		i.CreatedAt = present.CreatedAt
	}
	if w.TTL != 0 {
		i.ExpiresAt = now.Add(w.TTL)
	}
	return i
}

// RequireReceipt checks that the call k has a receipt; r is its record, nil
// where it is not on record. The error is a *Refused for ReceiptRequired.
func RequireReceipt(k Key, r *Record) error {
	if r != nil && (r.State == Succeeded || r.State == Rejected) {
		return nil
	}
	return &Refused{Reason: ReceiptRequired, Call: k}
}

// A WriteKind is what a write does.
type WriteKind uint8

const (
	// PutItem makes the item, or replaces it and keeps its place in lists.
	PutItem WriteKind = iota + 1
	// DeleteItem removes it. Where it is not there, nothing is done.
	DeleteItem
)

// A Batch is writes that are made together or not at all.
type Batch struct {
	Space  Space
	Writes []ItemWrite
	// Guard ties the batch to a run, if it names one.
	Guard Guard
	// Requires are calls without whose receipts nothing is written.
	Requires []Key
}

// A Written is what one write of a batch came to.
type Written struct {
	// Item is what is there now, without its value; nil after a delete.
	Item *Item
	// Was says whether the item was there before.
	Was bool
}

// Validate reports what is over its limits. The error's text is for clients.
// Whether a value is JSON is not looked at here.
func (b *Batch) Validate() error {
	if len(b.Writes) == 0 || len(b.Writes) > WritesMax {
		return fmt.Errorf("operations: there are %d, a batch has 1 to %d", len(b.Writes), WritesMax)
	}
	if len(b.Requires) > RequiresMax {
		return fmt.Errorf("Counterfoil-Requires: it names %d calls, at most %d are looked up", len(b.Requires), RequiresMax)
	}
	seen := make(map[string]bool, len(b.Writes))
	for i := range b.Writes {
		w := &b.Writes[i]
		if err := w.validate(); err != nil {
			if len(b.Writes) > 1 {
				err = fmt.Errorf("operations[%d]: %w", i, err)
			}
			return err
		}
		if seen[w.Key] {
			return fmt.Errorf("operations[%d]: key %q is there twice; a batch writes each key once", i, w.Key)
		}
		seen[w.Key] = true
	}
	return nil
}

func (w *ItemWrite) validate() error {
	if w.Kind != PutItem && w.Kind != DeleteItem {
		return errors.New("op: it is put or delete")
	}
	if err := ValidateName(w.Key); err != nil {
		return fmt.Errorf("key: %w", err)
	}
	if len(w.Value) > ValueBytesMax {
		return fmt.Errorf("value: it has %d bytes, at most %d are kept: %w", len(w.Value), ValueBytesMax, ErrTooLarge)
	}
	if err := ValidateItemTTL(w.TTL); err != nil {
		return err
	}
	return validateTags(w.Tags)
}

func validateTags(tags map[string]string) error {
	if len(tags) > TagsMax {
		return fmt.Errorf("tags: there are %d, at most %d are kept", len(tags), TagsMax)
	}
	for k, v := range tags {
		if k == "" || len(k) > TagKeyBytesMax || strings.Contains(k, ":") || !utf8.ValidString(k+v) {
			return fmt.Errorf("tags: a tag's key is 1 to %d bytes of UTF-8 without a colon", TagKeyBytesMax)
		}
		if len(v) > TagValueBytesMax {
			return fmt.Errorf("tags: the value of %q has %d bytes, at most %d are kept", k, len(v), TagValueBytesMax)
		}
	}
	return nil
}

// ValidateName reports whether a store's name or an item's key is 1 to 128
// characters of UTF-8.
func ValidateName(name string) error {
	switch n := utf8.RuneCountInString(name); {
	case name == "":
		return fmt.Errorf("%w: it is empty", ErrInvalidKey)
	case !utf8.ValidString(name):
		return fmt.Errorf("%w: it is not valid UTF-8", ErrInvalidKey)
	case n > NameCharsMax:
		return fmt.Errorf("%w: it has %d characters, at most %d are allowed", ErrInvalidKey, n, NameCharsMax)
	}
	return nil
}

// ValidateItemTTL reports whether ttl is 0 or a time that an item or a store may
// live.
func ValidateItemTTL(ttl time.Duration) error {
	if ttl < 0 || ttl > 0 && ttl < time.Second || ttl > ItemTTLMax {
		return fmt.Errorf("ttl_seconds: it is 1 to %d (ten years); leave it out for no end", int64(ItemTTLMax.Seconds()))
	}
	return nil
}

// An ItemQuery asks for a page of items.
type ItemQuery struct {
	Space  Space
	Prefix string
	// Tags must all be there with these values.
	Tags  map[string]string
	Order Order
	// Limit is 1 to ItemsMax; 0 means ItemsDefault.
	Limit int
	After string
	// Fetch says whether values are wanted.
	Fetch Fetch
}

// Matches reports whether an item is asked for.
func (q *ItemQuery) Matches(i *Item) bool {
	if !strings.HasPrefix(i.Key, q.Prefix) {
		return false
	}
	for k, v := range q.Tags {
		if have, ok := i.Tags[k]; !ok || have != v {
			return false
		}
	}
	return true
}

// PageLimit is how many items a page has at most. The error's text is for
// clients.
func (q *ItemQuery) PageLimit() (int, error) {
	switch {
	case q.Limit == 0:
		return ItemsDefault, nil
	case q.Limit < 0 || q.Limit > ItemsMax:
		return 0, fmt.Errorf("limit: %d: a page has 1 to %d items", q.Limit, ItemsMax)
	}
	return q.Limit, nil
}

// Cursor returns the cursor of the page that follows a place: the number, greater
// than that of any item before it, that an item got when it was made. It is of
// this listing alone: store, user, order, prefix and tags.
func (q *ItemQuery) Cursor(place uint64) string {
	return base64.RawURLEncoding.EncodeToString(binary.BigEndian.AppendUint64(q.digest(), place))
}

// AfterPlace returns the place that After names, or 0 where After is empty. The
// error is ErrCursor.
func (q *ItemQuery) AfterPlace() (uint64, error) {
	if q.After == "" {
		return 0, nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(q.After)
	if err != nil || len(raw) != digestBytes+8 || !bytes.Equal(raw[:digestBytes], q.digest()) {
		return 0, ErrCursor
	}
	return binary.BigEndian.Uint64(raw[digestBytes:]), nil
}

const digestBytes = 8

// digest stands for the listing.
func (q *ItemQuery) digest() []byte {
	parts := []string{q.Space.Namespace, q.Space.Store, q.Space.User, q.Prefix}
	for _, k := range slices.Sorted(maps.Keys(q.Tags)) {
		parts = append(parts, k, q.Tags[k])
	}
	b := []byte{byte(q.Order)}
	for _, part := range parts {
		b = binary.BigEndian.AppendUint32(b, uint32(len(part)))
		b = append(b, part...)
	}
	sum := sha256.Sum256(b)
	return sum[:digestBytes]
}

// An Order is that of creation, or the other way round.
type Order uint8

const (
	// Ascending lists what was created first, first.
	Ascending Order = iota
	// Descending lists what was created last, first.
	Descending
)

// Fetch says what of an item is wanted.
type Fetch uint8

const (
	// Values: all of it.
	Values Fetch = iota
	// KeysOnly: all but its value.
	KeysOnly
)
