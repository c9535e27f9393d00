package proxy

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"counterfoil/internal/journal"
	"counterfoil/internal/view"
)

func read[T any](t *testing.T, g *got) T {
	t.Helper()
	var v T
	if g.status != 200 || g.value("Content-Type") != "application/json" {
		t.Fatalf("%d %q %s", g.status, g.fields, g.body)
	}
	dec := json.NewDecoder(strings.NewReader(g.body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&v); err != nil {
		t.Fatalf("%s: %v", g.body, err)
	}
	return v
}

// C10: an agent that lost its memory finds what was done, with status, time,
// digest and body, and repeats nothing.
func TestC10WhatWasDone(t *testing.T) {
	p := provide(t, func(w net.Conn, _ *heard) {
		say(w, 201, `{"id":"e-1"}`, "Content-Type: application/json", "Set-Cookie: s3cret=1", "X-Mine: a")
	})
	st := start(t, setup{provider: p})
	before := time.Now().UTC().Add(-time.Second)
	first := st.post("R1", "1", "1", "/tickets/x?token=s3cret&a=b", "{}", "Authorization: Bearer s3cret")
	run := read[view.Run](t, st.get("/-/v1/runs/R1"))
	if run.Run != "R1" || run.State != "active" || run.Totals["succeeded"] != 1 || len(run.Totals) != 1 || len(run.Calls.Items) != 1 || run.CreatedAt.Before(before) {
		t.Fatalf("%+v", run)
	}
	c := run.Calls.Items[0]
	sum := sha256.Sum256([]byte(first.body))
	r := c.Receipt
	if c.State != "succeeded" || c.Class != "effect" || c.Method != "POST" || c.Upstream != "tickets" || c.Key != first.value("Counterfoil-Key") || r == nil {
		t.Fatalf("%+v", c)
	}
	if r.Status != 201 || r.Body != first.body || r.BodyBytes != 12 || r.BodySHA256 != hex.EncodeToString(sum[:]) || r.SettledAt.Before(before) || r.Source != "answer" {
		t.Errorf("%+v", r)
	}
	if len(c.Attempts) != 1 || c.AttemptsMade != 1 || c.Attempts[0].Status != 201 || c.Attempts[0].Evidence != "answered" || c.Attempts[0].Outcome != "applied" {
		t.Errorf("%+v", c.Attempts)
	}
	if same := read[view.Call](t, st.get("/-/v1/runs/R1/turns/1/calls/1")); same.Key != c.Key || same.State != c.State {
		t.Errorf("%+v", same)
	}
	receipt := st.get(r.URL)
	if receipt.status != 201 || receipt.body != first.body || receipt.value("X-Mine") != "a" || receipt.value("Set-Cookie") != "" || receipt.outcome() != "replayed" {
		t.Errorf("receipt: %d %q %s", receipt.status, receipt.fields, receipt.body)
	}
	for _, g := range []*got{st.get("/-/v1/runs/R1"), receipt} {
		if strings.Contains(g.body+strings.Join(g.fields, "\n"), "s3cret") {
			t.Errorf("a secret is shown: %q %s", g.fields, g.body)
		}
	}
	if again := st.post("R1", "1", "1", "/tickets/x?token=s3cret&a=b", "{}", "Authorization: Bearer s3cret"); again.body != first.body || len(p.hits()) != 1 {
		t.Errorf("%s, %d requests", again.outcome(), len(p.hits()))
	}
}

func TestAPIPagesAndEncoding(t *testing.T) {
	p := provide(t, created)
	st := start(t, setup{provider: p})
	run := "a run/ü:1"
	for i := range 5 {
		st.post("a%20run%2F%C3%BC%3A1", "..", fmt.Sprint(i), "/tickets/x", "{}")
	}
	base := "/-/v1/runs/" + url.PathEscape(run)
	var seen []string
	for after := ""; ; {
		l := read[view.List[*view.Call]](t, st.get(base+"/calls?limit=2&after="+url.QueryEscape(after)))
		for _, c := range l.Items {
			seen = append(seen, c.Call)
			if got := read[view.Call](t, st.get(strings.TrimSuffix(c.Receipt.URL, "/receipt"))); got.Call != c.Call || got.Run != run || got.Turn != ".." {
				t.Errorf("%+v", got)
			}
		}
		if after = l.Next; after == "" {
			break
		}
	}
	if strings.Join(seen, "") != "01234" {
		t.Errorf("pages gave %q", seen)
	}
	if r := read[view.Run](t, st.get(base+"?limit=1")); len(r.Calls.Items) != 1 || r.Calls.Next == "" || r.Totals["succeeded"] != 5 {
		t.Errorf("%+v", r)
	}
}

func TestAPIRefusals(t *testing.T) {
	p := provide(t, func(w net.Conn, h *heard) {
		if h.target() == "/die" {
			_ = w.Close()
			return
		}
		created(w, h)
	})
	st := start(t, setup{provider: p, proxy: func(c *Config) { c.AdminURL = "http://127.0.0.1:8101/" }})
	st.post("r", "1", "1", "/tickets/x", "{}")
	for _, path := range []string{"/-/v1", "/-/", "/-", "/-/v1/runs/", "/-/v1/runs/r/", "/-/v2/runs/r", "/-/v1/runs/none", "/-/v1/runs/none/calls", "/-/v1/runs/r/turns/1/calls/2",
		"/-/v1/runs/r/turns/1/calls/2/receipt", "/-/v1/runs/r/turns/1", "/-/v1/runs/r/x", "/-/v1/runs/r/turns/1/calls/1/x", "/-/v1/runs/r/turns/1/calls/1/receipt/x"} {
		st.get(path).isProblem(t, NotFound)
	}
	for _, path := range []string{"/-/v1/runs/%zz", "/-/v1/runs/" + strings.Repeat("a", 257)} {
		st.get(path).isProblem(t, InvalidKey)
	}
	for _, query := range []string{"?limit=0", "?limit=1001", "?limit=x", "?limit=-1", "?%zz"} {
		st.get("/-/v1/runs/r/calls"+query).isProblem(t, journal.InvalidRequest)
	}
	g := ask(t, st.addr, request("POST", "/-/v1/runs/r", "{}"))
	if g.isProblem(t, MethodNotAllowed); g.value("Allow") != "GET, HEAD, PUT" {
		t.Errorf("Allow: %q", g.value("Allow"))
	}
	if g := ask(t, st.addr, request("HEAD", "/-/v1/runs/r", "")); g.status != 200 || g.value("Content-Length") == "0" {
		t.Errorf("HEAD: %+v", g)
	}
	// A call that is unknown has no receipt, pauses its run, and says where to
	// act.
	d := st.post("r", "1", "3", "/tickets/die", "{}").isProblem(t, journal.UnknownOutcome)
	if !strings.HasPrefix(d.Instance, "http://127.0.0.1:8101/?") || !strings.Contains(d.Instance, "call=r%3A1%3A3") {
		t.Errorf("instance %q", d.Instance)
	}
	if d := st.post("r", "1", "4", "/tickets/x", "{}").isProblem(t, journal.RunPaused); d.Instance != "http://127.0.0.1:8101/api/v1/runs/r?namespace=default" {
		t.Errorf("instance %q", d.Instance)
	}
	if d := st.get("/-/v1/runs/r/turns/1/calls/3/receipt").isProblem(t, NotFound); !strings.Contains(d.Detail, "unknown") {
		t.Errorf("%+v", d)
	}
	if r := read[view.Run](t, st.get("/-/v1/runs/r")); r.State != "paused" || r.Totals["unknown"] != 1 {
		t.Errorf("%+v", r)
	}
	c := read[view.Call](t, st.get("/-/v1/runs/r/turns/1/calls/3"))
	if c.State != "unknown" || c.Receipt != nil || len(c.History) == 0 || c.Attempts[0].Evidence != "lost" {
		t.Errorf("%+v", c)
	}
}

// The receipt of a large body is streamed, and one that was not kept says so.
func TestAPILargeReceipt(t *testing.T) {
	body := noise(5 << 20)
	p := provide(t, func(w net.Conn, h *heard) {
		if h.target() == "/huge" {
			_, _ = io.WriteString(w, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
			for range 65 {
				chunk(w, strings.Repeat("x", 1<<20))
			}
			_, _ = io.WriteString(w, "0\r\n\r\n")
			return
		}
		say(w, 200, body)
	})
	st := start(t, setup{provider: p})
	st.post("r", "1", "1", "/tickets/x", "{}")
	if g := st.get("/-/v1/runs/r/turns/1/calls/1/receipt"); g.body != body {
		t.Errorf("%d: %d bytes", g.status, len(g.body))
	}
	if first := st.post("r", "1", "2", "/tickets/huge", "{}"); len(first.body) != 65<<20 || first.broken {
		t.Fatalf("%d: %d bytes", first.status, len(first.body))
	}
	for _, g := range []*got{st.post("r", "1", "2", "/tickets/huge", "{}"), st.get("/-/v1/runs/r/turns/1/calls/2/receipt")} {
		d := g.isProblem(t, journal.BodyNotKept)
		if d.UpstreamStatus != 200 || d.SafeNewKey || d.SafeToRetry {
			t.Errorf("%+v", d)
		}
	}
	c := read[view.Call](t, st.get("/-/v1/runs/r/turns/1/calls/2"))
	if !c.Receipt.BodyMissing || c.Receipt.BodyBytes != 65<<20 || len(c.Receipt.BodySHA256) != 64 {
		t.Errorf("%+v", c.Receipt)
	}
}
