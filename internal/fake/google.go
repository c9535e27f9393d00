package fake

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"maps"
	"net/http"
	"net/mail"
	"slices"
	"strings"
)

// GoogleCalendar is events of calendars, which may bring their own ids.
func GoogleCalendar() Spec {
	const events = "/calendar/v3/calendars/{calendar}/events"
	return Spec{Adapter: "google-calendar", New: func(l *Ledger) http.Handler {
		mux := http.NewServeMux()
		mux.HandleFunc("POST "+events, func(w http.ResponseWriter, r *http.Request) {
			in := readAny(r)
			if in["id"] == nil {
				in["id"] = fmt.Sprintf("ev%d", l.Next())
			}
			if l.Get("events", in["id"]) != nil {
				writeJSON(w, 409, map[string]any{"error": map[string]any{"code": 409, "message": "The requested identifier already exists."}})
				return
			}
			in["kind"], in["status"], in["etag"] = "calendar#event", "confirmed", `"1"`
			writeJSON(w, 200, l.Add("events", in))
		})
		mux.HandleFunc("GET "+events+"/{id}", func(w http.ResponseWriter, r *http.Request) {
			for _, event := range l.Visible("events") {
				if event["id"] == r.PathValue("id") {
					writeJSON(w, 200, event)
					return
				}
			}
			writeJSON(w, 404, map[string]any{"error": map[string]any{"code": 404, "message": "Not Found"}})
		})
		return &rest{ledger: l, routes: mux}
	}, Cases: []Case{
		{Operation: "events.insert", Method: "POST", Target: "/calendar/v3/calendars/primary/events", Header: asJSON(), Body: `{"summary":"Review","start":{"dateTime":"2027-01-01T10:00:00Z"},"end":{"dateTime":"2027-01-01T11:00:00Z"}}`},
		{Operation: "events.put", Method: "PUT", Target: "/calendar/v3/calendars/primary/events/e1", Header: asJSON(), Body: `{"summary":"Moved"}`, Deduplicates: true},
		{Operation: "events.delete", Method: "DELETE", Target: "/calendar/v3/calendars/primary/events/e2", Header: asJSON(), Deduplicates: true},
		{Operation: "calendar.other", Method: "POST", Target: "/calendar/v3/calendars/primary/events/import", Header: asJSON(), Body: `{"iCalUID":"u1"}`},
	}}
}

// GoogleDrive is files made by their metadata, with properties of the app's own.
// An id that was asked for beforehand is a file's own.
func GoogleDrive() Spec {
	return Spec{Adapter: "google-drive", New: func(l *Ledger) http.Handler {
		mux := http.NewServeMux()
		shown := func(o map[string]any) map[string]any {
			return map[string]any{"kind": "drive#file", "id": o["id"], "name": o["name"], "mimeType": orNone(o["mimeType"])}
		}
		mux.HandleFunc("POST /drive/v3/files", func(w http.ResponseWriter, r *http.Request) {
			in := readAny(r)
			if in["id"] != nil && l.Get("files", in["id"]) != nil {
				writeJSON(w, 409, map[string]any{"error": map[string]any{"code": 409, "message": "A file already exists with the provided ID."}})
				return
			}
			writeJSON(w, 200, shown(l.Add("files", in)))
		})
		mux.HandleFunc("GET /drive/v3/files/{id}", func(w http.ResponseWriter, r *http.Request) {
			for _, o := range l.Visible("files") {
				if o["id"] == r.PathValue("id") {
					writeJSON(w, 200, fielded(shown(o), map[string]any{"appProperties": o["appProperties"]}))
					return
				}
			}
			writeJSON(w, 404, map[string]any{"error": map[string]any{"code": 404, "message": "File not found."}})
		})
		mux.HandleFunc("DELETE /drive/v3/files/trash", func(w http.ResponseWriter, _ *http.Request) {
			l.Add("emptied", map[string]any{})
			w.WriteHeader(http.StatusNoContent)
		})
		mux.HandleFunc("GET /drive/v3/files", func(w http.ResponseWriter, r *http.Request) {
			files := []any{}
			for _, o := range l.Visible("files") {
				p, _ := o["appProperties"].(map[string]any)
				if p != nil && r.URL.Query().Get("q") == fmt.Sprintf("appProperties has { key='cf' and value='%s' }", p["cf"]) {
					files = append(files, shown(o))
				}
			}
			writeJSON(w, 200, map[string]any{"incompleteSearch": false, "files": files})
		})
		return &rest{ledger: l, routes: mux}
	}, Cases: []Case{
		{Operation: "files.create", Method: "POST", Target: "/drive/v3/files", Header: asJSON(), Body: `{"name":"Invoices","mimeType":"application/vnd.google-apps.folder"}`},
		{Operation: "files.createNamed", Method: "POST", Target: "/drive/v3/files", Header: asJSON(), Body: `{"id":"1AbCdEf","name":"notes.txt","mimeType":"text/plain"}`, Deduplicates: true},
		{Operation: "files.emptyTrash", Method: "DELETE", Target: "/drive/v3/files/trash", Header: asJSON()},
		{Operation: "files.upload", Method: "POST", Target: "/upload/drive/v3/files?uploadType=media", Header: http.Header{"Content-Type": {"text/plain"}}, Body: "hello"},
		{Operation: "files.update", Method: "PATCH", Target: "/drive/v3/files/f1", Header: asJSON(), Body: `{"name":"Renamed"}`, Deduplicates: true},
		{Operation: "files.delete", Method: "DELETE", Target: "/drive/v3/files/f2", Header: asJSON(), Deduplicates: true},
		{Operation: "drive.other", Method: "POST", Target: "/drive/v3/files/f1/permissions", Header: asJSON(), Body: `{"role":"reader","type":"anyone"}`},
	}}
}

// Gmail is mail that is sent. Here it keeps the Message-ID of the sender's, as
// some say that it does.
func Gmail() Spec {
	return Spec{Adapter: "gmail", New: func(l *Ledger) http.Handler {
		mux := http.NewServeMux()
		shown := func(o map[string]any) map[string]any {
			return map[string]any{"id": o["id"], "threadId": o["id"]}
		}
		mux.HandleFunc("POST /gmail/v1/users/me/messages/send", func(w http.ResponseWriter, r *http.Request) {
			in := readAny(r)
			message, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(fmt.Sprint(in["raw"]), "="))
			if err != nil {
				writeJSON(w, 400, map[string]any{"error": map[string]any{"code": 400, "message": "Invalid value for ByteString"}})
				return
			}
			id := ""
			if m, err := mail.ReadMessage(bytes.NewReader(message)); err == nil {
				id = strings.Trim(m.Header.Get("Message-ID"), "<>")
			}
			sent := l.Add("sent", map[string]any{"messageID": id})
			writeJSON(w, 200, fielded(shown(sent), map[string]any{"labelIds": []any{"SENT"}}))
		})
		mux.HandleFunc("GET /gmail/v1/users/me/messages", func(w http.ResponseWriter, r *http.Request) {
			_, id, asks := strings.Cut(r.URL.Query().Get("q"), "rfc822msgid:")
			list := map[string]any{"resultSizeEstimate": 0}
			for _, o := range l.Visible("sent") {
				if asks && o["messageID"] == id {
					list = map[string]any{"resultSizeEstimate": 1, "messages": []any{shown(o)}}
				}
			}
			writeJSON(w, 200, list)
		})
		return &rest{ledger: l, routes: mux, sets: func(r *http.Request, _ map[string]any) bool {
			return strings.HasSuffix(r.URL.Path, "/trash") || strings.HasSuffix(r.URL.Path, "/modify")
		}}
	}, Cases: []Case{
		{Operation: "messages.send", Method: "POST", Target: "/gmail/v1/users/me/messages/send", Header: asJSON(), Body: `{"raw":"U3ViamVjdDogaGkNCg0KYm9keQ"}`},
		{Operation: "drafts.send", Method: "POST", Target: "/gmail/v1/users/me/drafts/send", Header: asJSON(), Body: `{"id":"d1"}`},
		{Operation: "messages.trash", Method: "POST", Target: "/gmail/v1/users/me/messages/m1/trash", Header: asJSON(), Deduplicates: true},
		{Operation: "messages.modify", Method: "POST", Target: "/gmail/v1/users/me/messages/m1/modify", Header: asJSON(), Body: `{"addLabelIds":["L1"]}`, Deduplicates: true},
		{Operation: "threads.trash", Method: "POST", Target: "/gmail/v1/users/me/threads/t1/trash", Header: asJSON(), Deduplicates: true},
		{Operation: "threads.modify", Method: "POST", Target: "/gmail/v1/users/me/threads/t1/modify", Header: asJSON(), Body: `{"addLabelIds":["L1"]}`, Deduplicates: true},
		{Operation: "messages.delete", Method: "DELETE", Target: "/gmail/v1/users/me/messages/m2", Header: asJSON(), Deduplicates: true},
		{Operation: "gmail.other", Method: "POST", Target: "/gmail/v1/users/me/labels", Header: asJSON(), Body: `{"name":"x"}`},
	}}
}

// MicrosoftGraph is calendars, mail and files.
func MicrosoftGraph() Spec {
	immutable := asJSON()
	immutable.Set("Prefer", `IdType="ImmutableId"`)
	return Spec{Adapter: "microsoft-graph", New: func(l *Ledger) http.Handler {
		mux := http.NewServeMux()
		for _, path := range []string{"/v1.0/me/events", "/v1.0/users/{user}/events"} {
			mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) {
				in := readAny(r)
				in["createdDateTime"] = l.Now().Format("2006-01-02T15:04:05Z")
				writeJSON(w, 201, l.Add(r.URL.Path, in))
			})
			mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
				_, since, _ := strings.Cut(r.URL.Query().Get("$filter"), "createdDateTime ge ")
				value := []any{}
				for _, o := range l.Visible(r.URL.Path) {
					if fmt.Sprint(o["createdDateTime"]) >= since {
						value = append(value, o)
					}
				}
				writeJSON(w, 200, map[string]any{"value": value})
			})
		}
		mux.HandleFunc("POST /v1.0/me/messages/{id}/send", func(w http.ResponseWriter, r *http.Request) {
			if l.Get("sent", r.PathValue("id")) != nil {
				writeJSON(w, 400, map[string]any{"error": map[string]any{"code": "ErrorInvalidRequest", "message": "The message is no draft."}})
				return
			}
			l.Add("sent", map[string]any{"id": r.PathValue("id")})
			w.WriteHeader(http.StatusAccepted)
		})
		mux.HandleFunc("GET /v1.0/me/messages/{id}", func(w http.ResponseWriter, r *http.Request) {
			isSent := slices.ContainsFunc(l.Visible("sent"), func(o map[string]any) bool { return o["id"] == r.PathValue("id") })
			writeJSON(w, 200, map[string]any{"id": r.PathValue("id"), "isDraft": !isSent})
		})
		return &rest{ledger: l, routes: mux, sets: func(r *http.Request, _ map[string]any) bool {
			return r.Method == http.MethodPut && r.URL.Query().Get("@microsoft.graph.conflictBehavior") != "rename"
		}}
	}, Cases: []Case{
		{Operation: "events.create", Method: "POST", Target: "/v1.0/me/events", Header: asJSON(), Body: `{"subject":"Review"}`},
		{Operation: "mail.send", Method: "POST", Target: "/v1.0/me/sendMail", Header: asJSON(), Body: `{"message":{"subject":"hi"}}`},
		{Operation: "messages.send", Method: "POST", Target: "/v1.0/me/messages/m1/send", Header: asJSON(), Deduplicates: true},
		{Operation: "messages.sendImmutable", Method: "POST", Target: "/v1.0/me/messages/m2/send", Header: immutable, Deduplicates: true},
		{Operation: "files.put", Method: "PUT", Target: "/v1.0/me/drive/root:/a.txt:/content", Header: http.Header{"Content-Type": {"text/plain"}}, Body: "a", Deduplicates: true},
		{Operation: "files.putRenamed", Method: "PUT", Target: "/v1.0/me/drive/root:/b.txt:/content?@microsoft.graph.conflictBehavior=rename", Header: http.Header{"Content-Type": {"text/plain"}}, Body: "a"},
		{Operation: "delete", Method: "DELETE", Target: "/v1.0/me/events/e1", Header: asJSON(), Deduplicates: true},
		{Operation: "other", Method: "POST", Target: "/v1.0/me/contacts", Header: asJSON(), Body: `{"givenName":"Ada"}`},
	}}
}

// fielded is an object of fields as they were sent, with what an API adds.
func fielded(in map[string]any, more map[string]any) map[string]any {
	object := maps.Clone(in)
	maps.Copy(object, more)
	return object
}
