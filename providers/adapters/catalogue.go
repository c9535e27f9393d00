package adapters

import (
	"embed"
	"fmt"
	"path"
	"slices"
	"strings"

	"counterfoil/providers"

	"go.yaml.in/yaml/v3"
)

//go:embed *.yaml
var files embed.FS

// A Catalogue is every built-in adapter.
type Catalogue struct {
	// All are the adapters in the order of their names.
	All []*providers.Adapter
}

// Load reads the built-in adapters. An error is a mistake in this program.
func Load() (*Catalogue, error) {
	c := &Catalogue{}
	entries, err := files.ReadDir(".")
	if err != nil {
		return nil, fmt.Errorf("listing the built-in adapters: %w", err)
	}
	for _, e := range entries {
		a, err := load(e.Name())
		if err != nil {
			return nil, err
		}
		c.All = append(c.All, a)
	}
	slices.SortFunc(c.All, func(a, b *providers.Adapter) int { return strings.Compare(a.Name, b.Name) })
	return c, nil
}

func load(file string) (*providers.Adapter, error) {
	text, err := files.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading the built-in adapter %s: %w", file, err)
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, fmt.Errorf("the built-in adapter %s: %w", file, err)
	}
	a, err := providers.Parse(providers.Position{Source: path.Join("adapters", file)}, &doc)
	if err != nil {
		return nil, fmt.Errorf("the built-in adapter %s:\n%w", file, err)
	}
	return a, nil
}

// ForHost returns what is known of the provider that answers at that host, in
// lower case and without port; nil if nothing is. Where there are several
// adapters, those that read content come first: what they do not know is left to
// the others.
func (c *Catalogue) ForHost(host string) *providers.Adapter {
	var byContent, others *providers.Adapter
	for _, a := range c.All {
		switch {
		case !a.ServesHost(host):
		case len(a.Dialects) > 0:
			byContent = providers.Join(byContent, a)
		default:
			others = providers.Join(others, a)
		}
	}
	return providers.Join(byContent, others)
}

// Named returns the adapter of that name, nil if there is none.
func (c *Catalogue) Named(name string) *providers.Adapter {
	for _, a := range c.All {
		if a.Name == name {
			return a
		}
	}
	return nil
}

// Names lists the names of all adapters in order.
func (c *Catalogue) Names() []string {
	names := make([]string, len(c.All))
	for i, a := range c.All {
		names[i] = a.Name
	}
	return names
}

// Text returns the file of the adapter of that name, as it is written.
func (c *Catalogue) Text(name string) ([]byte, error) {
	if c.Named(name) == nil {
		return nil, fmt.Errorf("there is no built-in adapter %s; there are %s", name, strings.Join(c.Names(), ", "))
	}
	return files.ReadFile(name + ".yaml")
}
