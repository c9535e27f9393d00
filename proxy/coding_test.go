package proxy

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"io"
	"net"
	"strings"
	"testing"

	"counterfoil/classify"
)

func pack(t *testing.T, wrap func(io.Writer) io.WriteCloser, s string) string {
	t.Helper()
	var b bytes.Buffer
	w := wrap(&b)
	if _, err := io.WriteString(w, s); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func gzipped(w io.Writer) io.WriteCloser  { return gzip.NewWriter(w) }
func zlibbed(w io.Writer) io.WriteCloser  { return zlib.NewWriter(w) }
func deflated(w io.Writer) io.WriteCloser { f, _ := flate.NewWriter(w, 6); return f }

// A replay is decoded for a request whose Accept-Encoding rules the stored
// coding out, and is the stored bytes for every other (design 3.3).
func TestReplayDecoded(t *testing.T) {
	plain := strings.Repeat("the plain text ", 200_000)
	noise := noise(3 << 20)
	for _, row := range []struct {
		name, coding, stored, plain string
	}{
		{"gzip", "gzip", pack(t, gzipped, plain), plain},
		{"deflate", "deflate", pack(t, zlibbed, plain), plain},
		{"raw deflate", "deflate", pack(t, deflated, plain), plain},
		{"large", "gzip", pack(t, gzipped, noise), noise},
		{"empty", "gzip", pack(t, gzipped, ""), ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			p := provide(t, func(w net.Conn, _ *heard) {
				say(w, 200, row.stored, "Content-Encoding: "+row.coding, `ETag: "a"`, "Content-Type: text/plain")
			})
			st := start(t, setup{provider: p})
			first := st.post("r", "t", "c", "/tickets/x", "{}", "Accept-Encoding: gzip, deflate")
			if first.body != row.stored {
				t.Fatal("the first answer is not the provider's")
			}
			for _, accept := range []string{"Accept-Encoding: gzip, deflate", "Accept-Encoding: *", "X-None: 1", "Accept-Encoding: " + row.coding + ";q=0.1, identity"} {
				same(t, accept, first, st.post("r", "t", "c", "/tickets/x", "{}", accept))
			}
			for _, accept := range []string{"Accept-Encoding: identity", "Accept-Encoding: br", "Accept-Encoding: " + row.coding + ";q=0, *", "Accept-Encoding: "} {
				g := st.post("r", "t", "c", "/tickets/x", "{}", accept)
				if g.body != row.plain || g.broken || g.value("Content-Encoding") != "" || g.value("ETag") != `W/"a"` || g.outcome() != "replayed" {
					t.Errorf("%s: %d bytes of %d, %q", accept, len(g.body), len(row.plain), g.fields)
				}
			}
			// The provider's own answer is never touched.
			if g := st.post("r", "t", "c2", "/tickets/x", "{}", "Accept-Encoding: identity"); g.body != row.stored || g.value("Content-Encoding") != row.coding {
				t.Errorf("the first answer was decoded: %q", g.fields)
			}
			if n := len(p.hits()); n != 2 {
				t.Errorf("%d requests", n)
			}
		})
	}
}

// noise does not compress.
func noise(n int) string {
	b := make([]byte, n)
	x := uint32(1)
	for i := range b {
		x = x*1664525 + 1013904223
		b[i] = byte(x >> 24)
	}
	return string(b)
}

// What is not the coding it says is passed on as it is; what breaks off while it
// is decoded is cut.
func TestReplayUndecodable(t *testing.T) {
	packed := pack(t, gzipped, noise(100_000))
	bodies := map[string]string{"/junk": "no gzip at all", "/half": packed[:len(packed)/2]}
	p := provide(t, func(w net.Conn, h *heard) { say(w, 200, bodies[h.target()], "Content-Encoding: gzip") })
	st := start(t, setup{provider: p})
	for target, body := range bodies {
		st.post("r", "t", target, "/tickets"+target, "{}")
		g := st.post("r", "t", target, "/tickets"+target, "{}", "Accept-Encoding: identity")
		switch target {
		case "/junk":
			if g.body != body || g.value("Content-Encoding") != "gzip" {
				t.Errorf("junk became %q", g.body)
			}
		case "/half":
			if !g.broken {
				t.Errorf("%d bytes ended cleanly", len(g.body))
			}
		}
	}
}

func TestAccepts(t *testing.T) {
	for value, want := range map[string]bool{
		"gzip": true, "GZIP": true, "x-gzip": true, "gzip;q=0": false, "gzip; q=0.0": false, "gzip;q=0.001": true, "*": true, "*;q=0": false,
		"*;q=0, gzip": true, "identity": false, "br, deflate": false, "": false, "gzip;q=x": true,
	} {
		h := classify.Header{{Name: "Accept-Encoding", Value: value}}
		if got := accepts(h, "gzip"); got != want {
			t.Errorf("%q: %v", value, got)
		}
	}
	if !accepts(nil, "gzip") {
		t.Error("without the field, nothing is ruled out")
	}
	two := classify.Header{{Name: "accept-encoding", Value: "br"}, {Name: "Accept-Encoding", Value: "gzip"}}
	if !accepts(two, "gzip") {
		t.Error("the second line does not count")
	}
}
