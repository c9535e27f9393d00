package fake

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// slackPageMax is the largest page of messages.
const slackPageMax = 999

// slack is https://docs.slack.dev/reference/methods: errors come in a 200, and
// nothing is deduplicated.
type slack struct{ ledger *Ledger }

// slackArguments are a method's, out of a form, JSON or the query.
type slackArguments map[string]any

func newSlack(l *Ledger) http.Handler {
	s := &slack{l}
	l.Put("channel", map[string]any{"id": "C1", "name": "general"})
	mux := http.NewServeMux()
	for _, root := range []string{"services", "workflows", "triggers"} {
		mux.HandleFunc("POST /"+root+"/", s.webhook)
	}
	mux.HandleFunc("/api/{method}", s.call)
	return mux
}

// webhook answers text. The address is all the proof there is.
func (s *slack) webhook(w http.ResponseWriter, r *http.Request) {
	text, _ := io.ReadAll(r.Body) // it is in memory
	s.ledger.Add("webhook", map[string]any{"path": r.URL.Path, "payload": string(text)})
	_, _ = io.WriteString(w, "ok")
}

func (s *slack) call(w http.ResponseWriter, r *http.Request) {
	a, ok := readSlack(r)
	if !ok {
		slackFail(w, "invalid_form_data")
		return
	}
	if a.text("token") == "" && !strings.HasPrefix(r.Header.Get("Authorization"), "Bearer xox") {
		slackFail(w, "not_authed")
		return
	}
	answers := map[string]func(slackArguments) (map[string]any, string){
		"auth.test": s.nothing, "api.test": s.nothing, "chat.postMessage": s.post, "chat.update": s.update, "chat.delete": s.remove,
		"reactions.add": s.react, "conversations.history": s.history, "conversations.replies": s.replies,
		"conversations.create": s.createChannel, "pins.add": s.pin,
	}
	do := answers[r.PathValue("method")]
	if do == nil {
		slackFail(w, "unknown_method")
		return
	}
	answer, failure := do(a)
	if failure != "" {
		slackFail(w, failure)
		return
	}
	answer["ok"] = true
	writeJSON(w, 200, answer)
}

func slackFail(w http.ResponseWriter, code string) {
	writeJSON(w, 200, map[string]any{"ok": false, "error": code})
}

func readSlack(r *http.Request) (slackArguments, bool) {
	a := slackArguments{}
	for name, values := range r.URL.Query() {
		a[name] = values[0]
	}
	if strings.HasPrefix(r.Header.Get("Content-Type"), "application/json") {
		object, ok := readJSON(r)
		for name := range object {
			a[name] = object[name]
		}
		return a, ok
	}
	form, _ := readForm(r) // there may be none
	for name, values := range form {
		a[name] = values[0]
		var object map[string]any
		if name == "metadata" && json.Unmarshal([]byte(values[0]), &object) == nil {
			a[name] = object
		}
	}
	return a, true
}

func (a slackArguments) text(name string) string {
	if a[name] == nil {
		return ""
	}
	return fmt.Sprint(a[name])
}

func (s *slack) nothing(slackArguments) (map[string]any, string) { return map[string]any{}, "" }

// channel is the id of a channel, of which posting takes the name too.
func (s *slack) channel(name string) string {
	for _, c := range s.ledger.List("channel") {
		if c["id"] == name || "#"+fmt.Sprint(c["name"]) == name {
			return fmt.Sprint(c["id"])
		}
	}
	return ""
}

func (s *slack) post(a slackArguments) (map[string]any, string) {
	channel := s.channel(a.text("channel"))
	switch metadata := a["metadata"].(type) {
	case nil:
	case map[string]any:
		if metadata["event_type"] == nil || metadata["event_payload"] == nil {
			return nil, "invalid_metadata_format"
		}
	default:
		return nil, "invalid_metadata_format"
	}
	if channel == "" {
		return nil, "channel_not_found"
	}
	if a.text("text") == "" && a["blocks"] == nil {
		return nil, "no_text"
	}
	ts := fmt.Sprintf("%d.%06d", s.ledger.Now().Unix(), s.ledger.Next())
	message := map[string]any{"type": "message", "text": a.text("text"), "ts": ts, "bot_id": "B1"}
	stored := map[string]any{"id": ts, "channel": channel, "message": message, "thread_ts": a.text("thread_ts"), "metadata": a["metadata"]}
	s.ledger.Add("message", stored)
	return map[string]any{"channel": channel, "ts": ts, "message": message}, ""
}

func (s *slack) update(a slackArguments) (map[string]any, string) {
	changed := s.ledger.Change("message", a.text("ts"), func(o map[string]any) {
		o["message"].(map[string]any)["text"] = a.text("text")
	})
	if changed == nil {
		return nil, "message_not_found"
	}
	return map[string]any{"channel": changed["channel"], "ts": a.text("ts"), "text": a.text("text")}, ""
}

func (s *slack) remove(a slackArguments) (map[string]any, string) {
	if !s.ledger.Remove("message", a.text("ts")) {
		return nil, "message_not_found"
	}
	return map[string]any{"channel": a.text("channel"), "ts": a.text("ts")}, ""
}

func (s *slack) react(a slackArguments) (map[string]any, string) {
	id := a.text("timestamp") + " " + a.text("name")
	if s.ledger.Get("reaction", id) != nil {
		return nil, "already_reacted"
	}
	s.ledger.Add("reaction", map[string]any{"id": id})
	return map[string]any{}, ""
}

func (s *slack) createChannel(a slackArguments) (map[string]any, string) {
	if s.channel("#"+a.text("name")) != "" {
		return nil, "name_taken"
	}
	return map[string]any{"channel": s.ledger.Add("channel", map[string]any{"name": a.text("name")})}, ""
}

func (s *slack) pin(a slackArguments) (map[string]any, string) {
	s.ledger.Add("pin", map[string]any{"of": a.text("timestamp")})
	return map[string]any{}, ""
}

func (s *slack) history(a slackArguments) (map[string]any, string) {
	return s.page(a, func(m map[string]any) bool { return m["thread_ts"] == "" })
}

func (s *slack) replies(a slackArguments) (map[string]any, string) {
	return s.page(a, func(m map[string]any) bool { return m["id"] == a.text("ts") || m["thread_ts"] == a.text("ts") })
}

// page shows the newest messages of a channel first. Without
// include_all_metadata the payload of metadata is left out.
func (s *slack) page(a slackArguments, shows func(map[string]any) bool) (map[string]any, string) {
	if s.ledger.Get("channel", a.text("channel")) == nil {
		return nil, "channel_not_found" // a name is no id
	}
	all := s.ledger.Visible("message")
	slices.Reverse(all)
	found := []any{}
	for _, m := range all {
		if m["channel"] == a.text("channel") && fmt.Sprint(m["id"]) >= a.text("oldest") && shows(m) {
			found = append(found, slackShown(m, a.text("include_all_metadata") == "true"))
		}
	}
	from, _ := strconv.Atoi(a.text("cursor"))
	limit, err := strconv.Atoi(a.text("limit"))
	if err != nil || limit < 1 || limit > slackPageMax {
		limit = 100
	}
	from = min(from, len(found))
	to, next := min(from+limit, len(found)), ""
	if to < len(found) {
		next = strconv.Itoa(to)
	}
	return map[string]any{"messages": found[from:to], "has_more": next != "", "response_metadata": map[string]any{"next_cursor": next}}, ""
}

// slackShown is a message as lists show it.
func slackShown(m map[string]any, whole bool) map[string]any {
	message := m["message"].(map[string]any)
	if metadata, ok := m["metadata"].(map[string]any); ok {
		if !whole {
			metadata = map[string]any{"event_type": metadata["event_type"]}
		}
		message["metadata"] = metadata
	}
	return message
}

// Slack is Slack's Web API and its webhooks.
func Slack() Spec {
	header := http.Header{"Authorization": {"Bearer xoxb-1"}, "Content-Type": {"application/json; charset=utf-8"}}
	form := http.Header{"Authorization": {"Bearer xoxb-1"}, "Content-Type": {"application/x-www-form-urlencoded"}}
	message := func(ts string) func(l *Ledger) {
		return func(l *Ledger) {
			l.Put("message", map[string]any{"id": ts, "channel": "C1", "thread_ts": "", "message": map[string]any{"ts": ts, "text": "old"}})
		}
	}
	sent := ".ok, .channel, .ts, .message.text"
	return Spec{Adapter: "slack", New: newSlack, Reads: slackReads, Cases: []Case{
		{Operation: "chat.postMessage", Method: "POST", Target: "/api/chat.postMessage", Header: header, Body: `{"channel":"C1","text":"hello"}`, Recovered: "[" + sent + "]"},
		{Operation: "chat.postMessage", Method: "POST", Target: "/api/chat.postMessage", Header: form, Body: "channel=C1&text=hello", Recovered: "[" + sent + "]"},
		{Operation: "chat.postMessage", Method: "POST", Target: "/api/chat.postMessage", Header: header, Body: `{"channel":"C1","text":"a reply","thread_ts":"1.000001","metadata":{"event_type":"mine","event_payload":{"a":1}}}`, Setup: message("1.000001"), Recovered: "[" + sent + "]"},
		{Operation: "chat.update", Method: "POST", Target: "/api/chat.update", Header: header, Body: `{"channel":"C1","ts":"1.000002","text":"new"}`, Setup: message("1.000002"), Deduplicates: true},
		{Operation: "chat.delete", Method: "POST", Target: "/api/chat.delete", Header: header, Body: `{"channel":"C1","ts":"1.000003"}`, Setup: message("1.000003"), Recovered: ".none", Deduplicates: true},
		{Operation: "reactions.add", Method: "POST", Target: "/api/reactions.add", Header: header, Body: `{"channel":"C1","timestamp":"1.000001","name":"tada"}`, Recovered: ".none", Deduplicates: true},
		{Operation: "webhook", Method: "POST", Target: "/services/T1/B1/secret", Header: http.Header{"Content-Type": {"application/json"}}, Body: `{"text":"hello"}`},
		{Operation: "workflow.trigger", Method: "POST", Target: "/workflows/T1/A1/1/secret", Header: http.Header{"Content-Type": {"application/json"}}, Body: `{"text":"hello"}`},
		{Operation: "trigger", Method: "POST", Target: "/triggers/T1/1/secret", Header: http.Header{"Content-Type": {"application/json"}}, Body: `{"text":"hello"}`},
		{Operation: "other", Method: "POST", Target: "/api/pins.add", Header: header, Body: `{"channel":"C1","timestamp":"1.000001"}`},
		{Operation: "other", Method: "POST", Target: "/api/conversations.create", Header: header, Body: `{"name":"new"}`, Deduplicates: true},
	}}
}

// slackReads goes by the last part of a method's name.
func slackReads(r *http.Request, _ []byte) bool {
	name := r.URL.Path[strings.LastIndexByte(r.URL.Path, '.')+1:]
	return slices.Contains([]string{"list", "info", "history", "replies", "members", "test"}, name)
}
