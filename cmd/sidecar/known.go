package main

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"counterfoil/internal/config"
	"counterfoil/providers"
	"counterfoil/providers/adapters"
	"counterfoil/providers/graphql"
	"counterfoil/providers/llm"
	"counterfoil/providers/mcp"

	"go.yaml.in/yaml/v3"
)

// known is what there is to be known about providers: the built-in adapters,
// and the files and operations that a configuration has.
type known struct {
	builtIn  *adapters.Catalogue
	readFile func(string) ([]byte, error)
}

func knownProviders(readFile func(string) ([]byte, error)) (*known, error) {
	c, err := adapters.Load()
	if err != nil {
		return nil, err
	}
	return &known{builtIn: c, readFile: readFile}, nil
}

// mistakes says what is wrong with what an upstream says of its provider.
func (k *known) mistakes(u *config.Upstream) []*config.Complaint {
	_, err := k.named(u)
	list := complaints(u.AdapterAt, err)
	if u.Operations.Node != nil {
		_, err := parseOperations(u.Operations)
		list = append(list, complaints(config.Complaint{Source: u.Operations.Source, Line: u.Operations.Node.Line, Path: u.Operations.Path}, err)...)
	}
	return list
}

// complaints are the mistakes in err in the configuration's form; one without a
// place of its own is at.
func complaints(at config.Complaint, err error) []*config.Complaint {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all []*config.Complaint
		for _, e := range joined.Unwrap() {
			all = append(all, complaints(at, e)...)
		}
		return all
	}
	var c *providers.Complaint
	switch {
	case err == nil:
		return nil
	case errors.As(err, &c):
		return []*config.Complaint{{Source: c.At.Source, Line: c.At.Line, Path: c.At.Path, Text: c.Text}}
	}
	at.Text = err.Error()
	return []*config.Complaint{&at}
}

// named is the adapter that an upstream names or its host picks; nil if none.
func (k *known) named(u *config.Upstream) (*providers.Adapter, error) {
	switch {
	case u.Adapter == config.NoAdapter:
		return nil, nil
	case u.Adapter.IsFile():
		return k.file(string(u.Adapter))
	case u.Adapter == "":
		return k.ofHost(u.URL), nil
	}
	if a := k.builtIn.Named(string(u.Adapter)); a != nil {
		return a, nil
	}
	return nil, fmt.Errorf("there is no built-in adapter %s: sidecar adapters lists them; a file of your own is named by its path, as in ./mine.yaml", u.Adapter)
}

func (k *known) file(name string) (*providers.Adapter, error) {
	text, err := k.readFile(name)
	if err != nil {
		return nil, fmt.Errorf("the adapter's file cannot be read: %w", err)
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, &providers.Complaint{At: providers.Position{Source: name}, Text: "no valid YAML: " + err.Error()}
	}
	return providers.Parse(providers.Position{Source: name}, &doc)
}

// generic is the adapter for hosts of which nothing is known: it recognises what
// can be told by its content alone.
const generic = "generic"

func (k *known) ofHost(target string) *providers.Adapter {
	at, err := url.Parse(target)
	if err != nil {
		return nil
	}
	if a := k.builtIn.ForHost(strings.ToLower(at.Hostname())); a != nil {
		return a
	}
	return k.builtIn.Named(generic)
}

// dialects is the Go that reads content, by the names that adapters use.
var dialects = providers.Dialects{
	"llm": llm.New, "graphql": graphql.New, "mcp": mcp.New,
}

// adapter is all that is known about an upstream's provider: its own operations
// first, then the adapter that it names or its host picks.
func (k *known) adapter(u *config.Upstream) (a *providers.Adapter, warnings []string, err error) {
	var own *providers.Adapter
	if u.Operations.Node != nil {
		if own, err = parseOperations(u.Operations); err != nil {
			return nil, nil, err
		}
		warnings = providers.Warnings(own)
	}
	named, err := k.named(u)
	if err != nil {
		return nil, nil, err
	}
	if u.Adapter.IsFile() {
		warnings = append(warnings, providers.Warnings(named)...)
	}
	settings := providers.Settings{TrustAnnotations: u.TrustAnnotations}
	if at, err := url.Parse(u.URL); err == nil {
		settings.BasePath, settings.Host = strings.TrimSuffix(at.EscapedPath(), "/"), strings.ToLower(at.Host)
	}
	return providers.Join(own, named).For(dialects, settings), warnings, nil
}

func parseOperations(o config.Operations) (*providers.Adapter, error) {
	return providers.Parse(providers.Position{Source: o.Source, Path: o.Path}, o.Node)
}
