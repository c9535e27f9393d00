package adapters

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"counterfoil/internal/fake"
	"counterfoil/providers"

	"go.yaml.in/yaml/v3"
)

// snippet is the operations that a provider's page shows for people to put under
// their upstream; nil if it shows none.
func snippet(t *testing.T, page string) *providers.Adapter {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	_, block, _ := strings.Cut(string(text), "```yaml\noperations:\n")
	block, _, closed := strings.Cut(block, "\n```")
	if block == "" {
		return nil
	}
	if !closed {
		t.Fatalf("%s: the block of operations has no end", page)
	}
	var list yaml.Node
	if err = yaml.Unmarshal([]byte(block), &list); err != nil {
		t.Fatalf("%s: %v", page, err)
	}
	a, err := providers.Parse(providers.Position{Source: page}, &list)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestSnippets reads the operations that the pages show, and recovers what they
// are for.
func TestSnippets(t *testing.T) {
	const path = "../../docs/providers/%s.md"
	cases := map[string]struct {
		spec fake.Spec
		fake.Case
	}{
		"jira":       {fake.Jira(), fake.Case{Operation: "issues.createLabelled", Target: "/rest/api/3/issue", Body: `{"fields":{"summary":"x","labels":["bug","cf-run7-step2"]}}`}},
		"gmail":      {fake.Gmail(), fake.Case{Operation: "messages.sendMarked", Target: "/gmail/v1/users/me/messages/send", Body: `{"raw":"U3ViamVjdDogaGkNCg0KYm9keQ"}`}},
		"notion":     {fake.Notion(), fake.Case{Operation: "pages.createNamed", Target: "/v1/pages", Body: `{"parent":{"data_source_id":"d1"},"properties":{"cf":{"rich_text":[{"text":{"content":"run7 step2"}}]}}}`}},
		"airtable":   {fake.Airtable(), fake.Case{Operation: "records.createMarked", Target: "/v0/app1/Orders", Body: `{"fields":{"a":1}}`}},
		"hubspot":    {fake.HubSpot(), fake.Case{Operation: "objects.createNamed", Target: "/crm/v3/objects/contacts", Body: `{"properties":{"email":"a@b.c"}}`}},
		"salesforce": {fake.Salesforce(), fake.Case{Operation: "sobjects.createNamed", Target: "/services/data/v60.0/sobjects/Account", Body: `{"Name":"x"}`}},
	}
	all, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	pages, err := filepath.Glob(fmt.Sprintf(path, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range pages {
		name := strings.TrimSuffix(filepath.Base(page), ".md")
		own := snippet(t, page)
		c, isTested := cases[name]
		delete(cases, name)
		if (own != nil) != isTested {
			t.Errorf("%s shows operations (%t), and is tested here (%t)", page, own != nil, isTested)
		}
		if own == nil || !isTested {
			continue
		}
		t.Run(name, func(t *testing.T) {
			c.Method, c.Header = "POST", c.spec.Cases[0].Header
			lookUp(t, providers.Join(own, bound(t, all, name)), c.spec, c.Case)
		})
	}
	for name := range cases {
		t.Errorf("there is no page of %s", name)
	}
}
