package fake

import (
	"fmt"
	"net/http"
	"strings"
	"time"
)

// PagerDuty is events and incidents.
func PagerDuty() Spec {
	return Spec{Adapter: "pagerduty", New: func(l *Ledger) http.Handler {
		mux := http.NewServeMux()
		mux.HandleFunc("POST /incidents", func(w http.ResponseWriter, r *http.Request) {
			incident, _ := readAny(r)["incident"].(map[string]any)
			writeJSON(w, 201, map[string]any{"incident": l.Add("incidents", fielded(incident, map[string]any{"status": "triggered"}))})
		})
		mux.HandleFunc("GET /incidents", func(w http.ResponseWriter, r *http.Request) {
			list := []any{}
			for _, i := range l.Visible("incidents") {
				if i["incident_key"] == r.URL.Query().Get("incident_key") {
					list = append(list, i)
				}
			}
			writeJSON(w, 200, map[string]any{"incidents": list, "more": false})
		})
		mux.HandleFunc("POST /incidents/{incident}/notes", func(w http.ResponseWriter, r *http.Request) {
			note, _ := readAny(r)["note"].(map[string]any)
			writeJSON(w, 200, map[string]any{"note": l.Add(r.URL.Path, map[string]any{"content": note["content"]})})
		})
		mux.HandleFunc("GET /incidents/{incident}/notes", func(w http.ResponseWriter, r *http.Request) {
			writeJSON(w, 200, map[string]any{"notes": l.Visible(r.URL.Path)})
		})
		return &rest{ledger: l, routes: mux, sets: func(r *http.Request, in map[string]any) bool {
			return r.Method == http.MethodPut || in["event_action"] == "acknowledge" || in["event_action"] == "resolve"
		}, answer: func(_ *http.Request, o map[string]any) (int, any) {
			return 202, map[string]any{"status": "success", "dedup_key": orNone(o["dedup_key"])}
		}}
	}, Cases: []Case{
		{Operation: "events.trigger", Method: "POST", Target: "/v2/enqueue", Header: asJSON(), Body: `{"routing_key":"secret","event_action":"trigger","payload":{"summary":"x"}}`},
		{Operation: "events.settle", Method: "POST", Target: "/v2/enqueue", Header: asJSON(), Body: `{"routing_key":"secret","event_action":"resolve","dedup_key":"d"}`, Deduplicates: true},
		{Operation: "events.change", Method: "POST", Target: "/v2/change/enqueue", Header: asJSON(), Body: `{"routing_key":"secret"}`},
		{Operation: "incidents.create", Method: "POST", Target: "/incidents", Header: asJSON(), Body: `{"incident":{"title":"x"}}`},
		{Operation: "notes.create", Method: "POST", Target: "/incidents/I1/notes", Header: asJSON(), Body: `{"note":{"content":"x"}}`},
		{Operation: "put", Method: "PUT", Target: "/incidents/I1", Header: asJSON(), Body: `{"incident":{"status":"resolved"}}`, Deduplicates: true},
		{Operation: "delete", Method: "DELETE", Target: "/teams/T1", Header: asJSON(), Deduplicates: true},
		{Operation: "other", Method: "POST", Target: "/teams", Header: asJSON(), Body: `{"team":{}}`},
	}}
}

// discordMemory knows a nonce for a few minutes.
func discordMemory(l *Ledger) memory {
	return memory{ledger: l, keeps: func(string) time.Duration { return 3 * time.Minute }, key: func(_ *http.Request, in map[string]any) string {
		if in["enforce_nonce"] != true {
			return ""
		}
		return fmt.Sprint(in["nonce"])
	}}
}

// Discord makes one message of a nonce, and shows it in the channel.
func Discord() Spec {
	const messages = "/api/{version}/channels/{channel}/messages"
	return Spec{Adapter: "discord", New: func(l *Ledger) http.Handler {
		mux := http.NewServeMux()
		mux.HandleFunc("POST "+messages, keyed(discordMemory(l), func(w http.ResponseWriter, r *http.Request, in map[string]any) {
			writeJSON(w, 200, l.Add(r.URL.Path, map[string]any{"content": in["content"], "nonce": in["nonce"]}))
		}))
		mux.HandleFunc("GET "+messages, func(w http.ResponseWriter, r *http.Request) {
			if strings.ContainsAny(r.URL.Query().Get("after"), ".e") {
				writeJSON(w, 400, map[string]any{"message": "Invalid Form Body"})
				return
			}
			writeJSON(w, 200, l.Visible(r.URL.Path))
		})
		return &rest{ledger: l, routes: mux, sets: changes}
	}, Cases: []Case{
		{Operation: "messages.create", Method: "POST", Target: "/api/v10/channels/1/messages", Header: asJSON(), Body: `{"content":"hi","nonce":"own","enforce_nonce":true}`, Deduplicates: true},
		{Operation: "webhooks.execute", Method: "POST", Target: "/api/v10/webhooks/1/secret", Header: asJSON(), Body: `{"content":"hi"}`},
		{Operation: "put", Method: "PUT", Target: "/api/v10/channels/1/messages/2/reactions/x/@me", Header: asJSON(), Deduplicates: true},
		{Operation: "patch", Method: "PATCH", Target: "/api/v10/channels/1/messages/2", Header: asJSON(), Body: `{"content":"y"}`, Deduplicates: true},
		{Operation: "delete", Method: "DELETE", Target: "/api/v10/channels/1/messages/3", Header: asJSON(), Deduplicates: true},
		{Operation: "other", Method: "POST", Target: "/api/v10/channels/1/threads", Header: asJSON(), Body: `{"name":"t"}`},
	}}
}

// Telegram acts on any method of a bot.
func Telegram() Spec {
	return simple("telegram", func(r *http.Request, _ map[string]any) bool { return !strings.Contains(r.URL.Path, "/send") }, []Case{
		{Operation: "act", Method: "POST", Target: "/bot1:secret/sendMessage", Header: asJSON(), Body: `{"chat_id":1,"text":"hi"}`},
		{Operation: "act", Method: "POST", Target: "/bot1:secret/editMessageText", Header: asJSON(), Body: `{"chat_id":1,"message_id":2,"text":"y"}`, Deduplicates: true},
	})
}

// StandardWebhooks is a receiver that has forgotten the webhook-ids it saw.
func StandardWebhooks() Spec {
	signed := withHeader(withHeader(withHeader(asJSON(), "webhook-id", "msg_1"), "webhook-timestamp", "1"), "webhook-signature", "v1,c2lnbmVk")
	return simple("standard-webhooks", nil, []Case{{Operation: "deliver", Method: "POST", Target: "/hook", Header: signed, Body: `{"type":"x"}`}})
}
