package llm

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
)

// A question is the body of a request, and where it went. Its members are
// looked at as they are spelled: encoding/json would take Model for model.
type question struct {
	path    string
	members map[string]json.RawMessage
}

// parseQuestion returns false for what is no JSON object.
func parseQuestion(path string, body []byte) (*question, bool) {
	q := &question{path: path}
	if first(body) != '{' || json.Unmarshal(body, &q.members) != nil {
		return nil, false
	}
	return q, true
}

// namesModel reports whether the body names a model, or the path does, as
// Azure's does.
func (q *question) namesModel() bool {
	return q.isText("model") || strings.Contains(q.path, "/deployments/")
}

// hasTurns reports whether messages are turns of a conversation.
func (q *question) hasTurns() bool {
	turns := listOf(q.members["messages"])
	return len(turns) > 0 && turns[0].text("role") != ""
}

func (q *question) isText(name string) bool   { return first(q.members[name]) == '"' }
func (q *question) isList(name string) bool   { return first(q.members[name]) == '[' }
func (q *question) isObject(name string) bool { return first(q.members[name]) == '{' }
func (q *question) isSet(name string) bool    { return has(q.members[name]) }

func (q *question) isFilled(name string) bool {
	return q.isSet(name) && !bytes.Equal(bytes.Join(bytes.Fields(q.members[name]), nil), []byte("[]"))
}

func (q *question) isTrue(name string) bool {
	return bytes.Equal(bytes.TrimSpace(q.members[name]), []byte("true"))
}

func (q *question) isNumber(name string) bool {
	c := first(q.members[name])
	return c >= '0' && c <= '9'
}

// anyTool reports whether one of the tools does what acts says, or tools are
// something that cannot be read.
func (q *question) anyTool(acts func(tool) bool) bool {
	if !q.isSet("tools") {
		return false
	}
	if !q.isList("tools") {
		return true
	}
	return slices.ContainsFunc(listOf(q.members["tools"]), acts)
}

// listOf returns the objects of a list; one that is no object comes as nil.
func listOf(raw json.RawMessage) []tool {
	var items []json.RawMessage
	if json.Unmarshal(raw, &items) != nil {
		return nil
	}
	objects := make([]tool, len(items))
	for i, item := range items {
		objects[i] = objectOf(item)
	}
	return objects
}

func objectOf(raw json.RawMessage) tool {
	var t tool
	if json.Unmarshal(raw, &t) != nil {
		return nil
	}
	return t
}

// has reports whether a member is there and not null.
func has(raw json.RawMessage) bool { return first(raw) != 0 && first(raw) != 'n' }

// first is the first byte that is no white space, 0 if there is none.
func first(raw []byte) byte {
	for _, c := range raw {
		if c != ' ' && c != '\t' && c != '\n' && c != '\r' {
			return c
		}
	}
	return 0
}
