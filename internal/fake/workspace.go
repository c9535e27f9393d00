package fake

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// simple is a provider of which the adapter recognises requests, and finds nothing
// again. Sets says which POSTs set a state; nil says that none does.
func simple(adapter string, sets func(r *http.Request, in map[string]any) bool, cases []Case) Spec {
	return routed(adapter, sets, func(*Ledger, *http.ServeMux) {}, cases)
}

// routed is a simple provider with routes of its own, as lists and searches.
func routed(adapter string, sets func(r *http.Request, in map[string]any) bool, routes func(l *Ledger, mux *http.ServeMux), cases []Case) Spec {
	return Spec{Adapter: adapter, Cases: cases, New: func(l *Ledger) http.Handler {
		mux := http.NewServeMux()
		routes(l, mux)
		return &rest{ledger: l, routes: mux, sets: func(r *http.Request, in map[string]any) bool {
			return sets != nil && sets(r, in)
		}}
	}}
}

// at is what stands in o at a path of names; nil if nothing does.
func at(o map[string]any, names ...string) any {
	for _, name := range names[:len(names)-1] {
		inner, ok := o[name].(map[string]any)
		if !ok {
			return nil
		}
		o = inner
	}
	return o[names[len(names)-1]]
}

// where returns what lists show of a kind, as far as keep says so.
func where(l *Ledger, kind string, keep func(o map[string]any) bool) []any {
	list := []any{}
	for _, o := range l.Visible(kind) {
		if keep(o) {
			list = append(list, o)
		}
	}
	return list
}

// first answers with an object of the list, or 404.
func first(w http.ResponseWriter, list []any) {
	if len(list) == 0 {
		writeJSON(w, 404, map[string]any{"message": "not found"})
		return
	}
	writeJSON(w, 200, list[0])
}

// changes reports whether a request sets a state by its method.
func changes(r *http.Request, _ map[string]any) bool {
	return r.Method == http.MethodPut || r.Method == http.MethodPatch
}

// Jira is issues, comments and transitions.
func Jira() Spec {
	return routed("jira", func(r *http.Request, in map[string]any) bool {
		return r.Method == http.MethodPut && in["update"] == nil
	}, jiraRoutes, []Case{
		{Operation: "issues.create", Method: "POST", Target: "/rest/api/3/issue", Header: asJSON(), Body: `{"fields":{"summary":"x"}}`},
		{Operation: "comments.create", Method: "POST", Target: "/rest/api/3/issue/P-1/comment", Header: asJSON(), Body: `{"body":{}}`},
		{Operation: "transitions.do", Method: "POST", Target: "/rest/api/3/issue/P-1/transitions", Header: asJSON(), Body: `{"transition":{"id":"5"}}`},
		{Operation: "issues.set", Method: "PUT", Target: "/rest/api/3/issue/P-1", Header: asJSON(), Body: `{"fields":{"summary":"y"}}`, Deduplicates: true},
		{Operation: "delete", Method: "DELETE", Target: "/rest/api/3/issue/P-2", Header: asJSON(), Deduplicates: true},
		{Operation: "other", Method: "PUT", Target: "/rest/api/3/issue/P-3", Header: asJSON(), Body: `{"update":{"labels":[{"add":"x"}]}}`},
	})
}

func jiraRoutes(l *Ledger, mux *http.ServeMux) {
	shown := func(o map[string]any) map[string]any {
		return map[string]any{"id": o["id"], "key": o["key"], "self": o["self"]}
	}
	mux.HandleFunc("POST /rest/api/3/issue", func(w http.ResponseWriter, r *http.Request) {
		n := l.Next()
		writeJSON(w, 201, shown(l.Add("issues", fielded(readAny(r), map[string]any{"id": fmt.Sprint(n), "key": fmt.Sprintf("P-%d", n), "self": fmt.Sprintf("https://x.atlassian.net/rest/api/3/issue/%d", n)}))))
	})
	mux.HandleFunc("POST /rest/api/3/search/jql", func(w http.ResponseWriter, r *http.Request) {
		_, label, _ := strings.Cut(fmt.Sprint(readAny(r)["jql"]), `labels = "`)
		label, _, _ = strings.Cut(label, `"`)
		found := where(l, "issues", func(o map[string]any) bool {
			labels, _ := at(o, "fields", "labels").([]any)
			return slices.Contains(labels, any(label))
		})
		for i := range found {
			found[i] = shown(found[i].(map[string]any))
		}
		writeJSON(w, 200, map[string]any{"issues": found, "isLast": true})
	})
}

// Notion is pages, blocks and comments.
func Notion() Spec {
	return routed("notion", func(r *http.Request, _ map[string]any) bool {
		return r.Method == http.MethodPatch && !strings.HasSuffix(r.URL.Path, "/children")
	}, notionRoutes, []Case{
		{Operation: "pages.create", Method: "POST", Target: "/v1/pages", Header: asJSON(), Body: `{"parent":{"database_id":"d"}}`},
		{Operation: "comments.create", Method: "POST", Target: "/v1/comments", Header: asJSON(), Body: `{"rich_text":[]}`},
		{Operation: "blocks.append", Method: "PATCH", Target: "/v1/blocks/b1/children", Header: asJSON(), Body: `{"children":[]}`},
		{Operation: "pages.update", Method: "PATCH", Target: "/v1/pages/p1", Header: asJSON(), Body: `{"archived":true}`, Deduplicates: true},
		{Operation: "delete", Method: "DELETE", Target: "/v1/blocks/b2", Header: asJSON(), Deduplicates: true},
		{Operation: "other", Method: "POST", Target: "/v1/databases", Header: asJSON(), Body: `{"title":[]}`},
	})
}

func notionRoutes(l *Ledger, mux *http.ServeMux) {
	text := func(o map[string]any) any {
		texts, _ := at(o, "properties", "cf", "rich_text").([]any)
		if len(texts) == 0 {
			return nil
		}
		one, _ := texts[0].(map[string]any)
		return at(one, "text", "content")
	}
	mux.HandleFunc("POST /v1/pages", func(w http.ResponseWriter, r *http.Request) {
		writeJSON(w, 200, l.Add("pages", fielded(readAny(r), map[string]any{"object": "page", "created_time": l.Now().Truncate(time.Minute).Format("2006-01-02T15:04:05.000Z")})))
	})
	mux.HandleFunc("POST /v1/data_sources/{id}/query", func(w http.ResponseWriter, r *http.Request) {
		want := at(readAny(r), "filter", "rich_text", "equals")
		writeJSON(w, 200, map[string]any{"object": "list", "has_more": false, "results": where(l, "pages", func(o map[string]any) bool {
			return at(o, "parent", "data_source_id") == r.PathValue("id") && text(o) == want
		})})
	})
}

// Airtable is records of tables.
func Airtable() Spec {
	return routed("airtable", changes, airtableRoutes, []Case{
		{Operation: "records.upsert", Method: "PATCH", Target: "/v0/app1/Orders", Header: asJSON(), Body: `{"performUpsert":{"fieldsToMergeOn":["cf"]},"records":[{"fields":{"cf":"1"}}]}`, Deduplicates: true},
		{Operation: "records.update", Method: "PATCH", Target: "/v0/app1/Orders/rec1", Header: asJSON(), Body: `{"fields":{"a":1}}`, Deduplicates: true},
		{Operation: "records.create", Method: "POST", Target: "/v0/app1/Orders", Header: asJSON(), Body: `{"records":[{"fields":{"a":1}}]}`},
		{Operation: "delete", Method: "DELETE", Target: "/v0/app1/Orders/rec2", Header: asJSON(), Deduplicates: true},
		{Operation: "other", Method: "POST", Target: "/v0/meta/bases/app1/tables", Header: asJSON(), Body: `{"name":"t"}`},
	})
}

func airtableRoutes(l *Ledger, mux *http.ServeMux) {
	mux.HandleFunc("POST /v0/{base}/{table}", func(w http.ResponseWriter, r *http.Request) {
		in := readAny(r)
		in["createdTime"] = l.Now().Format("2006-01-02T15:04:05.000Z")
		writeJSON(w, 200, l.Add(r.URL.Path, in))
	})
	mux.HandleFunc("GET /v0/{base}/{table}", func(w http.ResponseWriter, r *http.Request) {
		writeJSON(w, 200, map[string]any{"records": where(l, r.URL.Path, func(o map[string]any) bool {
			return r.URL.Query().Get("filterByFormula") == fmt.Sprintf("{cf}='%v'", at(o, "fields", "cf"))
		})})
	})
}

// HubSpot is objects of the CRM.
func HubSpot() Spec {
	return routed("hubspot", func(r *http.Request, in map[string]any) bool {
		return changes(r, in) || strings.HasSuffix(r.URL.Path, "/batch/upsert")
	}, hubspotRoutes, []Case{
		{Operation: "batch.upsert", Method: "POST", Target: "/crm/v3/objects/contacts/batch/upsert", Header: asJSON(), Body: `{"inputs":[{"idProperty":"cf_id","id":"1"}]}`, Deduplicates: true},
		{Operation: "objects.create", Method: "POST", Target: "/crm/v3/objects/contacts", Header: asJSON(), Body: `{"properties":{"email":"a@b.c"}}`},
		{Operation: "objects.update", Method: "PATCH", Target: "/crm/v3/objects/contacts/7", Header: asJSON(), Body: `{"properties":{"city":"x"}}`, Deduplicates: true},
		{Operation: "delete", Method: "DELETE", Target: "/crm/v3/objects/contacts/8", Header: asJSON(), Deduplicates: true},
		{Operation: "other", Method: "POST", Target: "/crm/v3/lists", Header: asJSON(), Body: `{"name":"l"}`},
	})
}

func hubspotRoutes(l *Ledger, mux *http.ServeMux) {
	mux.HandleFunc("POST /crm/v3/objects/{type}", func(w http.ResponseWriter, r *http.Request) {
		writeJSON(w, 201, l.Add(r.URL.Path, fielded(readAny(r), map[string]any{"createdAt": l.Now().Format("2006-01-02T15:04:05.000Z"), "archived": false})))
	})
	mux.HandleFunc("GET /crm/v3/objects/{type}/{value}", func(w http.ResponseWriter, r *http.Request) {
		first(w, where(l, strings.TrimSuffix(r.URL.Path, "/"+r.PathValue("value")), func(o map[string]any) bool {
			return at(o, "properties", r.URL.Query().Get("idProperty")) == r.PathValue("value")
		}))
	})
}

// Salesforce is records of objects.
func Salesforce() Spec {
	return routed("salesforce", changes, salesforceRoutes, []Case{
		{Operation: "sobjects.upsert", Method: "PATCH", Target: "/services/data/v60.0/sobjects/Account/CF_Id__c/1", Header: asJSON(), Body: `{"Name":"x"}`, Deduplicates: true},
		{Operation: "sobjects.update", Method: "PATCH", Target: "/services/data/v60.0/sobjects/Account/001", Header: asJSON(), Body: `{"Name":"y"}`, Deduplicates: true},
		{Operation: "sobjects.create", Method: "POST", Target: "/services/data/v60.0/sobjects/Account", Header: asJSON(), Body: `{"Name":"z"}`},
		{Operation: "composite", Method: "POST", Target: "/services/data/v60.0/composite/sobjects", Header: asJSON(), Body: `{"records":[]}`},
		{Operation: "delete", Method: "DELETE", Target: "/services/data/v60.0/sobjects/Account/002", Header: asJSON(), Deduplicates: true},
		{Operation: "other", Method: "POST", Target: "/services/apexrest/x", Header: asJSON(), Body: `{}`},
	})
}

func salesforceRoutes(l *Ledger, mux *http.ServeMux) {
	mux.HandleFunc("POST /services/data/{v}/sobjects/{object}", func(w http.ResponseWriter, r *http.Request) {
		id := fmt.Sprintf("001%015d", l.Next())
		l.Add(r.URL.Path, fielded(readAny(r), map[string]any{"id": id, "Id": id, "CreatedDate": l.Now().Format("2006-01-02T15:04:05.000+0000")}))
		writeJSON(w, 201, map[string]any{"id": id, "success": true, "errors": []any{}})
	})
	mux.HandleFunc("GET /services/data/{v}/sobjects/{object}/{field}/{value}", func(w http.ResponseWriter, r *http.Request) {
		of, field, value := r.URL.Path, r.PathValue("field"), r.PathValue("value")
		first(w, where(l, strings.TrimSuffix(of, "/"+field+"/"+value), func(o map[string]any) bool { return o[field] == value }))
	})
}

// Intercom is contacts, companies and conversations.
func Intercom() Spec {
	return simple("intercom", func(r *http.Request, _ map[string]any) bool {
		return r.Method == http.MethodPut || r.URL.Path == "/companies" || r.URL.Path == "/ai/external_pages"
	}, []Case{
		{Operation: "companies.put", Method: "POST", Target: "/companies", Header: asJSON(), Body: `{"company_id":"c1","name":"x"}`, Deduplicates: true},
		{Operation: "externalPages.put", Method: "POST", Target: "/ai/external_pages", Header: asJSON(), Body: `{"source_id":1,"external_id":"p1","title":"x"}`, Deduplicates: true},
		{Operation: "contacts.create", Method: "POST", Target: "/contacts", Header: asJSON(), Body: `{"external_id":"u1"}`},
		{Operation: "messages.create", Method: "POST", Target: "/messages", Header: asJSON(), Body: `{"body":"hi"}`},
		{Operation: "conversations.reply", Method: "POST", Target: "/conversations/1/reply", Header: asJSON(), Body: `{"body":"hi"}`},
		{Operation: "put", Method: "PUT", Target: "/contacts/7", Header: asJSON(), Body: `{"name":"y"}`, Deduplicates: true},
		{Operation: "delete", Method: "DELETE", Target: "/contacts/8", Header: asJSON(), Deduplicates: true},
		{Operation: "other", Method: "POST", Target: "/tags", Header: asJSON(), Body: `{"name":"t"}`},
	})
}

// Asana is tasks and stories.
func Asana() Spec {
	return routed("asana", changes, asanaRoutes, []Case{
		{Operation: "tasks.createExternal", Method: "POST", Target: "/api/1.0/tasks", Header: asJSON(), Body: `{"data":{"name":"x","external":{"gid":"plan-7-step-2"}}}`},
		{Operation: "tasks.create", Method: "POST", Target: "/api/1.0/tasks", Header: asJSON(), Body: `{"data":{"name":"x"}}`},
		{Operation: "stories.create", Method: "POST", Target: "/api/1.0/tasks/1/stories", Header: asJSON(), Body: `{"data":{"text":"x"}}`},
		{Operation: "tasks.update", Method: "PUT", Target: "/api/1.0/tasks/1", Header: asJSON(), Body: `{"data":{"completed":true}}`, Deduplicates: true},
		{Operation: "delete", Method: "DELETE", Target: "/api/1.0/tasks/2", Header: asJSON(), Deduplicates: true},
		{Operation: "other", Method: "POST", Target: "/api/1.0/projects", Header: asJSON(), Body: `{"data":{"name":"p"}}`},
	})
}

func asanaRoutes(l *Ledger, mux *http.ServeMux) {
	shown := func(o map[string]any) map[string]any { return map[string]any{"data": o} }
	mux.HandleFunc("POST /api/1.0/tasks", func(w http.ResponseWriter, r *http.Request) {
		data, _ := readAny(r)["data"].(map[string]any)
		writeJSON(w, 201, shown(l.Add("tasks", fielded(data, map[string]any{"gid": fmt.Sprint(l.Next()), "created_at": l.Now().Format("2006-01-02T15:04:05.000Z")}))))
	})
	mux.HandleFunc("GET /api/1.0/tasks/{gid}", func(w http.ResponseWriter, r *http.Request) {
		found := where(l, "tasks", func(o map[string]any) bool {
			return "external:"+fmt.Sprint(at(o, "external", "gid")) == r.PathValue("gid")
		})
		for i := range found {
			found[i] = shown(found[i].(map[string]any))
		}
		first(w, found)
	})
}

// Trello is cards and comments.
func Trello() Spec {
	return simple("trello", changes, []Case{
		{Operation: "cards.create", Method: "POST", Target: "/1/cards?idList=l1&name=x", Header: asJSON()},
		{Operation: "comments.create", Method: "POST", Target: "/1/cards/c1/actions/comments?text=x", Header: asJSON()},
		{Operation: "put", Method: "PUT", Target: "/1/cards/c1?closed=true", Header: asJSON(), Deduplicates: true},
		{Operation: "delete", Method: "DELETE", Target: "/1/cards/c2", Header: asJSON(), Deduplicates: true},
		{Operation: "other", Method: "POST", Target: "/1/boards?name=b", Header: asJSON()},
	})
}

// AWS is any of its services: requests are signed.
func AWS() Spec {
	target := asJSON()
	target.Set("X-Amz-Target", "DynamoDB_20120810.PutItem")
	target.Set("Authorization", "AWS4-HMAC-SHA256 Credential=x/20270101/eu-west-1/dynamodb/aws4_request, SignedHeaders=host, Signature=0")
	signed := http.Header{"Authorization": target["Authorization"]}
	return simple("aws", nil, []Case{
		{Operation: "effect", Method: "POST", Target: "/", Header: target, Body: `{"TableName":"t"}`},
		{Operation: "url.effect", Method: "POST", Target: "/?Action=RunInstances&MinCount=1", Header: signed},
	})
}
