package classify

import (
	"mime"
	"slices"
	"strconv"
	"strings"
)

// A media is what Content-Type says about a body.
type media struct {
	// whole is the canonical text with every parameter that counts for a body
	// without a canonical form. bare lacks the boundary.
	whole, bare string
	isJSON      bool
	// boundary is "" unless the type is a multipart.
	boundary string
}

func mediaOf(h Header) media {
	fields := 0
	var value string
	for i := range h {
		if strings.EqualFold(h[i].Name, "Content-Type") {
			fields, value = fields+1, h[i].Value
		}
	}
	switch {
	case value == "application/json" && fields == 1:
		return media{whole: value, bare: value, isJSON: true}
	case fields > 1:
		// Which one the provider goes by is anyone's guess.
		return unreadableMedia(h.Values("Content-Type")...)
	case value == "":
		return media{}
	}
	return parseMedia(value)
}

func parseMedia(value string) media {
	kind, params, err := mime.ParseMediaType(value)
	if err != nil {
		return unreadableMedia(value)
	}
	charset := strings.ToLower(params["charset"])
	if charset == "utf-8" {
		delete(params, "charset")
	}
	m := media{whole: mediaText(kind, params)}
	m.bare = m.whole
	m.isJSON = isJSONType(kind) && (charset == "" || charset == "utf-8" || charset == "us-ascii")
	if strings.HasPrefix(kind, "multipart/") {
		m.boundary = params["boundary"]
		delete(params, "boundary")
		m.bare = mediaText(kind, params)
	}
	return m
}

// unreadableMedia stands for a Content-Type that is broken or repeated. It
// differs from every readable one.
func unreadableMedia(values ...string) media {
	var b strings.Builder
	for _, v := range values {
		b.WriteString("?" + strconv.Quote(v))
	}
	return media{whole: b.String(), bare: b.String()}
}

func isJSONType(kind string) bool {
	return kind == "application/json" || strings.HasSuffix(kind, "+json")
}

func mediaText(kind string, params map[string]string) string {
	if len(params) == 0 {
		return kind
	}
	names := make([]string, 0, len(params))
	for name := range params {
		names = append(names, name)
	}
	slices.Sort(names)
	var b strings.Builder
	b.WriteString(kind)
	for _, name := range names {
		b.WriteString(";" + name + "=" + strconv.Quote(params[name]))
	}
	return b.String()
}

// canonBytes guesses how long the canonical form of body will be.
func (m *media) canonBytes(body []byte) int {
	switch {
	case m.isJSON:
		return len(body) + len(body)/4
	case m.boundary != "":
		return len(body) + 64
	}
	return len(m.whole) + 64
}
