package graphql

import (
	"errors"

	"github.com/vektah/gqlparser/v2/ast"
)

// rootsMax bounds the root fields of one operation.
const rootsMax = 100

// Reasons why an operation cannot be told.
var (
	errNoOperation  = errors.New("the document has several operations, and the request names none of them")
	errTwice        = errors.New("two operations or fragments bear one name")
	errFragment     = errors.New("a fragment is not there, or holds itself")
	errTooManyRoots = errors.New("the operation has too many root fields")
)

// An operation is one of a document's, with its root fields.
type operation struct {
	doc   *document
	tree  *ast.OperationDefinition
	roots []*ast.Field
}

// readOperations finds the root fields of every operation.
func (d *document) readOperations() error {
	fragments := map[string]bool{}
	for _, f := range d.tree.Fragments {
		if fragments[f.Name] {
			return errTwice
		}
		fragments[f.Name] = true
	}
	d.operations = make(map[string]*operation, len(d.tree.Operations))
	for _, tree := range d.tree.Operations {
		if d.operations[tree.Name] != nil {
			return errTwice
		}
		fields, err := d.flatten(tree.SelectionSet)
		if err != nil {
			return err
		}
		op := &operation{doc: d, tree: tree}
		for _, f := range fields {
			op.roots = append(op.roots, f.field)
		}
		d.operations[tree.Name] = op
	}
	return nil
}

// chosen returns the operation that name picks. A name that is empty picks the
// only one.
func (d *document) chosen(name string) (*operation, error) {
	if name == "" && len(d.tree.Operations) == 1 {
		name = d.tree.Operations[0].Name
	}
	if op := d.operations[name]; op != nil && (name != "" || len(d.operations) == 1) {
		return op, nil
	}
	return nil, errNoOperation
}

func (d *document) fragment(name string) *ast.FragmentDefinition {
	return d.tree.Fragments.ForName(name)
}

// A selected is one field of a flattened selection set. Conditional says that a
// fragment around it bears a directive, so that it may be left out.
type selected struct {
	field       *ast.Field
	conditional bool
}

// flatten returns the fields of a selection set, those of fragments included:
// whatever their conditions, any may be carried out.
func (d *document) flatten(set ast.SelectionSet) ([]selected, error) {
	var list []selected
	err := d.flattenInto(&list, set, false, map[string]bool{})
	return list, err
}

// flattenInto keeps the fragments that are open, so that none holds itself.
func (d *document) flattenInto(list *[]selected, set ast.SelectionSet, conditional bool, open map[string]bool) error {
	for _, s := range set {
		var err error
		switch s := s.(type) {
		case *ast.Field:
			*list = append(*list, selected{s, conditional})
			if len(*list) > rootsMax {
				return errTooManyRoots
			}
		case *ast.InlineFragment:
			err = d.flattenInto(list, s.SelectionSet, conditional || len(s.Directives) > 0, open)
		case *ast.FragmentSpread:
			f := d.fragment(s.Name)
			if f == nil || open[s.Name] || len(open) > rootsMax {
				return errFragment
			}
			open[s.Name] = true
			err = d.flattenInto(list, f.SelectionSet, conditional || len(s.Directives) > 0, open)
			delete(open, s.Name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
