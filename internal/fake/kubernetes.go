package fake

import (
	"fmt"
	"net/http"
	"strings"
)

// Kubernetes is objects that are known by their names.
func Kubernetes() Spec {
	return Spec{Adapter: "kubernetes", New: func(l *Ledger) http.Handler { return &kubernetes{l, &rest{ledger: l, sets: changes}} }, Cases: []Case{
		{Operation: "create", Method: "POST", Target: "/api/v1/namespaces/default/configmaps", Header: asJSON(), Body: `{"metadata":{"name":"a"},"data":{}}`, Deduplicates: true},
		{Operation: "createInGroup", Method: "POST", Target: "/apis/batch/v1/namespaces/default/jobs", Header: asJSON(), Body: `{"metadata":{"name":"a"},"spec":{}}`, Deduplicates: true},
		{Operation: "replace", Method: "PUT", Target: "/api/v1/namespaces/default/configmaps/b", Header: asJSON(), Body: `{"metadata":{"name":"b","resourceVersion":"1"}}`, Deduplicates: true},
		{Operation: "apply", Method: "PATCH", Target: "/api/v1/namespaces/default/configmaps/c?fieldManager=x", Header: http.Header{"Content-Type": {"application/apply-patch+yaml"}}, Body: "data: {}", Deduplicates: true},
		{Operation: "createInCluster", Method: "POST", Target: "/api/v1/namespaces", Header: asJSON(), Body: `{"metadata":{"name":"team-a"}}`, Deduplicates: true},
		{Operation: "createInGroupInCluster", Method: "POST", Target: "/apis/rbac.authorization.k8s.io/v1/clusterroles", Header: asJSON(), Body: `{"metadata":{"name":"reader"},"rules":[]}`, Deduplicates: true},
		{Operation: "mergePatch", Method: "PATCH", Target: "/api/v1/namespaces/default/configmaps/e", Header: http.Header{"Content-Type": {"application/merge-patch+json"}}, Body: `{"data":{"a":"1"}}`, Deduplicates: true},
		{Operation: "delete", Method: "DELETE", Target: "/api/v1/namespaces/default/configmaps/d", Header: asJSON(), Deduplicates: true},
		{Operation: "delete.exact", Method: "DELETE", Target: "/api/v1/namespaces/default/pods/web-0", Header: asJSON(), Body: `{"preconditions":{"uid":"7b0c"}}`, Deduplicates: true},
		{Operation: "pods.delete", Method: "DELETE", Target: "/api/v1/namespaces/default/pods/web-1", Header: asJSON()},
		{Operation: "deleteCollection", Method: "DELETE", Target: "/api/v1/namespaces/default/configmaps?labelSelector=a%3Db", Header: asJSON()},
		{Operation: "deleteCollectionInGroup", Method: "DELETE", Target: "/apis/batch/v1/namespaces/default/jobs", Header: asJSON()},
		{Operation: "deleteCollectionInCluster", Method: "DELETE", Target: "/api/v1/persistentvolumes?labelSelector=a%3Db", Header: asJSON()},
		{Operation: "deleteCollectionInGroupInCluster", Method: "DELETE", Target: "/apis/rbac.authorization.k8s.io/v1/clusterroles?labelSelector=a%3Db", Header: asJSON()},
		{Operation: "other", Method: "POST", Target: "/api/v1/namespaces/default/pods", Header: asJSON(), Body: `{"metadata":{"generateName":"p-"}}`},
		{Operation: "pods.exec", Method: "POST", Target: "/api/v1/namespaces/default/pods/p/exec", Header: asJSON()},
		{Operation: "pods.attach", Method: "POST", Target: "/api/v1/namespaces/default/pods/p/attach", Header: asJSON()},
		{Operation: "pods.portforward", Method: "POST", Target: "/api/v1/namespaces/default/pods/p/portforward", Header: asJSON()},
		{Operation: "proxy", Method: "POST", Target: "/api/v1/namespaces/default/services/s/proxy/run", Header: asJSON()},
	}}
}

type kubernetes struct {
	ledger *Ledger
	other  *rest
}

func (k *kubernetes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	kind := r.URL.Path
	switch r.Method {
	case http.MethodGet:
		at := strings.LastIndexByte(kind, '/')
		for _, o := range k.ledger.Visible(kind[:at]) {
			if o["id"] == kind[at+1:] {
				delete(o, "id")
				writeJSON(w, 200, o)
				return
			}
		}
		k.status(w, 404, "NotFound")
	case http.MethodPut:
		k.replace(w, r)
	case http.MethodPost:
		k.create(w, r)
	case http.MethodDelete:
		k.remove(w, r)
	default:
		k.other.ServeHTTP(w, r)
	}
}

func (k *kubernetes) status(w http.ResponseWriter, status int, reason string) {
	writeJSON(w, status, map[string]any{"kind": "Status", "status": "Failure", "reason": reason, "code": status})
}

func (k *kubernetes) create(w http.ResponseWriter, r *http.Request) {
	in := readAny(r)
	meta, _ := in["metadata"].(map[string]any)
	if meta == nil {
		meta = map[string]any{}
	}
	if meta["name"] == nil {
		meta["name"] = fmt.Sprint(orNone(meta["generateName"]), k.ledger.Next())
	}
	if k.ledger.Get(r.URL.Path, meta["name"]) != nil {
		k.status(w, 409, "AlreadyExists")
		return
	}
	in["metadata"], in["id"] = meta, meta["name"]
	made := k.ledger.Add(r.URL.Path, in)
	delete(made, "id")
	writeJSON(w, 201, made)
}

// remove deletes what has a name and stays away; pods are there anew under their
// names, and collections are filled again, so that each repeat deletes more.
func (k *kubernetes) remove(w http.ResponseWriter, r *http.Request) {
	in := readAny(r)
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	if parts[0] == "apis" {
		parts = parts[1:]
	}
	parts = parts[2:]
	if len(parts) > 2 && parts[0] == "namespaces" {
		parts = parts[2:]
	}
	if in["preconditions"] == nil && (len(parts) == 1 || parts[0] == "pods") {
		k.ledger.Add("removed", map[string]any{"of": r.URL.Path})
		writeJSON(w, 200, map[string]any{"kind": "Status", "status": "Success"})
		return
	}
	k.other.ServeHTTP(w, r)
}

func (k *kubernetes) replace(w http.ResponseWriter, r *http.Request) {
	in := readAny(r)
	meta, _ := in["metadata"].(map[string]any)
	now := k.ledger.Get("replaced", r.URL.Path)
	if now != nil && now["version"] != meta["resourceVersion"] {
		k.status(w, 409, "Conflict")
		return
	}
	k.ledger.Add("replaced", map[string]any{"id": r.URL.Path, "version": "2"})
	writeJSON(w, 200, in)
}
