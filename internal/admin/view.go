package admin

import (
	"net/url"
	"strings"

	"counterfoil/internal/view"
	"counterfoil/keystore"
)

func viewCall(r *keystore.Record) *view.Call { return view.CallOf(r, view.Operator) }

// RunPath is where the API shows a run, CallPath where it shows a call, with
// every part percent-encoded. The namespace goes into the query.
func RunPath(run string) string { return "/api/v1/runs/" + segment(run) }

// CallPath is where the API shows the call.
func CallPath(k keystore.Key) string {
	return "/api/v1/calls/" + segment(k.Run) + "/" + segment(k.Turn) + "/" + segment(k.Call)
}

// segment spells a part so that no client and no router takes it for a dot
// segment.
func segment(part string) string {
	if part == "." || part == ".." {
		return strings.ReplaceAll(part, ".", "%2E")
	}
	return url.PathEscape(part)
}
