package proxy

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"counterfoil/internal/journal"
	"counterfoil/internal/view"
	"counterfoil/keystore"
)

// findStore returns the handlers of what follows /-/v1/stores.
func (x *exchange) findStore(s []string) methods {
	if len(s) == 0 {
		return nil
	}
	store := s[0]
	x.about.Run = x.claim.run // the one that a write is checked against
	bind := func(handle func(ctx context.Context, store string, query url.Values) error) handler {
		return func(ctx context.Context, query url.Values) error { return handle(ctx, store, query) }
	}
	switch s = s[1:]; {
	case len(s) == 0:
		return methods{"GET": bind(x.showStore), "PUT": bind(x.putStore)}
	case len(s) == 1 && s[0] == "items":
		return methods{"GET": bind(x.listItems)}
	case len(s) == 1 && s[0] == "batch":
		return methods{"POST": bind(x.postBatch)}
	case len(s) == 2 && s[0] == "items":
		return x.findItem(store, s[1])
	}
	return nil
}

func (x *exchange) findItem(store, key string) methods {
	bind := func(handle func(ctx context.Context, store, key string) error) handler {
		return func(ctx context.Context, query url.Values) error {
			if err := checkQuery(query); err != nil {
				return err
			}
			return handle(ctx, store, key)
		}
	}
	return methods{"GET": bind(x.showItem), "PUT": bind(x.putItem), "DELETE": bind(x.deleteItem)}
}

// decodeName undoes percent-encoding and checks the length of a store's name or
// an item's key.
func decodeName(where, s string) (string, error) {
	if !isASCII(s) {
		return "", partError{where, errNotASCII}
	}
	name, err := keystore.DecodePart(s)
	if err == nil {
		err = keystore.ValidateName(name)
	}
	if err != nil {
		return "", partError{where, err}
	}
	return name, nil
}

// showStore answers GET of a store.
func (x *exchange) showStore(ctx context.Context, store string, query url.Values) error {
	if err := checkQuery(query); err != nil {
		return err
	}
	s, err := x.itemStore(ctx, store)
	if err != nil {
		return err
	}
	return x.json(view.ItemStoreOf(&s))
}

// putStore makes a store that is not there; to one that is it changes nothing.
func (x *exchange) putStore(ctx context.Context, store string, query url.Values) error {
	if err := checkQuery(query); err != nil {
		return err
	}
	if x.header.Has("If-Match") || x.header.Has("If-None-Match") {
		return invalid("A store has no version: leave If-Match and If-None-Match out. The status says whether it was made (201) or was there (200).")
	}
	spec := keystore.ItemStore{Namespace: x.namespace, Name: store}
	release, err := x.readObject(ctx, func(name string) memberReader {
		switch name {
		case "ttl_seconds":
			return func(raw []byte) (err error) { spec.TTL, err = readItemTTL(raw); return err }
		case "user_isolation":
			return func(raw []byte) (err error) { spec.Isolation, err = readIsolation(raw); return err }
		}
		return nil
	})
	defer release()
	if err != nil {
		return err
	}
	s, isNew, err := x.records.PutItemStore(ctx, &spec)
	if err != nil {
		return err
	}
	return x.jsonAs(createdOr200(isNew), view.ItemStoreOf(&s))
}

func createdOr200(isNew bool) int {
	if isNew {
		return 201
	}
	return 200
}

func readIsolation(raw []byte) (keystore.Isolation, error) {
	isolated, err := readBool(raw)
	if isolated {
		return keystore.PerUser, err
	}
	return keystore.Shared, err
}

// readItemTTL reads how long a store or an item lives.
func readItemTTL(raw []byte) (time.Duration, error) {
	seconds, err := readWhole(raw)
	if err != nil {
		return 0, err
	}
	if most := int64(keystore.ItemTTLMax / time.Second); seconds < 1 || seconds > most {
		return 0, fmt.Errorf("%d is not within 1 and %d (ten years); leave it out for no end", seconds, most)
	}
	return time.Duration(seconds) * time.Second, nil
}

// readObject reads the body as one object; without a body nothing is read. What
// the readers keep is part of the body, whose memory release gives back.
func (x *exchange) readObject(ctx context.Context, known func(name string) memberReader) (release func(), err error) {
	body, release, err := x.readDocument(ctx)
	if err != nil || len(body) == 0 {
		return release, err
	}
	if err := checkJSON(body); err != nil {
		return release, invalid("The body: %s.", err)
	}
	if err := readMembers("The body", body, known); err != nil {
		return release, invalid("%s.", err)
	}
	return release, nil
}

// checkQuery refuses parameters that are not known, or that are there twice and
// may not be: tags and labels may.
func checkQuery(query url.Values, known ...string) error {
	for name, values := range query {
		switch {
		case len(known) == 0:
			return invalid("The query names %s, but no parameter belongs here.", quoted(name))
		case !slices.Contains(known, name):
			return invalid("The query names %s. What can be asked for here: %s.", quoted(name), strings.Join(known, ", "))
		case len(values) > 1 && name != "tag" && name != "label":
			return invalid("The query names %s twice.", name)
		}
		for _, value := range values {
			if !utf8.ValidString(value) {
				return invalid("%s: it is not UTF-8.", name)
			}
		}
	}
	return nil
}

// itemStore returns a store, or says that there is none.
func (x *exchange) itemStore(ctx context.Context, store string) (keystore.ItemStore, error) {
	s, err := x.records.ItemStore(ctx, x.namespace, store)
	if errors.Is(err, keystore.ErrNotFound) {
		err = noStoreThere()
	}
	return s, err
}

func noStoreThere() error {
	return &refusalError{&journal.Refusal{Problem: NotFound, Detail: "There is no store of that name, or its time is up. PUT /-/v1/stores/{store} makes it; a / in its name is spelt %2F."}}
}

// noItem says what is not there: the item, or its store.
func (x *exchange) noItem(ctx context.Context, store string) error {
	if _, err := x.itemStore(ctx, store); err != nil {
		return err
	}
	return noItemThere()
}

func noItemThere() error {
	return &refusalError{&journal.Refusal{Problem: NotFound, Detail: "The store has no item of that key, or its time is up."}}
}

// space says whose items of which store a request names.
func (x *exchange) space(store string) (keystore.Space, error) {
	user, err := x.part("Counterfoil-User")
	return keystore.Space{Namespace: x.namespace, Store: store, User: user}, err
}

// spaceThere is space for writes: it looks first, so that nothing is read or
// staged for a store that is not there.
func (x *exchange) spaceThere(ctx context.Context, store string) (keystore.Space, error) {
	sp, err := x.space(store)
	if err != nil {
		return sp, err
	}
	s, err := x.itemStore(ctx, store)
	if err != nil {
		return sp, err
	}
	if _, err := s.Owner(sp); err != nil {
		return sp, noUserNamed()
	}
	return sp, nil
}

func noUserNamed() error {
	return invalid("Each user of this store has items apart (user_isolation), so the request has to name one: Counterfoil-User, percent-encoded where it is not plain ASCII.")
}

// part reads a header field that holds one name, empty where it is not there.
func (x *exchange) part(field string) (part string, err error) {
	for _, value := range x.header.Values(field) {
		if err := once(&part, field, value); err != nil {
			return "", invalid("%s It is 1 to %d bytes of UTF-8, percent-encoded where it is not plain ASCII.", sentence(err), keystore.PartBytesMax)
		}
	}
	return part, nil
}

// writeGuard says what ties a write of items to a run. The run may come from
// wherever a call's does.
func (x *exchange) writeGuard() (keystore.Guard, error) {
	run := x.claim.run
	if run == keystore.NoPart {
		run = ""
	}
	g := x.guardOf(run)
	if run == "" && (g.Fence != 0 || g.FlowVersion != "") {
		return g, invalid("Counterfoil-Fence and Counterfoil-Flow-Version say something of a run: name it as Counterfoil-Run.")
	}
	return g, nil
}

// requires reads Counterfoil-Requires: calls without whose receipts nothing is
// written.
func (x *exchange) requires() (calls []keystore.Key, err error) {
	for _, value := range x.header.Values("Counterfoil-Requires") {
		for element := range strings.SplitSeq(value, ",") {
			if element = strings.Trim(element, " \t"); !isASCII(element) {
				err = errNotASCII
			}
			var k keystore.Key
			if err == nil {
				k, err = keystore.ParseKey(x.namespace, element)
			}
			if err != nil {
				return nil, invalid("Counterfoil-Requires: %s. Write run:turn:call, each part percent-encoded; several with a comma between them.", err)
			}
			calls = append(calls, k)
		}
	}
	return calls, nil
}
