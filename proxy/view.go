package proxy

import (
	"counterfoil/internal/view"
	"counterfoil/keystore"
)

func viewCalls(l keystore.List[*keystore.Record]) *view.List[*view.Call] {
	return view.ListOf(l, viewCall)
}

// viewCall says where the response itself is.
func viewCall(r *keystore.Record) *view.Call {
	v := view.CallOf(r, view.Agent)
	if v.Receipt != nil {
		v.Receipt.URL = callPath(r.Key) + "/receipt"
	}
	return v
}
