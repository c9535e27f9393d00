package view

import (
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"counterfoil/keystore"
)

// An ItemStore is one store of items.
type ItemStore struct {
	Store         string `json:"store"`
	UserIsolation bool   `json:"user_isolation"`
	// TTLSeconds is how long it lives after its last write; absent for ever.
	TTLSeconds int64     `json:"ttl_seconds,omitempty"`
	CreatedAt  time.Time `json:"created_at"`
	// ExpiresAt is when it is over unless it is written to before.
	ExpiresAt time.Time `json:"expires_at,omitzero"`
}

// ItemStoreOf shows an item store.
func ItemStoreOf(s *keystore.ItemStore) *ItemStore {
	return &ItemStore{
		Store: s.Name, UserIsolation: s.Isolation == keystore.PerUser, TTLSeconds: int64(s.TTL / time.Second),
		CreatedAt: s.CreatedAt.Time(), ExpiresAt: s.ExpiresAt().Time(),
	}
}

// An Item is one item. Written out it has its value behind its key, see
// [AppendItem].
type Item struct {
	Key   string          `json:"key"`
	Value json.RawMessage `json:"value,omitempty"`
	// ETag has its quotes, as in the header.
	ETag      string            `json:"etag"`
	Tags      map[string]string `json:"tags,omitempty"`
	CreatedAt time.Time         `json:"created_at"`
	UpdatedAt time.Time         `json:"updated_at"`
	ExpiresAt time.Time         `json:"expires_at,omitzero"`
}

// AppendItem appends an item, with its value as it is on record, byte for byte,
// if values are wanted: encoding/json would spell it anew.
func AppendItem(b []byte, i *keystore.Item, fetch keystore.Fetch) []byte {
	b = append(b, `{"key":`...)
	b = appendJSON(b, i.Key)
	if fetch == keystore.Values {
		b = append(append(b, `,"value":`...), i.Value...)
	}
	b = append(append(b, `,"etag":`...), strconv.Quote(i.Version.ETag())...)
	if len(i.Tags) > 0 {
		b = appendJSON(append(b, `,"tags":`...), i.Tags)
	}
	b = appendJSON(append(b, `,"created_at":`...), i.CreatedAt.Time())
	b = appendJSON(append(b, `,"updated_at":`...), i.UpdatedAt.Time())
	if i.ExpiresAt != 0 {
		b = appendJSON(append(b, `,"expires_at":`...), i.ExpiresAt.Time())
	}
	return append(b, '}')
}

// itemBytes is about what an item takes besides its value.
const itemBytes = 512

// AppendItems appends a page of items as a list.
func AppendItems(b []byte, l keystore.List[*keystore.Item], fetch keystore.Fetch) []byte {
	bytes := 0
	for _, i := range l.Items {
		bytes += itemBytes + len(i.Value)
	}
	b = append(slices.Grow(b, bytes), `{"items":[`...)
	for n, i := range l.Items {
		if n > 0 {
			b = append(b, ',')
		}
		b = AppendItem(b, i, fetch)
	}
	b = append(b, ']')
	if l.Next != "" {
		b = appendJSON(append(b, `,"next":`...), l.Next)
	}
	return append(b, '}')
}

// appendJSON appends what always marshals: text, tags and times on record.
func appendJSON[T string | map[string]string | time.Time](b []byte, v T) []byte {
	text, err := json.Marshal(v)
	if err != nil { // a time beyond the year 9999, which no clock here shows
		return append(b, "null"...)
	}
	return append(b, text...)
}

// A Written is what one operation of a batch came to.
type Written struct {
	Op  string `json:"op"`
	Key string `json:"key"`
	// Status is what the operation alone would be answered with: 201, 200, 204,
	// or 404 for a delete of what is not there.
	Status int    `json:"status"`
	ETag   string `json:"etag,omitempty"`
}
