package fake

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// GitLab is issues, notes, merge requests and files of projects.
func GitLab() Spec {
	const project = "/api/v4/projects/{project}"
	return Spec{Adapter: "gitlab", New: func(l *Ledger) http.Handler {
		mux := http.NewServeMux()
		for _, path := range []string{project + "/issues", project + "/merge_requests", project + "/issues/{n}/notes", project + "/merge_requests/{n}/notes"} {
			mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) {
				id := l.Next()
				writeJSON(w, 201, l.Add(r.URL.Path, fielded(readAny(r), map[string]any{"id": id, "iid": id, "created_at": l.Now().Format(time.RFC3339)})))
			})
			mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
				q := r.URL.Query()
				writeJSON(w, 200, slices.DeleteFunc(l.Visible(r.URL.Path), func(o map[string]any) bool {
					branch := q.Get("source_branch")
					return fmt.Sprint(o["created_at"]) < q.Get("created_after") || branch != "" && o["source_branch"] != branch
				}))
			})
		}
		mux.HandleFunc("PUT "+project+"/repository/files/{file}", func(w http.ResponseWriter, r *http.Request) {
			in := readAny(r)
			if in["last_commit_id"] == nil {
				l.Add("commits", map[string]any{"of": r.URL.Path})
				writeJSON(w, 200, map[string]any{"file_path": r.PathValue("file"), "branch": in["branch"]})
				return
			}
			now := l.Get("files", r.URL.Path)
			if now != nil && now["version"] != in["last_commit_id"] {
				writeJSON(w, 400, map[string]any{"message": "You are attempting to update a file that has changed since you started editing it."})
				return
			}
			if now == nil {
				l.Add("files", map[string]any{"id": r.URL.Path, "version": "next"})
			} else {
				l.Change("files", r.URL.Path, func(o map[string]any) { o["version"] = "next" })
			}
			writeJSON(w, 200, map[string]any{"file_path": r.PathValue("file"), "branch": in["branch"]})
		})
		mux.HandleFunc("PUT "+project+"/merge_requests/{n}/merge", func(w http.ResponseWriter, r *http.Request) {
			of := strings.TrimSuffix(r.URL.Path, "/merge")
			if l.Get("merged", of) != nil {
				writeJSON(w, 405, map[string]any{"message": "405 Method Not Allowed"})
				return
			}
			merged := l.Add("merged", map[string]any{"id": of, "iid": r.PathValue("n"), "state": "merged", "sha": orNone(readAny(r)["sha"]), "merged_at": l.Now().Format("2006-01-02T15:04:05.000Z07:00")})
			writeJSON(w, 200, merged)
		})
		mux.HandleFunc("GET "+project+"/merge_requests/{n}", func(w http.ResponseWriter, r *http.Request) {
			for _, o := range l.Visible("merged") {
				if o["id"] == r.URL.Path {
					writeJSON(w, 200, o)
					return
				}
			}
			writeJSON(w, 200, map[string]any{"iid": r.PathValue("n"), "state": "opened", "merged_at": nil})
		})
		mux.HandleFunc("PUT "+project+"/packages/{file...}", func(w http.ResponseWriter, r *http.Request) {
			l.Add("packages", map[string]any{"file": r.PathValue("file")})
			writeJSON(w, 201, map[string]any{"message": "201 Created"})
		})
		return &rest{ledger: l, routes: mux, sets: changes}
	}, Cases: []Case{
		{Operation: "issues.create", Method: "POST", Target: "/api/v4/projects/7/issues", Header: asJSON(), Body: `{"title":"x"}`},
		{Operation: "notes.create", Method: "POST", Target: "/api/v4/projects/7/issues/3/notes", Header: asJSON(), Body: `{"body":"x"}`},
		{Operation: "merge_requests.notes.create", Method: "POST", Target: "/api/v4/projects/7/merge_requests/3/notes", Header: asJSON(), Body: `{"body":"x"}`},
		{Operation: "merge_requests.create", Method: "POST", Target: "/api/v4/projects/7/merge_requests", Header: asJSON(), Body: `{"title":"x","source_branch":"a","target_branch":"main","description":"d"}`},
		{Operation: "files.update", Method: "PUT", Target: "/api/v4/projects/7/repository/files/a.txt", Header: asJSON(), Body: `{"branch":"main","content":"x","commit_message":"m","last_commit_id":"c1"}`, Deduplicates: true},
		{Operation: "files.overwrite", Method: "PUT", Target: "/api/v4/projects/7/repository/files/b.txt", Header: asJSON(), Body: `{"branch":"main","content":"x","commit_message":"m"}`},
		{Operation: "merge_requests.merge", Method: "PUT", Target: "/api/v4/projects/7/merge_requests/5/merge", Header: asJSON(), Body: `{"sha":"a1"}`, Deduplicates: true},
		{Operation: "packages.upload", Method: "PUT", Target: "/api/v4/projects/7/packages/generic/app/1.0/app.zip", Header: http.Header{"Content-Type": {"application/octet-stream"}}, Body: "zip"},
		{Operation: "pipelines.create", Method: "POST", Target: "/api/v4/projects/7/pipeline?ref=main", Header: asJSON()},
		{Operation: "put", Method: "PUT", Target: "/api/v4/projects/7/issues/3", Header: asJSON(), Body: `{"state_event":"close"}`, Deduplicates: true},
		{Operation: "delete", Method: "DELETE", Target: "/api/v4/projects/7/issues/4", Header: asJSON(), Deduplicates: true},
		{Operation: "other", Method: "POST", Target: "/api/v4/groups", Header: asJSON(), Body: `{"name":"g"}`},
	}}
}
