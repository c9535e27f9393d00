package graphql

import (
	"encoding/json"
	"strings"

	"counterfoil/classify"

	"github.com/vektah/gqlparser/v2/ast"
)

// payload judges what a mutation field returned by the errors that it lists in
// userErrors, as Shopify has it: Applied where it lists none, Rejected where it
// lists some and every object that was asked for is null.
func (c *mutation) payload(set ast.SelectionSet, value json.RawMessage) classify.Outcome {
	var members map[string]json.RawMessage
	if json.Unmarshal(value, &members) != nil {
		return classify.Applied // a scalar, or a list
	}
	fields, err := c.op.doc.flatten(set)
	if err != nil {
		return classify.Ambiguous
	}
	listed, nulls, objects := false, 0, 0
	for _, f := range fields {
		raw, there := members[f.field.Alias]
		switch {
		case isErrorList(f.field.Name):
			var list []json.RawMessage
			listed = listed || json.Unmarshal(raw, &list) == nil && len(list) > 0
		case len(f.field.SelectionSet) == 0:
		case !there || string(raw) == "null":
			nulls++
		default:
			objects++
		}
	}
	switch {
	case !listed:
		return classify.Applied
	case nulls > 0 && objects == 0:
		return classify.Rejected
	}
	return classify.Ambiguous
}

func isErrorList(name string) bool {
	return name == "userErrors" || strings.HasSuffix(name, "UserErrors")
}
