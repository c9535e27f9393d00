package fake

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// writeJSON answers with v as JSON.
func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // v is made of JSON's types
}

// readJSON returns the JSON object that is a request's body; false if it is
// none.
func readJSON(r *http.Request) (map[string]any, bool) {
	var object map[string]any
	err := json.NewDecoder(r.Body).Decode(&object)
	return object, err == nil && object != nil
}

// readForm returns a urlencoded body's fields, all of them as written: nested
// ones are called metadata[cf].
func readForm(r *http.Request) (url.Values, bool) {
	text, err := io.ReadAll(r.Body)
	if err != nil || !strings.HasPrefix(r.Header.Get("Content-Type"), "application/x-www-form-urlencoded") {
		return nil, false
	}
	form, err := url.ParseQuery(string(text))
	return form, err == nil
}
