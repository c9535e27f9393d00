package fake

import (
	"net/http"
	"strings"
)

// simple is a provider of which the adapter recognises requests, and finds nothing
// again. Sets says which POSTs set a state.
func simple(adapter string, sets func(r *http.Request, in map[string]any) bool, cases []Case) Spec {
	return Spec{Adapter: adapter, Cases: cases, New: func(l *Ledger) http.Handler {
		return &rest{ledger: l, sets: func(r *http.Request, in map[string]any) bool {
			return sets != nil && sets(r, in)
		}}
	}}
}

// changes reports whether a request sets a state by its method.
func changes(r *http.Request, _ map[string]any) bool {
	return r.Method == http.MethodPut || r.Method == http.MethodPatch
}

// Jira is issues, comments and transitions.
func Jira() Spec {
	return simple("jira", func(r *http.Request, in map[string]any) bool {
		return r.Method == http.MethodPut && in["update"] == nil
	}, []Case{
		{Operation: "issues.create", Method: "POST", Target: "/rest/api/3/issue", Header: asJSON(), Body: `{"fields":{"summary":"x"}}`},
		{Operation: "comments.create", Method: "POST", Target: "/rest/api/3/issue/P-1/comment", Header: asJSON(), Body: `{"body":{}}`},
		{Operation: "transitions.do", Method: "POST", Target: "/rest/api/3/issue/P-1/transitions", Header: asJSON(), Body: `{"transition":{"id":"5"}}`},
		{Operation: "issues.set", Method: "PUT", Target: "/rest/api/3/issue/P-1", Header: asJSON(), Body: `{"fields":{"summary":"y"}}`, Deduplicates: true},
		{Operation: "delete", Method: "DELETE", Target: "/rest/api/3/issue/P-2", Header: asJSON(), Deduplicates: true},
		{Operation: "other", Method: "PUT", Target: "/rest/api/3/issue/P-3", Header: asJSON(), Body: `{"update":{"labels":[{"add":"x"}]}}`},
	})
}

// Notion is pages, blocks and comments.
func Notion() Spec {
	return simple("notion", func(r *http.Request, _ map[string]any) bool {
		return r.Method == http.MethodPatch && !strings.HasSuffix(r.URL.Path, "/children")
	}, []Case{
		{Operation: "pages.create", Method: "POST", Target: "/v1/pages", Header: asJSON(), Body: `{"parent":{"database_id":"d"}}`},
		{Operation: "comments.create", Method: "POST", Target: "/v1/comments", Header: asJSON(), Body: `{"rich_text":[]}`},
		{Operation: "blocks.append", Method: "PATCH", Target: "/v1/blocks/b1/children", Header: asJSON(), Body: `{"children":[]}`},
		{Operation: "pages.update", Method: "PATCH", Target: "/v1/pages/p1", Header: asJSON(), Body: `{"archived":true}`, Deduplicates: true},
		{Operation: "delete", Method: "DELETE", Target: "/v1/blocks/b2", Header: asJSON(), Deduplicates: true},
		{Operation: "other", Method: "POST", Target: "/v1/databases", Header: asJSON(), Body: `{"title":[]}`},
	})
}

// Airtable is records of tables.
func Airtable() Spec {
	return simple("airtable", changes, []Case{
		{Operation: "records.upsert", Method: "PATCH", Target: "/v0/app1/Orders", Header: asJSON(), Body: `{"performUpsert":{"fieldsToMergeOn":["cf"]},"records":[{"fields":{"cf":"1"}}]}`, Deduplicates: true},
		{Operation: "records.update", Method: "PATCH", Target: "/v0/app1/Orders/rec1", Header: asJSON(), Body: `{"fields":{"a":1}}`, Deduplicates: true},
		{Operation: "records.create", Method: "POST", Target: "/v0/app1/Orders", Header: asJSON(), Body: `{"records":[{"fields":{"a":1}}]}`},
		{Operation: "delete", Method: "DELETE", Target: "/v0/app1/Orders/rec2", Header: asJSON(), Deduplicates: true},
		{Operation: "other", Method: "POST", Target: "/v0/meta/bases/app1/tables", Header: asJSON(), Body: `{"name":"t"}`},
	})
}

// HubSpot is objects of the CRM.
func HubSpot() Spec {
	return simple("hubspot", func(r *http.Request, in map[string]any) bool {
		return changes(r, in) || strings.HasSuffix(r.URL.Path, "/batch/upsert")
	}, []Case{
		{Operation: "batch.upsert", Method: "POST", Target: "/crm/v3/objects/contacts/batch/upsert", Header: asJSON(), Body: `{"inputs":[{"idProperty":"cf_id","id":"1"}]}`, Deduplicates: true},
		{Operation: "objects.create", Method: "POST", Target: "/crm/v3/objects/contacts", Header: asJSON(), Body: `{"properties":{"email":"a@b.c"}}`},
		{Operation: "objects.update", Method: "PATCH", Target: "/crm/v3/objects/contacts/7", Header: asJSON(), Body: `{"properties":{"city":"x"}}`, Deduplicates: true},
		{Operation: "delete", Method: "DELETE", Target: "/crm/v3/objects/contacts/8", Header: asJSON(), Deduplicates: true},
		{Operation: "other", Method: "POST", Target: "/crm/v3/lists", Header: asJSON(), Body: `{"name":"l"}`},
	})
}

// Salesforce is records of objects.
func Salesforce() Spec {
	return simple("salesforce", changes, []Case{
		{Operation: "sobjects.upsert", Method: "PATCH", Target: "/services/data/v60.0/sobjects/Account/CF_Id__c/1", Header: asJSON(), Body: `{"Name":"x"}`, Deduplicates: true},
		{Operation: "sobjects.update", Method: "PATCH", Target: "/services/data/v60.0/sobjects/Account/001", Header: asJSON(), Body: `{"Name":"y"}`, Deduplicates: true},
		{Operation: "sobjects.create", Method: "POST", Target: "/services/data/v60.0/sobjects/Account", Header: asJSON(), Body: `{"Name":"z"}`},
		{Operation: "composite", Method: "POST", Target: "/services/data/v60.0/composite/sobjects", Header: asJSON(), Body: `{"records":[]}`},
		{Operation: "delete", Method: "DELETE", Target: "/services/data/v60.0/sobjects/Account/002", Header: asJSON(), Deduplicates: true},
		{Operation: "other", Method: "POST", Target: "/services/apexrest/x", Header: asJSON(), Body: `{}`},
	})
}

// Intercom is contacts, companies and conversations.
func Intercom() Spec {
	return simple("intercom", func(r *http.Request, _ map[string]any) bool {
		return r.Method == http.MethodPut || r.URL.Path == "/companies"
	}, []Case{
		{Operation: "companies.put", Method: "POST", Target: "/companies", Header: asJSON(), Body: `{"company_id":"c1","name":"x"}`, Deduplicates: true},
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
	return simple("asana", changes, []Case{
		{Operation: "tasks.create", Method: "POST", Target: "/api/1.0/tasks", Header: asJSON(), Body: `{"data":{"name":"x"}}`},
		{Operation: "stories.create", Method: "POST", Target: "/api/1.0/tasks/1/stories", Header: asJSON(), Body: `{"data":{"text":"x"}}`},
		{Operation: "tasks.update", Method: "PUT", Target: "/api/1.0/tasks/1", Header: asJSON(), Body: `{"data":{"completed":true}}`, Deduplicates: true},
		{Operation: "delete", Method: "DELETE", Target: "/api/1.0/tasks/2", Header: asJSON(), Deduplicates: true},
		{Operation: "other", Method: "POST", Target: "/api/1.0/projects", Header: asJSON(), Body: `{"data":{"name":"p"}}`},
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
