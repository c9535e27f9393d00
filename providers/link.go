package providers

import (
	"errors"
	"net/url"
	"strings"

	"counterfoil/classify"
)

// linkBytesMax bounds the Link fields that are looked at.
const linkBytesMax = 16 << 10

var (
	errLinkSyntax    = errors.New("the next page's link cannot be read")
	errLinkElsewhere = errors.New("the next page's link leads elsewhere")
)

// nextLink is the target of the link with rel=next (RFC 8288 section 3), "" where
// there is none. It has to lead to the host that was asked: isHere says so of a
// host that is named.
func nextLink(h classify.Header, asked string, isHere func(host string) bool) (string, error) {
	for _, field := range h.Values("Link") {
		if len(field) > linkBytesMax {
			return "", errLinkSyntax
		}
		for field != "" {
			var l link
			var err error
			if l, field, err = cutLink(field); err != nil {
				return "", err
			}
			if l.isNext {
				return l.resolve(asked, isHere)
			}
		}
	}
	return "", nil
}

type link struct {
	target string
	isNext bool
}

// cutLink takes the first link off a list of them.
func cutLink(field string) (l link, rest string, err error) {
	field = strings.TrimLeft(field, " \t,")
	if field == "" {
		return l, "", nil
	}
	if field[0] != '<' {
		return l, "", errLinkSyntax
	}
	target, field, closed := strings.Cut(field[1:], ">")
	if !closed {
		return l, "", errLinkSyntax
	}
	l.target = target
	for {
		field = strings.TrimLeft(field, " \t")
		if field == "" || field[0] == ',' {
			return l, field, nil
		}
		if field[0] != ';' {
			return l, "", errLinkSyntax
		}
		var name, value string
		if name, value, field, err = cutParam(field[1:]); err != nil {
			return l, "", err
		}
		if strings.EqualFold(name, "rel") && !l.isNext {
			l.isNext = hasRelation(value, "next")
		}
	}
}

// cutParam takes one parameter off: a name, and perhaps a token or quoted text.
func cutParam(field string) (name, value, rest string, err error) {
	end := strings.IndexAny(field, "=;,")
	if end < 0 {
		return strings.TrimSpace(field), "", "", nil
	}
	name, rest = strings.TrimSpace(field[:end]), field[end:]
	if rest[0] != '=' {
		return name, "", rest, nil
	}
	rest = strings.TrimLeft(rest[1:], " \t")
	if !strings.HasPrefix(rest, `"`) {
		end := strings.IndexAny(rest+";", ";,")
		return name, strings.TrimSpace(rest[:end]), rest[end:], nil
	}
	for i := 1; i < len(rest); i++ {
		switch rest[i] {
		case '\\':
			i++
		case '"':
			return name, rest[1:i], rest[i+1:], nil
		}
	}
	return "", "", "", errLinkSyntax
}

func hasRelation(list, want string) bool {
	for name := range strings.FieldsSeq(list) {
		if strings.EqualFold(name, want) {
			return true
		}
	}
	return false
}

// resolve returns the link's target on the host that was asked.
func (l link) resolve(asked string, isHere func(host string) bool) (string, error) {
	from, err := url.Parse(asked)
	if err != nil {
		return "", errLinkSyntax
	}
	to, err := url.Parse(l.target)
	if err != nil || to.Opaque != "" {
		return "", errLinkSyntax
	}
	if to.Host != "" && !isHere(strings.ToLower(to.Host)) || to.Scheme != "" && to.Host == "" || to.User != nil {
		return "", errLinkElsewhere
	}
	target := from.ResolveReference(to).RequestURI()
	if len(target) > targetBytesMax || !strings.HasPrefix(target, "/") || strings.HasPrefix(target, "//") || checkSegments(target) != nil {
		return "", errLinkElsewhere
	}
	return target, nil
}
