package proxy

import (
	"context"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"counterfoil/classify"
	"counterfoil/keystore"
)

func createdOr200(isNew bool) int {
	if isNew {
		return 201
	}
	return 200
}

// readObject reads the body as one object; without a body nothing is read. What
// the readers keep is part of the body, whose memory release gives back.
func (x *exchange) readObject(ctx context.Context, known func(name string) memberReader) (release func(), err error) {
	if coding := x.header.Value("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		return nothing, invalid("Content-Encoding: a store takes bodies as they are, without a coding.")
	}
	body, release, refusal := x.readBody(ctx)
	if refusal != nil {
		return release, &refusalError{refusal}
	}
	x.bodyRead = true
	if body = trimSpace(body); len(body) == 0 {
		return release, nil
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
// may not be: a tag may.
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

// part reads a header field that holds one name, empty where it is not there.
func (x *exchange) part(field string) (part string, err error) {
	for _, value := range x.header.Values(field) {
		if err := once(&part, field, value); err != nil {
			return "", invalid("%s It is 1 to %d bytes of UTF-8, percent-encoded where it is not plain ASCII.", sentence(err), keystore.PartBytesMax)
		}
	}
	return part, nil
}

// fenceOf reads Counterfoil-Fence, 0 where it is not there.
func fenceOf(h classify.Header) (keystore.Fence, error) {
	values := h.Values("Counterfoil-Fence")
	for _, value := range values {
		if n, err := strconv.ParseUint(value, 10, 63); err != nil || n == 0 || value != values[0] {
			return 0, invalid("Counterfoil-Fence is one whole number from 1 up: the fence that the run's lease came with.")
		}
	}
	if len(values) == 0 {
		return 0, nil
	}
	n, err := strconv.ParseUint(values[0], 10, 63)
	return keystore.Fence(n), err
}
