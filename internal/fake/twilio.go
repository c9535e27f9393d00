package fake

import (
	"fmt"
	"net/http"
	"strings"
	"time"
)

const twilioAccount = "/2010-04-01/Accounts/{account}"

// twilio is https://www.twilio.com/docs/usage/api: nothing is deduplicated.
type twilio struct{ ledger *Ledger }

func newTwilio(l *Ledger) http.Handler {
	t := &twilio{l}
	mux := http.NewServeMux()
	for kind, prefix := range map[string]string{"Messages": "SM", "Calls": "CA", "Applications": "AP"} {
		mux.HandleFunc("POST "+twilioAccount+"/"+kind+".json", t.create(kind, prefix))
		mux.HandleFunc("POST "+twilioAccount+"/"+kind+"/{sid}", t.change(kind))
		mux.HandleFunc("DELETE "+twilioAccount+"/"+kind+"/{sid}", t.remove(kind))
		mux.HandleFunc("GET "+twilioAccount+"/"+kind+"/{sid}", t.get(kind))
		mux.HandleFunc("GET "+twilioAccount+"/"+kind+".json", t.list(kind))
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, _, ok := r.BasicAuth(); !ok {
			twilioError(w, 401, 20003, "Authenticate")
			return
		}
		mux.ServeHTTP(w, r)
	})
}

func twilioError(w http.ResponseWriter, status, code int, text string) {
	writeJSON(w, status, map[string]any{"code": code, "message": text, "status": status, "more_info": fmt.Sprintf("https://www.twilio.com/docs/errors/%d", code)})
}

func (t *twilio) create(kind, prefix string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		form, ok := readForm(r)
		if !ok || kind != "Applications" && form.Get("To") == "" {
			twilioError(w, 400, 21604, "A 'To' phone number is required.")
			return
		}
		sid := fmt.Sprintf("%s%032d", prefix, t.ledger.Next())
		made := map[string]any{"id": sid, "sid": sid, "account_sid": r.PathValue("account"), "status": "queued", "date_created": t.ledger.Now().Format(time.RFC1123Z)}
		for name := range form {
			made[strings.ToLower(name)] = form.Get(name)
		}
		made["status"] = "queued"
		twilioAnswer(w, 201, t.ledger.Add(kind, made))
	}
}

// twilioAnswer leaves out the ledger's own id.
func twilioAnswer(w http.ResponseWriter, status int, object map[string]any) {
	delete(object, "id")
	writeJSON(w, status, object)
}

func twilioSid(r *http.Request) string { return strings.TrimSuffix(r.PathValue("sid"), ".json") }

func (t *twilio) change(kind string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		form, _ := readForm(r) // without fields it changes nothing
		changed := t.ledger.Change(kind, twilioSid(r), func(object map[string]any) {
			for name := range form {
				object[strings.ToLower(name)] = form.Get(name)
			}
		})
		if changed == nil {
			twilioError(w, 404, 20404, "The requested resource was not found")
			return
		}
		twilioAnswer(w, 200, changed)
	}
}

func (t *twilio) remove(kind string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !t.ledger.Remove(kind, twilioSid(r)) {
			twilioError(w, 404, 20404, "The requested resource was not found")
			return
		}
		w.WriteHeader(http.StatusNoContent)
	}
}

func (t *twilio) get(kind string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		object := t.ledger.Get(kind, twilioSid(r))
		if object == nil {
			twilioError(w, 404, 20404, "The requested resource was not found")
			return
		}
		twilioAnswer(w, 200, object)
	}
}

func (t *twilio) list(kind string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		page := []any{}
		for _, o := range t.ledger.Visible(kind) {
			if to := r.URL.Query().Get("To"); to == "" || o["to"] == to {
				delete(o, "id")
				page = append(page, o)
			}
		}
		writeJSON(w, 200, map[string]any{strings.ToLower(kind): page, "page": 0, "page_size": 50, "next_page_uri": nil})
	}
}

// Twilio is the messages and calls of Twilio's API of 2010.
func Twilio() Spec {
	header := http.Header{"Authorization": {"Basic QUMxOnRva2Vu"}, "Content-Type": {"application/x-www-form-urlencoded"}}
	call := func(l *Ledger) {
		l.Put("Calls", map[string]any{"id": "CA9", "sid": "CA9", "status": "in-progress"})
	}
	return Spec{Adapter: "twilio", New: newTwilio, Cases: []Case{
		{Operation: "messages.create", Method: "POST", Target: "/2010-04-01/Accounts/AC1/Messages.json", Header: header, Body: "To=%2B15550100&From=%2B15550199&Body=hello"},
		{Operation: "calls.create", Method: "POST", Target: "/2010-04-01/Accounts/AC1/Calls.json", Header: header, Body: "To=%2B15550100&From=%2B15550199&Url=https%3A%2F%2Fexample.org%2Fvoice.xml"},
		{Operation: "calls.hangup", Method: "POST", Target: "/2010-04-01/Accounts/AC1/Calls/CA9.json", Header: header, Body: "Status=completed", Setup: call, Deduplicates: true},
		{Operation: "delete", Method: "DELETE", Target: "/2010-04-01/Accounts/AC1/Messages/SM9.json", Header: header, Setup: func(l *Ledger) {
			l.Put("Messages", map[string]any{"id": "SM9", "sid": "SM9"})
		}, Recovered: ".none", Deduplicates: true},
		{Operation: "other", Method: "POST", Target: "/2010-04-01/Accounts/AC1/Applications.json", Header: header, Body: "FriendlyName=x"},
	}}
}
