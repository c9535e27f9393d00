package providers

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"counterfoil/classify"

	"go.yaml.in/yaml/v3"
)

// A Stamp is a value of ours that a request bears: the key, an id that the
// caller chooses, or a marker.
type Stamp struct {
	Placement
	// Format is "" for the provider key itself, uuid for a UUID of the same bits,
	// or a text in which {marker} stands for it.
	Format string
	// Max is how many bytes it may have; 0 is any number.
	Max int
	// With are values that are set beside it where there are none: JSON pointers
	// or names in the same kind of place.
	With []Beside
	// Only are the media types that it is for: json, form or multipart; any if
	// empty.
	Only []string
	// IfAbsent says that the stamp fits only a request that has nothing there.
	IfAbsent bool

	// shape is what a marker looks like where it stands.
	shape *regexp.Regexp
}

// isOn reports whether a request bears a marker of ours there, of any call.
func (s *Stamp) isOn(r *classify.Request, c Content) bool {
	text, there := s.value(r, c)
	return there && s.shape != nil && s.shape.MatchString(text)
}

// shapeOf is what the stamp's values look like, with what is appended around them.
func (s *Stamp) shapeOf() *regexp.Regexp {
	const key, uuid = `[0-9a-v]{24}`, `[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`
	value := key
	switch s.Format {
	case "":
	case formatUUID:
		value = uuid
	default:
		value = strings.ReplaceAll(regexp.QuoteMeta(s.Format), `\{marker\}`, key)
	}
	if s.Append == "" {
		return regexp.MustCompile(`^` + value + `$`)
	}
	return regexp.MustCompile(strings.ReplaceAll(regexp.QuoteMeta(s.Append), `\{marker\}`, value))
}

// A Beside is a fixed value that stands beside others.
type Beside struct {
	Name, Value string
	// IsLiteral says that Value was written as a number, true or false, and not as
	// text.
	IsLiteral bool
}

const formatUUID = "uuid"

// UUID returns the UUID (RFC 9562 section 5.4, version 4) that is made of the
// bits of a provider key: 24 characters of base32hex. Other text gives the UUID
// of what its characters have in common with one: nothing.
func UUID(key string) string {
	var bits [16]byte
	at := 0
	put := func(bit byte) {
		// The four bits of the version and the two of the variant are fixed.
		for at == 48 || at == 49 || at == 50 || at == 51 || at == 64 || at == 65 {
			at++
		}
		if at < 128 {
			bits[at/8] |= bit << (7 - at%8)
			at++
		}
	}
	for i := range min(len(key), 24) {
		v := strings.IndexByte("0123456789abcdefghijklmnopqrstuv", key[i])
		for shift := 4; shift >= 0; shift-- {
			put(byte(max(v, 0)>>shift) & 1)
		}
	}
	bits[6] |= 0x40
	bits[8] |= 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", bits[0:4], bits[4:6], bits[6:8], bits[8:10], bits[10:])
}

var uuidText = regexp.MustCompile(`^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$`)

// render returns what the stamp says of a call. Own is a key that the client
// chose; it counts where it has the form that is asked for.
func (s *Stamp) render(own, marker string) string {
	fits := own != "" && (s.Max == 0 || len(own) <= s.Max) && (s.Format == "" || s.Format == formatUUID && uuidText.MatchString(own))
	switch {
	case fits:
		return own
	case s.Format == formatUUID:
		return UUID(marker)
	case s.Format != "":
		return strings.ReplaceAll(s.Format, "{marker}", marker)
	}
	return marker
}

// isFor reports whether the request's media type is one of Only.
func (s *Stamp) isFor(r *classify.Request) bool {
	if len(s.Only) == 0 {
		return true
	}
	t := mediaType(r.Header)
	kind := ""
	switch {
	case t == formType:
		kind = "form"
	case t == "multipart/form-data":
		kind = "multipart"
	case strings.HasSuffix(t, "/json") || strings.HasSuffix(t, "+json"):
		kind = "json"
	}
	return slices.Contains(s.Only, kind)
}

func (s *Stamp) put(r *classify.Request, c Content, value string) (classify.Request, error) {
	out, err := s.place(r, c, value)
	if err != nil {
		return out, fmt.Errorf("placing %s: %w", s.Placement.String(), err)
	}
	for _, b := range s.With {
		beside := s.beside(b)
		if _, there := beside.value(&out, c); there {
			continue
		}
		if out, err = beside.placeFixed(&out, c, b); err != nil {
			return out, fmt.Errorf("placing %s beside %s: %w", b.Name, s.Placement.String(), err)
		}
	}
	return out, nil
}

// beside is where a value goes that stands beside the stamp.
func (s *Stamp) beside(b Beside) *Placement {
	p := &Placement{Place: s.Place, Name: b.Name, Create: s.Create}
	if s.Place == "form_json" {
		p.Name, p.At = s.Name, b.Name
	}
	return p
}

// placeFixed places a fixed value, in JSON as it was written.
func (p *Placement) placeFixed(r *classify.Request, c Content, b Beside) (classify.Request, error) {
	if p.Place != "json" || !b.IsLiteral {
		return p.place(r, c, b.Value)
	}
	out := *r
	body, err := p.set(r.Body, classify.SplitPointer(p.Name), []byte(b.Value))
	out.Body = body
	return out, err
}

// jsonLiteral is what YAML and JSON write alike.
var jsonLiteral = regexp.MustCompile(`^(true|false|-?(0|[1-9][0-9]{0,14})(\.[0-9]{1,15})?)$`)

// Stamps are what a request bears of ours.
type Stamps struct {
	// Key is the provider key, or the client's own; after Stamp it is what was
	// placed, or adopted. Marker is the call's provider key always: no client's
	// choice is hard enough to guess.
	Key, Marker string
}

// Stamp returns a copy of r that bears what the operation says, and what was
// placed as its key. It fails where the key cannot go where it must: nothing may
// be sent then. A marker that cannot go there is left out, and lookups that need
// it are not tried.
func (rd *Reading) Stamp(r *classify.Request, s Stamps) (classify.Request, Stamps, error) {
	op := rd.Operation
	if op == nil {
		if rd.Passes() {
			return *r, s, nil
		}
		out, err := DefaultKey().Place(r, s.Key)
		return out, s, err
	}
	out, placed := *r, s
	var err error
	own := s.Key
	if own == s.Marker {
		own = ""
	}
	if op.Key != nil {
		placed.Key = op.Key.render(own, s.Marker)
		if out, err = op.Key.put(&out, rd.Content, placed.Key); err != nil {
			return classify.Request{}, s, err
		}
	}
	if op.ClientID != nil {
		id, adopted := op.ClientID.value(&out, rd.Content)
		if !adopted || id == "" {
			id = op.ClientID.render("", s.Marker)
			if out, err = op.ClientID.put(&out, rd.Content, id); err != nil {
				return classify.Request{}, s, err
			}
		}
		if op.Key == nil {
			placed.Key = id
		}
	}
	if m, marked := rd.mark(&out, s.Marker); m != nil {
		out = marked
	}
	return out, placed, nil
}

// mark returns the request with the first marker that fits it; nil if none does.
func (rd *Reading) mark(r *classify.Request, marker string) (*Stamp, classify.Request) {
	for i := range rd.Operation.Markers {
		m := &rd.Operation.Markers[i]
		if !m.isFor(r) {
			continue
		}
		if _, there := m.value(r, rd.Content); m.IfAbsent && there && !m.isOn(r, rd.Content) {
			continue
		}
		if marked, err := m.put(r, rd.Content, m.render("", marker)); err == nil {
			return m, marked
		}
	}
	return nil, classify.Request{}
}

// markerFor is the marker that fits the request, nil if none does.
func (rd *Reading) markerFor(r *classify.Request) *Stamp {
	m, _ := rd.mark(r, sampleMarker)
	return m
}

const sampleMarker = "000000000000000000000000"

// id is what the operation's client id is in a recorded request.
func (rd *Reading) id(r *classify.Request) string {
	if rd.Operation == nil || rd.Operation.ClientID == nil || r == nil {
		return ""
	}
	id, _ := rd.Operation.ClientID.value(r, rd.Content)
	return id
}

// Print returns r as its fingerprint is to be taken: as its dialect has it, and
// with one fixed value in place of any key that an SDK invents anew for each
// process.
func (rd *Reading) Print(r *classify.Request) *classify.Request {
	if rd.Operation != nil && rd.Operation.Key != nil && rd.Operation.Key.Place != "header" {
		k := rd.Operation.Key
		if out, err := k.place(r, rd.Content, k.render("", sampleMarker)); err == nil {
			r = &out
		}
	}
	if p, ok := rd.Content.(Printer); ok {
		return p.Print(r)
	}
	return r
}

// stamp reads one stamp.
func (l *loader) stamp(p place, what string) *Stamp {
	f, ok := l.mapping(p, "place", "name", "at", "format", "max", "create", "append", "only", "with", "if_absent")
	if !ok {
		return nil
	}
	s := &Stamp{Max: l.integer(f["max"], 0, 8, 10_000), Only: l.texts(f["only"], "one of json, form, multipart")}
	s.Create, s.IfAbsent = l.truth(f["create"]), l.truth(f["if_absent"])
	s.Place, _ = l.required(f["place"], "one of header, query, form, json, form_json, multipart, argument, directive, mime_header")
	s.Name, _ = l.required(f["name"], "name the header, parameter, field or JSON pointer that takes the "+what)
	s.At, _ = l.text(f["at"])
	s.Append, _ = l.text(f["append"])
	s.Format, _ = l.text(f["format"])
	s.With = l.besides(f["with"])
	if what != "marker" {
		for _, name := range []string{"only", "if_absent", "append"} {
			if f[name].given() {
				l.complain(f[name], "means something for markers only: without its %s a request would not be sent; leave it out", what)
			}
		}
	}
	for i, kind := range s.Only {
		if !slices.Contains([]string{"json", "form", "multipart"}, kind) {
			l.complain(f["only"], "entry %d: %q is none of json, form, multipart", i+1, kind)
		}
	}
	l.checkStamp(s, f, what)
	return s
}

func (l *loader) besides(p place) []Beside {
	if !p.given() {
		return nil
	}
	var list []Beside
	for _, f := range l.pairs(p) {
		if f.value().Kind != yaml.ScalarNode {
			l.complain(f, "must be a single value, not %s", kindOf(f.value()))
			continue
		}
		v := f.value()
		list = append(list, Beside{f.name, v.Value, v.ShortTag() != "!!str" && jsonLiteral.MatchString(v.Value)})
	}
	return list
}

func (l *loader) checkStamp(s *Stamp, f map[string]place, what string) {
	i := slices.IndexFunc(places, func(k struct {
		name    string
		needsAt bool
	}) bool {
		return k.name == s.Place
	})
	if s.inDialect() {
		l.needsDialect(f["place"], "graphql")
	}
	switch {
	case s.Place == "":
	case i < 0:
		l.complain(f["place"], "%q is no place for a %s; use header, query, form, json, form_json, multipart, argument, directive or mime_header", s.Place, what)
	case places[i].needsAt != (s.At != ""):
		l.complain(f["at"], "%s", map[bool]string{true: "missing; say what inside it takes the " + what, false: "means something for form_json, directive and mime_header only; leave it out"}[places[i].needsAt])
	}
	if where := slices.Index(whereNames[:], s.Place); where > 0 && s.Name != "" {
		l.keyName(f["name"], KeyPlacement{Where(where), s.Name})
	}
	l.checkStampTexts(s, f, what)
	s.shape = s.shapeOf()
}

// checkStampTexts checks what a stamp writes, and where inside a text.
func (l *loader) checkStampTexts(s *Stamp, f map[string]place, what string) {
	field, pointer := "name", s.Name
	if s.Place == "form_json" {
		field, pointer = "at", s.At
	}
	if pointer != "" && (s.Place == "mime_header" || s.Place == "form_json") {
		if err := classify.CheckPointer(pointer); err != nil {
			l.complain(f[field], "%v", err)
		}
	}
	if s.Format != "" && s.Format != formatUUID && !strings.Contains(s.Format, "{marker}") {
		l.complain(f["format"], "%q is no format; write uuid, or a text with {marker} in it", s.Format)
	}
	if made := len(s.render("", sampleMarker)); s.Max != 0 && made > s.Max {
		l.complain(f["max"], "is less than the %d bytes of our own %s; the provider would refuse it, or cut it off", made, what)
	}
	if s.Append != "" && !strings.Contains(s.Append, "{marker}") {
		l.complain(f["append"], "would append the same text to every request; write {marker} in it")
	}
	if s.Append != "" && !slices.Contains([]string{"json", "form", "multipart", "argument"}, s.Place) {
		l.complain(f["append"], "text can be appended in json, form, multipart and argument only")
	}
}

// stamps reads one stamp or a list of them.
func (l *loader) stamps(p place, what string) []Stamp {
	if !p.given() {
		return nil
	}
	items := []place{p}
	if p.value().Kind == yaml.SequenceNode {
		items = l.list(p)
	}
	var list []Stamp
	for _, item := range items {
		if s := l.stamp(item, what); s != nil {
			list = append(list, *s)
		}
	}
	return list
}

func describeStamp(s *Stamp) string {
	if s == nil {
		return "none"
	}
	return s.Placement.String() + cmp.Or(map[bool]string{true: ", " + s.Format}[s.Format != ""], "")
}
