package fake

import (
	"cmp"
	"crypto/sha1"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// github is https://docs.github.com/en/rest: issues, comments and gists are
// made as often as they are asked for; references, files and merges know what
// they stand on.
type github struct{ ledger *Ledger }

// githubPage is how many objects a page has unless per_page says otherwise.
const githubPage = 30

func newGitHub(l *Ledger) http.Handler {
	g := &github{l}
	mux := http.NewServeMux()
	g.texts(mux)
	g.content(mux)
	g.states(mux)
	mux.HandleFunc("GET /rate_limit", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, 200, map[string]any{}) })
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "" {
			githubError(w, 401, "Requires authentication")
			return
		}
		mux.ServeHTTP(w, r)
	})
}

func githubError(w http.ResponseWriter, status int, text string) {
	writeJSON(w, status, map[string]any{"message": text, "documentation_url": "https://docs.github.com/rest", "status": strconv.Itoa(status)})
}

const githubRepo = "/repos/{owner}/{repo}"

// texts are what bears a text, and is looked up by it.
func (g *github) texts(mux *http.ServeMux) {
	for path, needs := range map[string]string{
		githubRepo + "/issues": "title", githubRepo + "/pulls": "head", githubRepo + "/releases": "tag_name", "/gists": "files",
	} {
		mux.HandleFunc("POST "+path, g.create(needs))
		mux.HandleFunc("GET "+path, g.list)
	}
	for _, kind := range []string{"issues", "pulls"} {
		mux.HandleFunc("GET "+githubRepo+"/"+kind+"/{n}", g.one)
		mux.HandleFunc("PATCH "+githubRepo+"/"+kind+"/{n}", g.patch)
		// A comment is under its issue in lists, and beside it when it is named.
		mux.HandleFunc("POST "+githubRepo+"/"+kind+"/{a}/{b}", g.create("body"))
		mux.HandleFunc("GET "+githubRepo+"/"+kind+"/{a}/{b}", func(w http.ResponseWriter, r *http.Request) {
			if r.PathValue("a") != "comments" {
				g.list(w, r)
				return
			}
			g.show(w, g.ledger.Get(g.commentKind(r), r.PathValue("b")))
		})
		mux.HandleFunc("PATCH "+githubRepo+"/"+kind+"/comments/{n}", func(w http.ResponseWriter, r *http.Request) {
			g.set(w, r, g.commentKind(r), r.PathValue("n"))
		})
	}
}

func (g *github) create(needs string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		object, ok := readJSON(r)
		if !ok || object[needs] == nil {
			githubError(w, 422, "Validation Failed: "+needs+" is missing")
			return
		}
		kind, n, now := r.URL.Path, g.ledger.Next(), g.ledger.Now().Format(time.RFC3339)
		if strings.HasSuffix(kind, "/pulls") && g.isOpen(kind, object) {
			githubError(w, 422, fmt.Sprintf("A pull request already exists for %s:%s.", r.PathValue("owner"), object["head"]))
			return
		}
		made := map[string]any{"id": n, "number": n, "state": "open", "created_at": now, "updated_at": now, "user": map[string]any{"login": "bot"}}
		maps.Copy(made, object)
		if needs == "head" {
			made["head"], made["base"] = githubBranch(object["head"]), githubBranch(object["base"])
			made["merged"] = false
		}
		w.Header().Set("Location", fmt.Sprintf("http://%s%s/%d", r.Host, r.URL.Path, n))
		writeJSON(w, 201, g.ledger.Add(kind, made))
	}
}

func githubBranch(name any) map[string]any {
	return map[string]any{"ref": name, "sha": githubSHA([]byte(fmt.Sprint(name)))}
}

// githubSHA is the name that git gives to a file of these contents.
func githubSHA(contents []byte) string {
	sum := sha1.Sum(append(fmt.Appendf(nil, "blob %d\x00", len(contents)), contents...))
	return hex.EncodeToString(sum[:])
}

func (g *github) isOpen(kind string, object map[string]any) bool {
	return slices.ContainsFunc(g.ledger.List(kind), func(o map[string]any) bool {
		head, base := o["head"].(map[string]any)["ref"], o["base"].(map[string]any)["ref"]
		return o["state"] == "open" && head == object["head"] && base == object["base"]
	})
}

// list shows what was changed since a time, in pages that link to the next.
// Issues have pull requests among them; gists come without contents.
func (g *github) list(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	all := g.ledger.Visible(r.URL.Path)
	if strings.HasSuffix(r.URL.Path, "/issues") {
		for _, p := range g.ledger.Visible(strings.TrimSuffix(r.URL.Path, "issues") + "pulls") {
			p["pull_request"] = map[string]any{}
			all = append(all, p)
		}
	}
	all = slices.DeleteFunc(all, func(o map[string]any) bool {
		isHidden := q.Get("state") != "all" && !strings.HasSuffix(r.URL.Path, "/comments") && o["state"] == "closed"
		return isHidden || fmt.Sprint(o["updated_at"]) < q.Get("since")
	})
	if q.Get("direction") == "desc" {
		slices.Reverse(all)
	}
	size, page := githubNumber(q.Get("per_page"), githubPage), githubNumber(q.Get("page"), 1)
	from := min((page-1)*size, len(all))
	to := min(from+size, len(all))
	if to < len(all) {
		q.Set("page", strconv.Itoa(page+1))
		w.Header().Set("Link", fmt.Sprintf(`<http://%s%s?%s>; rel="next"`, r.Host, r.URL.Path, q.Encode()))
	}
	writeJSON(w, 200, all[from:to])
}

func githubNumber(text string, otherwise int) int {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return otherwise
	}
	return min(n, 100)
}

// kindOf cuts the last part off a path: what it is one of.
func kindOf(r *http.Request) (kind, id string) {
	i := strings.LastIndexByte(r.URL.Path, '/')
	return r.URL.Path[:i], r.URL.Path[i+1:]
}

func (g *github) one(w http.ResponseWriter, r *http.Request) {
	kind, id := kindOf(r)
	g.show(w, g.ledger.Get(kind, id))
}

func (g *github) show(w http.ResponseWriter, object map[string]any) {
	if object == nil {
		githubError(w, 404, "Not Found")
		return
	}
	writeJSON(w, 200, object)
}

func (g *github) patch(w http.ResponseWriter, r *http.Request) {
	kind, id := kindOf(r)
	g.set(w, r, kind, id)
}

func (g *github) set(w http.ResponseWriter, r *http.Request, kind, id string) {
	fields, ok := readJSON(r)
	if !ok {
		githubError(w, 400, "Problems parsing JSON")
		return
	}
	g.show(w, g.ledger.Change(kind, id, func(o map[string]any) {
		for name, v := range fields {
			if o[name] = v; name == "base" {
				o[name] = githubBranch(v)
			}
		}
	}))
}

// commentKind is where a comment is that is known by its id alone.
func (g *github) commentKind(r *http.Request) string {
	kind, id := kindOf(r)
	parent := strings.TrimSuffix(kind, "/comments")
	for n := range 100 {
		if k := fmt.Sprintf("%s/%d/comments", parent, n); g.ledger.Get(k, id) != nil {
			return k
		}
	}
	return ""
}

// content is what git keeps: references and files.
func (g *github) content(mux *http.ServeMux) {
	mux.HandleFunc("POST "+githubRepo+"/git/refs", func(w http.ResponseWriter, r *http.Request) {
		object, _ := readJSON(r)
		name := fmt.Sprint(object["ref"])
		switch {
		case !strings.HasPrefix(name, "refs/") || object["sha"] == nil:
			githubError(w, 422, "Reference name is not valid")
		case g.ledger.Get("ref", name) != nil:
			githubError(w, 422, "Reference already exists")
		default:
			g.ledger.Add("ref", map[string]any{"id": name, "sha": object["sha"]})
			writeJSON(w, 201, g.ref(name))
		}
	})
	mux.HandleFunc("GET "+githubRepo+"/git/ref/{name...}", func(w http.ResponseWriter, r *http.Request) {
		g.show(w, g.ref("refs/"+r.PathValue("name")))
	})
	mux.HandleFunc("GET "+githubRepo+"/contents/{file...}", func(w http.ResponseWriter, r *http.Request) {
		g.show(w, g.visible("file", r.PathValue("file")))
	})
	mux.HandleFunc("PUT "+githubRepo+"/contents/{file...}", g.putFile)
	mux.HandleFunc("DELETE "+githubRepo+"/contents/{file...}", g.deleteFile)
}

// visible is an object if lists show it by now.
func (g *github) visible(kind, id string) map[string]any {
	for _, o := range g.ledger.Visible(kind) {
		if o["id"] == id {
			return o
		}
	}
	return nil
}

func (g *github) ref(name string) map[string]any {
	o := g.visible("ref", name)
	if o == nil {
		return nil
	}
	return map[string]any{"ref": name, "object": map[string]any{"type": "commit", "sha": o["sha"]}}
}

func (g *github) putFile(w http.ResponseWriter, r *http.Request) {
	object, _ := readJSON(r)
	contents, err := base64.StdEncoding.DecodeString(strings.ReplaceAll(fmt.Sprint(object["content"]), "\n", ""))
	path := r.PathValue("file")
	there := g.ledger.Get("file", path)
	switch {
	case err != nil:
		githubError(w, 422, "content is not valid Base64")
		return
	case there != nil && object["sha"] == nil:
		githubError(w, 422, `Invalid request. "sha" wasn't supplied.`)
		return
	case there != nil && object["sha"] != there["sha"]:
		githubError(w, 409, fmt.Sprintf("%s does not match %s", path, object["sha"]))
		return
	}
	file := githubFile(path, contents)
	status := 201
	if there == nil {
		g.ledger.Add("file", file)
	} else {
		status = 200
		g.ledger.Change("file", path, func(o map[string]any) { o["sha"], o["content"] = file["sha"], file["content"] })
	}
	shown := map[string]any{"id": path, "path": path, "type": "file", "sha": file["sha"]}
	writeJSON(w, status, map[string]any{"content": shown, "commit": map[string]any{"sha": githubSHA(fmt.Append(nil, g.ledger.Next())), "message": object["message"]}})
}

// githubFile is a file as a read shows it: base64 in lines of 60.
func githubFile(path string, contents []byte) map[string]any {
	text, lines := base64.StdEncoding.EncodeToString(contents), ""
	for line := range slices.Chunk([]byte(text), 60) {
		lines += string(line) + "\n"
	}
	return map[string]any{"id": path, "path": path, "type": "file", "encoding": "base64", "sha": githubSHA(contents), "content": lines}
}

func (g *github) deleteFile(w http.ResponseWriter, r *http.Request) {
	object, _ := readJSON(r)
	path := r.PathValue("file")
	there := g.ledger.Get("file", path)
	switch sha := cmp.Or(r.URL.Query().Get("sha"), fmt.Sprint(object["sha"])); {
	case there == nil:
		githubError(w, 404, "Not Found")
	case sha != there["sha"]:
		githubError(w, 409, fmt.Sprintf("%s does not match %s", path, sha))
	default:
		g.ledger.Remove("file", path)
		writeJSON(w, 200, map[string]any{"content": nil, "commit": map[string]any{"message": object["message"]}})
	}
}

// states are what is set, begun or ended, and bears no marker.
func (g *github) states(mux *http.ServeMux) {
	mux.HandleFunc("PUT "+githubRepo+"/pulls/{n}/merge", g.merge)
	for _, path := range []string{"/actions/workflows/{workflow}/dispatches", "/dispatches"} {
		mux.HandleFunc("POST "+githubRepo+path, func(w http.ResponseWriter, r *http.Request) {
			g.ledger.Add("run", map[string]any{"of": r.URL.Path})
			w.WriteHeader(http.StatusNoContent)
		})
	}
	mux.HandleFunc("POST "+githubRepo+"/issues/{n}/reactions", func(w http.ResponseWriter, r *http.Request) {
		writeJSON(w, 201, g.ledger.Add("reaction", map[string]any{"of": r.PathValue("n")}))
	})
	for _, path := range []string{githubRepo + "/issues/{n}/labels", githubRepo + "/topics", githubRepo + "/collaborators/{user}", githubRepo + "/branches/{branch}/protection", "/user/starred/{owner}/{repo}"} {
		mux.HandleFunc("PUT "+path, g.put)
	}
	mux.HandleFunc("DELETE "+githubRepo+"/labels/{name}", func(w http.ResponseWriter, r *http.Request) {
		if !g.ledger.Remove("label", r.PathValue("name")) {
			githubError(w, 404, "Not Found")
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
}

func (g *github) merge(w http.ResponseWriter, r *http.Request) {
	object, _ := readJSON(r)
	kind := strings.TrimSuffix(r.URL.Path, "/"+r.PathValue("n")+"/merge")
	pull := g.ledger.Get(kind, r.PathValue("n"))
	switch {
	case pull == nil:
		githubError(w, 404, "Not Found")
		return
	case pull["merged"] == true:
		githubError(w, 405, "Pull Request is not mergeable")
		return
	case object["sha"] != nil && object["sha"] != pull["head"].(map[string]any)["sha"]:
		githubError(w, 409, "Head branch was modified. Review and try the merge again.")
		return
	}
	commit := githubSHA(fmt.Append(nil, g.ledger.Next()))
	g.ledger.Change(kind, r.PathValue("n"), func(o map[string]any) {
		o["merged"], o["state"], o["merge_commit_sha"] = true, "closed", commit
	})
	writeJSON(w, 200, map[string]any{"sha": commit, "merged": true, "message": "Pull Request successfully merged"})
}

// put sets what stands under its own name: it is one effect only if it was not
// so before.
func (g *github) put(w http.ResponseWriter, r *http.Request) {
	object, ok := readJSON(r)
	if !ok {
		object = map[string]any{} // some have no body
	}
	if g.ledger.Get("state", r.URL.Path) == nil {
		g.ledger.Add("state", map[string]any{"id": r.URL.Path, "value": object})
	} else {
		g.ledger.Change("state", r.URL.Path, func(o map[string]any) { o["value"] = object })
	}
	writeJSON(w, 200, map[string]any{"value": object})
}

// GitHub is GitHub's REST API.
func GitHub() Spec {
	const repo, pulls = "/repos/o/r", "/repos/o/r/pulls"
	header := http.Header{"Authorization": {"Bearer ghp_1"}, "Content-Type": {"application/json; charset=utf-8"}}
	pull := func(n int) func(l *Ledger) {
		return func(l *Ledger) {
			l.Put(pulls, map[string]any{"id": n, "number": n, "state": "open", "title": "old", "merged": false, "head": githubBranch(fmt.Sprint("b", n)), "base": githubBranch("main"), "updated_at": "2026"})
		}
	}
	put := func(kind string, object map[string]any) func(l *Ledger) {
		return func(l *Ledger) { l.Put(kind, object) }
	}
	comment := func(n int) map[string]any {
		return map[string]any{"id": n, "body": "old", "updated_at": "2026"}
	}
	text := func(operation, target, body string) Case {
		return Case{Operation: operation, Method: "POST", Target: target, Header: header, Body: body}
	}
	set := func(operation, target, body string) Case {
		return Case{Operation: operation, Method: "PUT", Target: target, Header: header, Body: body, Deduplicates: true}
	}
	patch := func(operation, target, body string, setup func(*Ledger)) Case {
		return Case{Operation: operation, Method: "PATCH", Target: target, Header: header, Body: body, Setup: setup, Deduplicates: true}
	}
	old := githubFile("docs/b.md", []byte("old"))
	gone := githubFile("docs/c.md", []byte("old"))
	return Spec{Adapter: "github", New: newGitHub, Cases: []Case{
		text("issues.create", repo+"/issues", `{"title":"t","body":"b"}`),
		text("issues.create", repo+"/issues", `{"title":"without text"}`),
		text("issues.createComment", repo+"/issues/5/comments", `{"body":"b"}`),
		text("pulls.createReviewComment", pulls+"/5/comments", `{"body":"b","path":"a.go","line":1}`),
		{Operation: "pulls.create", Method: "POST", Target: pulls, Header: header, Body: `{"title":"t","head":"b","base":"main"}`, Deduplicates: true},
		{Operation: "git.createRef", Method: "POST", Target: repo + "/git/refs", Header: header, Body: `{"ref":"refs/heads/a/b","sha":"` + githubSHA(nil) + `"}`, Deduplicates: true},
		text("repos.createRelease", repo+"/releases", `{"tag_name":"v1","draft":true}`),
		{Operation: "repos.putContents", Method: "PUT", Target: repo + "/contents/docs%2Fa.md", Header: header, Body: `{"message":"m","content":"aGVsbG8K"}`, Recovered: ".content", Deduplicates: true},
		{Operation: "repos.putContents", Method: "PUT", Target: repo + "/contents/docs/b.md", Header: header, Body: fmt.Sprintf(`{"message":"m","content":"aGVsbG8K","sha":%q,"branch":"main"}`, old["sha"]), Setup: put("file", old), Recovered: ".content", Deduplicates: true},
		{Operation: "repos.deleteContents", Method: "DELETE", Target: repo + "/contents/docs/c.md", Header: header, Body: fmt.Sprintf(`{"message":"m","sha":%q}`, gone["sha"]), Setup: put("file", gone), Recovered: ".none", Deduplicates: true},
		{Operation: "pulls.merge", Method: "PUT", Target: pulls + "/906/merge", Header: header, Setup: pull(906), Deduplicates: true},
		{Operation: "pulls.merge", Method: "PUT", Target: pulls + "/907/merge", Header: header, Body: `{"sha":"` + githubSHA([]byte("b907")) + `"}`, Setup: pull(907), Deduplicates: true},
		text("actions.createWorkflowDispatch", repo+"/actions/workflows/ci.yml/dispatches", `{"ref":"main"}`),
		text("repos.createDispatchEvent", repo+"/dispatches", `{"event_type":"build"}`),
		{Operation: "gists.create", Method: "POST", Target: "/gists", Header: header, Body: `{"description":"d","files":{"a":{"content":"x"}}}`, Recovered: "del(.files)"},
		set("issues.setLabels", repo+"/issues/5/labels", `{"labels":["bug"]}`),
		set("repos.replaceTopics", repo+"/topics", `{"names":["go"]}`),
		set("repos.addCollaborator", repo+"/collaborators/ann", `{"permission":"push"}`),
		set("repos.updateBranchProtection", repo+"/branches/main/protection", `{"enforce_admins":true}`),
		set("activity.star", "/user/starred/o/r", ""),
		{Operation: "delete", Method: "DELETE", Target: repo + "/labels/bug", Header: header, Setup: put("label", map[string]any{"id": "bug"}), Recovered: ".none", Deduplicates: true},
		patch("issues.update", repo+"/issues/908", `{"title":"new","state":"closed"}`, put(repo+"/issues", map[string]any{"id": 908, "number": 908, "title": "old", "state": "open", "updated_at": "2026"})),
		patch("pulls.update", pulls+"/909", `{"title":"new","base":"next"}`, pull(909)),
		patch("issues.updateComment", repo+"/issues/comments/910", `{"body":"new"}`, put(repo+"/issues/5/comments", comment(910))),
		patch("pulls.updateReviewComment", pulls+"/comments/911", `{"body":"new"}`, put(pulls+"/5/comments", comment(911))),
		text("other", repo+"/issues/5/reactions", `{"content":"heart"}`),
	}}
}
