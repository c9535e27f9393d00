package fake

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// resendMemory knows a key for a day.
func resendMemory() memory {
	return memory{key: header("Idempotency-Key"), keeps: hours(24), conflict: func(w http.ResponseWriter) {
		writeJSON(w, 409, map[string]any{"statusCode": 409, "name": "invalid_idempotent_request", "message": "This idempotency key has been used with another payload."})
	}}
}

// Resend honours its Idempotency-Key.
func Resend() Spec {
	return keyedAPI("resend", resendMemory(), func(r *http.Request, _ map[string]any) bool { return strings.HasSuffix(r.URL.Path, "/cancel") }, []Case{
		{Operation: "emails.send", Method: "POST", Target: "/emails", Header: asJSON(), Body: `{"from":"a@b.c","to":["d@e.f"]}`, Deduplicates: true},
		{Operation: "emails.batch", Method: "POST", Target: "/emails/batch", Header: asJSON(), Body: `[{"from":"a@b.c"}]`, Deduplicates: true},
		{Operation: "emails.cancel", Method: "POST", Target: "/emails/e1/cancel", Header: asJSON(), Deduplicates: true},
		{Operation: "delete", Method: "DELETE", Target: "/domains/d1", Header: asJSON(), Deduplicates: true},
		{Operation: "other", Method: "POST", Target: "/domains", Header: asJSON(), Body: `{"name":"x.y"}`, Deduplicates: true},
	})
}

// Postmark finds messages by their metadata.
func Postmark() Spec {
	send := func(operation, target string) Case {
		return Case{Operation: operation, Method: "POST", Target: target, Header: withHeader(asJSON(), "X-Postmark-Server-Token", "secret"), Body: `{"From":"a@b.c","To":"d@e.f"}`}
	}
	return Spec{Adapter: "postmark", New: func(l *Ledger) http.Handler {
		mux := http.NewServeMux()
		for _, path := range []string{"POST /email", "POST /email/withTemplate"} {
			mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
				in, id := readAny(r), fmt.Sprintf("m-%d", l.Next())
				now := l.Now().Format("2006-01-02T15:04:05Z")
				l.Add("messages", map[string]any{"id": id, "MessageID": id, "Metadata": in["Metadata"], "To": []any{map[string]any{"Email": in["To"]}}, "ReceivedAt": now})
				writeJSON(w, 200, map[string]any{"To": in["To"], "SubmittedAt": now, "MessageID": id, "ErrorCode": 0, "Message": "OK"})
			})
		}
		mux.HandleFunc("GET /messages/outbound", func(w http.ResponseWriter, r *http.Request) {
			list := []any{}
			for _, m := range l.Visible("messages") {
				meta, _ := m["Metadata"].(map[string]any)
				if meta != nil && meta["cf"] == r.URL.Query().Get("metadata_cf") {
					list = append(list, m)
				}
			}
			writeJSON(w, 200, map[string]any{"TotalCount": len(list), "Messages": list})
		})
		return &rest{ledger: l, routes: mux, sets: changes}
	}, Cases: []Case{
		send("email.send", "/email"), send("email.withTemplate", "/email/withTemplate"),
		{Operation: "email.batch", Method: "POST", Target: "/email/batch", Header: asJSON(), Body: `[{}]`},
		{Operation: "put", Method: "PUT", Target: "/server", Header: asJSON(), Body: `{"Name":"x"}`, Deduplicates: true},
		{Operation: "delete", Method: "DELETE", Target: "/templates/1", Header: asJSON(), Deduplicates: true},
		{Operation: "other", Method: "POST", Target: "/templates", Header: asJSON(), Body: `{"Name":"x"}`},
	}}
}

// SendGrid accepts mail, and says no more.
func SendGrid() Spec {
	return simple("sendgrid", func(r *http.Request, _ map[string]any) bool { return r.Method == http.MethodPut }, []Case{
		{Operation: "mail.send", Method: "POST", Target: "/v3/mail/send", Header: asJSON(), Body: `{"personalizations":[]}`},
		{Operation: "contacts.put", Method: "PUT", Target: "/v3/marketing/contacts", Header: asJSON(), Body: `{"contacts":[]}`, Deduplicates: true},
		{Operation: "delete", Method: "DELETE", Target: "/v3/templates/1", Header: asJSON(), Deduplicates: true},
		{Operation: "other", Method: "POST", Target: "/v3/templates", Header: asJSON(), Body: `{"name":"x"}`},
	})
}

// Mailgun shows messages in its events, more than one for each.
func Mailgun() Spec {
	const parts = "--b\r\nContent-Disposition: form-data; name=\"to\"\r\n\r\nada@example.org\r\n--b--\r\n"
	return Spec{Adapter: "mailgun", New: func(l *Ledger) http.Handler {
		mux := http.NewServeMux()
		mux.HandleFunc("POST /v3/{domain}/messages", func(w http.ResponseWriter, r *http.Request) {
			in, id := readAny(r), fmt.Sprintf("%d@%s", l.Next(), r.PathValue("domain"))
			l.Add("messages", map[string]any{"id": id, "cf": in["v:cf"]})
			writeJSON(w, 200, map[string]any{"id": "<" + id + ">", "message": "Queued. Thank you."})
		})
		mux.HandleFunc("GET /v3/{domain}/events", func(w http.ResponseWriter, _ *http.Request) {
			items := []any{}
			for _, m := range l.Visible("messages") {
				for _, event := range []string{"accepted", "delivered"} {
					items = append(items, map[string]any{
						"event": event, "user-variables": map[string]any{"cf": m["cf"]}, "message": map[string]any{"headers": map[string]any{"message-id": m["id"]}},
					})
				}
			}
			writeJSON(w, 200, map[string]any{"items": items, "paging": map[string]any{}})
		})
		return &rest{ledger: l, routes: mux, sets: changes}
	}, Cases: []Case{
		{Operation: "messages.send", Method: "POST", Target: "/v3/example.org/messages", Header: http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}, Body: "to=ada%40example.org&text=hi"},
		{Operation: "messages.send", Method: "POST", Target: "/v3/example.org/messages", Header: http.Header{"Content-Type": {"multipart/form-data; boundary=b"}}, Body: parts},
		{Operation: "messages.mime", Method: "POST", Target: "/v3/example.org/messages.mime", Header: http.Header{"Content-Type": {"multipart/form-data; boundary=b"}}, Body: parts},
		{Operation: "put", Method: "PUT", Target: "/v3/routes/1", Header: asJSON(), Body: `{"priority":1}`, Deduplicates: true},
		{Operation: "delete", Method: "DELETE", Target: "/v3/routes/2", Header: asJSON(), Deduplicates: true},
		{Operation: "other", Method: "POST", Target: "/v3/routes", Header: asJSON(), Body: `{}`},
	}}
}

// zendeskMemory knows a key for two hours.
func zendeskMemory(l *Ledger) memory {
	return memory{ledger: l, key: header("Idempotency-Key"), keeps: hours(2), conflict: func(w http.ResponseWriter) {
		writeJSON(w, 400, map[string]any{"error": "IdempotentRequestError", "description": "The request parameters do not match those of the first request."})
	}}
}

// zendeskComments adds comments to tickets, and keeps an audit of each.
func zendeskComments(mux *http.ServeMux, l *Ledger, otherwise http.Handler) {
	mux.HandleFunc("PUT /api/v2/tickets/{ticket}", func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body) // it is in memory
		r.Body = io.NopCloser(bytes.NewReader(text))
		ticket, _ := readAny(r)["ticket"].(map[string]any)
		id, err := strconv.Atoi(strings.TrimSuffix(r.PathValue("ticket"), ".json"))
		if ticket["comment"] == nil || err != nil {
			r.Body = io.NopCloser(bytes.NewReader(text))
			otherwise.ServeHTTP(w, r)
			return
		}
		audit := map[string]any{"ticket_id": id, "metadata": map[string]any{"system": map[string]any{}, "custom": orEmpty(ticket["metadata"])}, "events": []any{ticket["comment"]}}
		writeJSON(w, 200, map[string]any{"ticket": map[string]any{"id": id}, "audit": l.Add("audits", audit)})
	})
	mux.HandleFunc("GET /api/v2/tickets/{ticket}/audits", func(w http.ResponseWriter, r *http.Request) {
		list := []any{}
		for _, a := range l.Visible("audits") {
			if fmt.Sprint(a["ticket_id"]) == r.PathValue("ticket") {
				list = append(list, a)
			}
		}
		writeJSON(w, 200, map[string]any{"audits": list, "meta": map[string]any{"has_more": false}})
	})
}

func orEmpty(v any) any {
	if v == nil {
		return map[string]any{}
	}
	return v
}

// Zendesk deduplicates new tickets by a key, lists them by external_id, and keeps
// audits of comments.
func Zendesk() Spec {
	return Spec{Adapter: "zendesk", New: func(l *Ledger) http.Handler {
		mux := http.NewServeMux()
		create := keyed(zendeskMemory(l), func(w http.ResponseWriter, _ *http.Request, in map[string]any) {
			ticket, _ := in["ticket"].(map[string]any)
			writeJSON(w, 201, map[string]any{"ticket": l.Add("tickets", fielded(ticket, map[string]any{"id": l.Next(), "status": "new"}))})
		})
		mux.HandleFunc("POST /api/v2/tickets", create)
		mux.HandleFunc("POST /api/v2/tickets.json", create)
		mux.HandleFunc("GET /api/v2/tickets", func(w http.ResponseWriter, r *http.Request) {
			list := []any{}
			for _, t := range l.Visible("tickets") {
				if t["external_id"] == r.URL.Query().Get("external_id") {
					list = append(list, t)
				}
			}
			writeJSON(w, 200, map[string]any{"tickets": list, "next_page": nil})
		})
		state := &rest{ledger: l, sets: func(r *http.Request, in map[string]any) bool {
			return r.Method == http.MethodPut && in["request"] == nil && !strings.Contains(r.URL.Path, "update_many") || strings.Contains(r.URL.Path, "create_or_update")
		}}
		zendeskComments(mux, l, state)
		mux.Handle("/", state)
		return mux
	}, Cases: []Case{
		{Operation: "tickets.create", Method: "POST", Target: "/api/v2/tickets", Header: asJSON(), Body: `{"ticket":{"subject":"x"}}`, Deduplicates: true},
		{Operation: "tickets.create.json", Method: "POST", Target: "/api/v2/tickets.json", Header: asJSON(), Body: `{"ticket":{"subject":"y"}}`, Deduplicates: true},
		{Operation: "users.createOrUpdate", Method: "POST", Target: "/api/v2/users/create_or_update", Header: asJSON(), Body: `{"user":{"email":"a@b.c"}}`, Deduplicates: true},
		{Operation: "tickets.comment", Method: "PUT", Target: "/api/v2/tickets/7", Header: asJSON(), Body: `{"ticket":{"comment":{"body":"x"}}}`},
		{Operation: "tickets.comment", Method: "PUT", Target: "/api/v2/tickets/17.json", Header: asJSON(), Body: `{"ticket":{"comment":{"body":"x"},"metadata":{"own":1}}}`},
		{Operation: "tickets.updateMany", Method: "PUT", Target: "/api/v2/tickets/update_many.json?ids=1,2", Header: asJSON(), Body: `{"ticket":{"comment":{"body":"x"}}}`},
		{Operation: "comment", Method: "PUT", Target: "/api/v2/requests/7", Header: asJSON(), Body: `{"request":{"comment":{"body":"x"}}}`},
		{Operation: "put", Method: "PUT", Target: "/api/v2/tickets/8", Header: asJSON(), Body: `{"ticket":{"status":"open"}}`, Deduplicates: true},
		{Operation: "delete", Method: "DELETE", Target: "/api/v2/tickets/9", Header: asJSON(), Deduplicates: true},
		{Operation: "other", Method: "POST", Target: "/api/v2/macros", Header: asJSON(), Body: `{"macro":{}}`},
	}}
}
