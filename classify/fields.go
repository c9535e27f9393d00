package classify

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Fields are JSON fields that do not count. The zero value is none.
type Fields struct {
	root *fieldNode
}

// A fieldNode is one step on the way to an ignored field.
type fieldNode struct {
	names    []string
	children []*fieldNode
	ignored  bool
}

// ParseFields reads names of fields: "sent_at" is a member of that name at the
// top level, "/meta/trace" a JSON pointer (RFC 6901), in which a number may
// also be an array's index. What they name is passed over as if it were not
// there. The error joins every mistake.
func ParseFields(names []string) (Fields, error) {
	if len(names) == 0 {
		return Fields{}, nil
	}
	root, errs := &fieldNode{}, []error(nil)
	for _, name := range names {
		steps, err := fieldSteps(name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		root.add(steps)
	}
	return Fields{root}, errors.Join(errs...)
}

func fieldSteps(name string) ([]string, error) {
	if name == "" {
		return nil, errors.New(`field "" would be the whole body: name a member, or a JSON pointer like /meta/trace`)
	}
	if name[0] != '/' {
		return []string{name}, nil
	}
	steps := strings.Split(name[1:], "/")
	for i, s := range steps {
		bare := strings.NewReplacer("~0", "", "~1", "").Replace(s)
		if strings.Contains(bare, "~") {
			return nil, fmt.Errorf("field %q: in a JSON pointer write ~ as ~0 and / as ~1 (RFC 6901)", name)
		}
		steps[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(s)
	}
	return steps, nil
}

func (n *fieldNode) add(steps []string) {
	for _, s := range steps {
		i := slices.Index(n.names, s)
		if i < 0 {
			i = len(n.names)
			n.names = append(n.names, s)
			n.children = append(n.children, &fieldNode{})
		}
		n = n.children[i]
	}
	n.ignored = true
}

// member returns the node of a member, nil if nothing is ignored there. A nil
// node has no members.
func (n *fieldNode) member(name []byte) *fieldNode {
	if n == nil {
		return nil
	}
	for i := range n.names {
		if n.names[i] == string(name) {
			return n.children[i]
		}
	}
	return nil
}

func (n *fieldNode) element(index int) *fieldNode {
	if n == nil {
		return nil
	}
	return n.member(strconv.AppendInt(nil, int64(index), 10))
}

func (n *fieldNode) isIgnored() bool { return n != nil && n.ignored }
