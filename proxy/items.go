package proxy

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"counterfoil/classify"
	"counterfoil/internal/journal"
	"counterfoil/internal/view"
	"counterfoil/keystore"
)

// showItem answers GET and HEAD of an item.
func (x *exchange) showItem(ctx context.Context, store, key string) error {
	match, err := etagField(x.header, "If-Match")
	if err != nil {
		return err
	}
	noneMatch, err := etagField(x.header, "If-None-Match")
	if err != nil {
		return err
	}
	sp, err := x.space(store)
	if err != nil {
		return err
	}
	item, err := x.records.Item(ctx, sp, key)
	switch {
	case errors.Is(err, keystore.ErrNotFound):
		return x.noItem(ctx, store)
	case errors.Is(err, keystore.ErrInvalidKey):
		return noUserNamed()
	case err != nil:
		return err
	}
	wanted := precondition{match.condition(), match.hasWeak}
	if err := wanted.Check(item, 0); err != nil {
		return x.unwritten(err, []precondition{wanted}, alone)
	}
	if noneMatch.isGiven && noneMatch.matchesWeakly(item.Version) {
		_ = x.whole(&answer{status: 304, header: itemHeader(item.Version), length: -1}, nil) // the connection is closed then
		return nil
	}
	return x.item(200, item, keystore.Values)
}

// item answers with an item. It is sent as it is, whatever codings the client
// takes, so that its entity tag is strong and always the same.
func (x *exchange) item(status int, item *keystore.Item, fetch keystore.Fetch) error {
	b := view.AppendItem(make([]byte, 0, len(item.Value)+512), item, fetch)
	return x.text(status, itemHeader(item.Version), b)
}

// text answers with JSON that is written out already.
func (x *exchange) text(status int, h classify.Header, body []byte) error {
	body = append(body, '\n')
	h = append(h, classify.Field{Name: "Content-Type", Value: "application/json"})
	_ = x.whole(&answer{status: status, header: h, length: int64(len(body))}, body) // the connection is closed then
	return nil
}

func itemHeader(v keystore.ItemVersion) classify.Header {
	return classify.Header{noStore, {Name: "ETag", Value: v.ETag()}}
}

var noStore = classify.Field{Name: "Cache-Control", Value: "no-store"}

// putItem writes an item.
func (x *exchange) putItem(ctx context.Context, store, key string) error {
	wanted, err := conditionOf(x.header)
	if err != nil {
		return err
	}
	batch, err := x.newBatch(ctx, store)
	if err != nil {
		return err
	}
	w := keystore.ItemWrite{Kind: keystore.PutItem, Key: key, If: wanted.Condition}
	release, err := x.readObject(ctx, func(name string) memberReader { return putMember(&w, name) })
	defer release()
	switch {
	case err != nil:
		return err
	case w.Value == nil:
		return invalid("The body: it has no member value. Send an object with it; null is a value.")
	}
	batch.Writes = []keystore.ItemWrite{w}
	written, err := x.write(ctx, batch, []precondition{wanted}, alone)
	if err != nil {
		return err
	}
	return x.item(createdOr200(!written[0].Was), written[0].Item, keystore.KeysOnly)
}

// deleteItem removes an item.
func (x *exchange) deleteItem(ctx context.Context, store, key string) error {
	if x.header.Has("If-None-Match") {
		return invalid("If-None-Match: a delete takes only If-Match.")
	}
	wanted, err := conditionOf(x.header)
	if err != nil {
		return err
	}
	batch, err := x.newBatch(ctx, store)
	if err != nil {
		return err
	}
	batch.Writes = []keystore.ItemWrite{{Kind: keystore.DeleteItem, Key: key, If: wanted.Condition}}
	written, err := x.write(ctx, batch, []precondition{wanted}, alone)
	switch {
	case err != nil:
		return err
	case !written[0].Was:
		return noItemThere()
	}
	return x.noContent()
}

// newBatch reads what the header says of a write, all but conditions.
func (x *exchange) newBatch(ctx context.Context, store string) (*keystore.Batch, error) {
	guard, err := x.writeGuard()
	if err != nil {
		return nil, err
	}
	requires, err := x.requires()
	if err != nil {
		return nil, err
	}
	sp, err := x.spaceThere(ctx, store)
	if err != nil {
		return nil, err
	}
	return &keystore.Batch{Space: sp, Guard: guard, Requires: requires}, nil
}

// putMember returns the reader of one member of what is put.
func putMember(w *keystore.ItemWrite, name string) memberReader {
	switch name {
	case "value":
		return func(raw []byte) (err error) { w.Value, err = readValue(raw); return err }
	case "tags":
		return func(raw []byte) (err error) { w.Tags, err = readTags(raw); return err }
	case "ttl_seconds":
		return func(raw []byte) (err error) { w.TTL, err = readItemTTL(raw); return err }
	}
	return nil
}

// readValue takes a value as it is.
func readValue(raw []byte) ([]byte, error) {
	if isDeeper(raw, depthMax) {
		return nil, errTooDeep
	}
	return raw, nil
}

func readTags(raw []byte) (map[string]string, error) {
	if raw[0] != '{' {
		return nil, wrongKind(raw, "an object")
	}
	tags := map[string]string{}
	err := readMembers("the tags", raw, func(name string) memberReader {
		return func(raw []byte) (err error) {
			if len(tags) == keystore.TagsMax {
				return fmt.Errorf("it is one too many, at most %d are kept", keystore.TagsMax)
			}
			tags[name], err = readText(raw)
			return err
		}
	})
	return tags, err
}

// grouping says whether writes came alone or as a batch, whose refusals name the
// operation.
type grouping uint8

const (
	alone grouping = iota
	batched
)

// write checks a batch's bounds and has it made. wanted are the preconditions of
// its writes.
func (x *exchange) write(ctx context.Context, b *keystore.Batch, wanted []precondition, as grouping) ([]keystore.Written, error) {
	if err := b.Validate(); err != nil {
		return nil, overLimit(err)
	}
	written, err := x.records.WriteItems(ctx, b)
	return written, x.unwritten(err, wanted, as)
}

// overLimit is the refusal of what is over a bound.
func overLimit(err error) error {
	if errors.Is(err, keystore.ErrTooLarge) {
		return &refusalError{&journal.Refusal{Problem: journal.InputTooLarge, Detail: sentence(err) + " Nothing was written. Split the value over several items, or the batch in two."}}
	}
	return invalid("%s", sentence(err))
}

// unwritten says why nothing was written, or was not for sure; nil where err is.
func (x *exchange) unwritten(err error, wanted []precondition, as grouping) error {
	var refused *keystore.Refused
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refused):
		return &refusalError{refusedWrite(refused, wanted, as)}
	case errors.Is(err, keystore.ErrNotFound):
		return noStoreThere()
	case errors.Is(err, keystore.ErrInvalidKey):
		return noUserNamed()
	case errors.Is(err, keystore.ErrTooLarge):
		return overLimit(err)
	}
	r := x.refusalOf(err)
	if !errors.Is(err, keystore.ErrFull) {
		r.Detail = "The journal cannot be used now, and the write may have been made or not. Read what is there before writing again: with If-Match or If-None-Match a repeat cannot undo what others have written since."
		r.EffectPossible = true
	}
	return &refusalError{r}
}

// refusedWrite says what is on record that a write was refused for.
func refusedWrite(e *keystore.Refused, wanted []precondition, as grouping) *journal.Refusal {
	r := refusalFor(e)
	switch e.Reason { //nolint:exhaustive // the others are not about items
	case keystore.ReceiptRequired:
		r.Detail = "Call " + e.Call.String() + " has no receipt, so what stands for it may not be written yet. Nothing was written. Make that call, or find out what came of it, first."
	case keystore.ETagMismatch, keystore.ItemExists:
		r.ETag = e.Version.ETag()
		r.Detail = explainItem(e, &wanted[e.Operation])
		if as == batched {
			r.Operation = &e.Operation
		}
	}
	return r
}

func explainItem(e *keystore.Refused, wanted *precondition) string {
	switch {
	case e.Reason == keystore.ItemExists:
		return "The item exists already: its tag is in ETag. Nothing was written. If an earlier try of yours may have made it, read it and compare."
	case wanted.hasWeak:
		return "If-Match names a weak entity tag (W/), and weak tags never match there (RFC 9110 section 13.1.1). Nothing was written. Send the tag as it came, without W/; the item's present one, if it is there, is in ETag."
	case e.Version == 0:
		return "If-Match asks for an item that is there, and this one is not. Nothing was written. Create it with If-None-Match: *."
	}
	return "The item has another version by now: its tag is in ETag. Nothing was written. Read the item, work the change into it, and write with the new tag."
}

// listItems answers with a page of items.
func (x *exchange) listItems(ctx context.Context, store string, query url.Values) error {
	q, err := itemQuery(query)
	if err != nil {
		return err
	}
	if q.Space, err = x.space(store); err != nil {
		return err
	}
	release, err := x.shareForPage(ctx, q.Fetch)
	if err != nil {
		return err
	}
	defer release()
	l, err := x.records.Items(ctx, q)
	switch {
	case errors.Is(err, keystore.ErrCursor):
		return invalid("after: it is no cursor of this listing. A cursor goes with the store, user, order, prefix and tags of the page that it came with.")
	case errors.Is(err, keystore.ErrNotFound):
		return noStoreThere()
	case errors.Is(err, keystore.ErrInvalidKey):
		return noUserNamed()
	case err != nil:
		return err
	}
	return x.text(200, classify.Header{noStore}, view.AppendItems(nil, l, q.Fetch))
}

// shareForPage takes a share of the memory for what is large, for a page with
// values.
func (x *exchange) shareForPage(ctx context.Context, f keystore.Fetch) (release func(), err error) {
	if f == keystore.KeysOnly {
		return nothing, nil
	}
	release, refusal := x.takeLarge(ctx, keystore.PageBytesMax)
	if refusal != nil {
		return release, &refusalError{refusal}
	}
	return release, nil
}

// itemQuery reads what a listing is asked for.
func itemQuery(query url.Values) (q *keystore.ItemQuery, err error) {
	if err := checkQuery(query, "prefix", "tag", "order", "limit", "after", "keys_only"); err != nil {
		return nil, err
	}
	q = &keystore.ItemQuery{Prefix: query.Get("prefix"), After: query.Get("after")}
	if utf8.RuneCountInString(q.Prefix) > keystore.NameCharsMax {
		return nil, invalid("prefix: no key has more than %d characters.", keystore.NameCharsMax)
	}
	if q.Tags, err = queryTags(query["tag"]); err != nil {
		return nil, err
	}
	return q, readChoices(q, query)
}

func readChoices(q *keystore.ItemQuery, query url.Values) (err error) {
	switch order := query.Get("order"); {
	case order == "desc":
		q.Order = keystore.Descending
	case order != "asc" && query.Has("order"):
		return invalid("order is asc (first made first) or desc (last made first).")
	}
	switch only := query.Get("keys_only"); {
	case only == "true":
		q.Fetch = keystore.KeysOnly
	case only != "false" && query.Has("keys_only"):
		return invalid("keys_only is true or false.")
	}
	if !query.Has("limit") {
		return nil
	}
	if q.Limit, err = strconv.Atoi(query.Get("limit")); err != nil || q.Limit < 1 || q.Limit > keystore.ItemsMax {
		return invalid("limit is a whole number from 1 to %d.", keystore.ItemsMax)
	}
	return nil
}

func queryTags(asked []string) (map[string]string, error) {
	tags := map[string]string{}
	for _, tag := range asked {
		k, v, found := strings.Cut(tag, ":")
		switch had, isThere := tags[k]; {
		case !found || k == "":
			return nil, invalid("tag is of the form key:value, as in tag=kind:checkpoint; several tags must all be there.")
		case isThere && had != v:
			return nil, invalid("tag: %s is asked for with two values, and an item has one.", quoted(k))
		}
		tags[k] = v
	}
	if len(tags) > keystore.TagsMax {
		return nil, invalid("tag: %d are asked for, and an item has at most %d.", len(tags), keystore.TagsMax)
	}
	return tags, nil
}

// postBatch makes several writes in one commit.
func (x *exchange) postBatch(ctx context.Context, store string, query url.Values) error {
	if err := checkQuery(query); err != nil {
		return err
	}
	if x.header.Has("If-Match") || x.header.Has("If-None-Match") {
		return invalid("The conditions of a batch are its operations' own: if_match and if_none_match.")
	}
	batch, err := x.newBatch(ctx, store)
	if err != nil {
		return err
	}
	var wanted []precondition
	isThere := false
	release, err := x.readObject(ctx, func(name string) memberReader {
		if name != "operations" {
			return nil
		}
		isThere = true
		return func(raw []byte) (err error) { batch.Writes, wanted, err = readOperations(raw); return err }
	})
	defer release()
	switch {
	case err != nil:
		return err
	case !isThere:
		return invalid("The body: it has no member operations. Send an object with 1 to %d of them.", keystore.WritesMax)
	}
	written, err := x.write(ctx, batch, wanted, batched)
	if err != nil {
		return err
	}
	return x.json(struct {
		Results []view.Written `json:"results"`
	}{results(batch.Writes, written)})
}

func results(writes []keystore.ItemWrite, written []keystore.Written) []view.Written {
	list := make([]view.Written, len(writes))
	for i := range writes {
		r := view.Written{Op: "put", Key: writes[i].Key, Status: createdOr200(!written[i].Was)}
		if item := written[i].Item; item != nil {
			r.ETag = item.Version.ETag()
		}
		if writes[i].Kind == keystore.DeleteItem {
			if r.Op, r.Status = "delete", 204; !written[i].Was {
				r.Status = 404
			}
		}
		list[i] = r
	}
	return list
}

func readOperations(raw []byte) (writes []keystore.ItemWrite, wanted []precondition, err error) {
	if raw[0] != '[' {
		return nil, nil, wrongKind(raw, "an array")
	}
	for element := range elements(raw) {
		if len(writes) == keystore.WritesMax {
			return nil, nil, fmt.Errorf("a batch has 1 to %d, and there are more", keystore.WritesMax)
		}
		w, p, err := readOperation("operations["+strconv.Itoa(len(writes))+"]", element)
		if err != nil {
			return nil, nil, err
		}
		w.If = p.Condition
		writes, wanted = append(writes, w), append(wanted, p)
	}
	return writes, wanted, nil
}

// readOperation reads one write of a batch.
func readOperation(where string, raw []byte) (w keystore.ItemWrite, p precondition, err error) {
	c := conditions{matchIs: "if_match", noneMatchIs: "if_none_match"}
	err = readMembers(where, raw, func(name string) memberReader {
		switch name {
		case "op":
			return func(raw []byte) (err error) { w.Kind, err = readKind(raw); return err }
		case "key":
			return func(raw []byte) (err error) { w.Key, err = readText(raw); return err }
		case c.matchIs:
			return func(raw []byte) error { return readETags(&c.match, raw) }
		case c.noneMatchIs:
			return func(raw []byte) error { return readETags(&c.noneMatch, raw) }
		}
		return putMember(&w, name)
	})
	if err != nil {
		return w, p, err
	}
	if err = checkOperation(&w, &c); err == nil {
		p, err = c.precondition()
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", where, err)
	}
	return w, p, err
}

func checkOperation(w *keystore.ItemWrite, c *conditions) error {
	switch {
	case w.Kind == 0:
		return errors.New("it has no member op: put or delete")
	case w.Kind == keystore.PutItem && w.Value == nil:
		return errors.New("a put has a member value; null is a value")
	case w.Kind == keystore.DeleteItem && (w.Value != nil || w.Tags != nil || w.TTL != 0 || c.noneMatch.isGiven):
		return errors.New("a delete has op, key and if_match, nothing else")
	}
	return nil
}

func readKind(raw []byte) (keystore.WriteKind, error) {
	switch op, err := readText(raw); {
	case err != nil:
		return 0, err
	case op == "put":
		return keystore.PutItem, nil
	case op == "delete":
		return keystore.DeleteItem, nil
	}
	return 0, errors.New("it is put or delete")
}

// readETags reads a condition that is a member.
func readETags(l *etagList, raw []byte) error {
	text, err := readText(raw)
	if err == nil {
		*l, err = parseETags(text)
	}
	return err
}
