package adapters

import "testing"

// Every file is read without a complaint, bears the name of its file, and no
// two adapters claim a host.
func TestLoad(t *testing.T) {
	c, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, a := range c.All {
		if a.Name == "" || seen[a.Name] {
			t.Errorf("the name %q is missing or not unique", a.Name)
		}
		seen[a.Name] = true
		if c.Named(a.Name) != a {
			t.Errorf("Named(%q) is another adapter", a.Name)
		}
		if text, err := c.Text(a.Name); err != nil || len(text) == 0 {
			t.Errorf("Text(%q): %d bytes, %v; an adapter bears the name of its file", a.Name, len(text), err)
		}
	}
}
