package config

import (
	"encoding"
	"errors"
	"log/slog"
	"maps"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/caarlos0/env/v10"
)

// A loader gathers one config and everything that is wrong with it.
type loader struct {
	cfg      *Config
	environ  map[string]string
	readFile func(string) ([]byte, error)
	// places says where each field that is not at its default was set, by its
	// path in the file.
	places     map[string]place
	complaints []*Complaint
}

// Load reads the settings: defaults, then the file that COUNTERFOIL_CONFIG
// names, then variables. A variable that is set to nothing counts as not set,
// unless it is a secret. ReadFile is called for the file and for each
// ${file:…}; nil means that there are no files.
//
// The error joins one *Complaint for each mistake. The Config is nil then.
func Load(environ map[string]string, readFile func(string) ([]byte, error)) (*Config, error) {
	return load(environ, readFile, func(*Config) {}, func(*loader) {})
}

// LoadServe is Load for a sidecar that is to serve: what it needs and does not
// have are mistakes too, and so is what check complains of in what each upstream
// says of its provider, which this package does not read.
func LoadServe(environ map[string]string, readFile func(string) ([]byte, error), check func(*Upstream) []*Complaint) (*Config, error) {
	return load(environ, readFile, func(*Config) {}, func(l *loader) { l.checkToServe(check) })
}

// LoadExec is LoadServe for a sidecar that serves one agent beside it. What is
// not set is different then: the listeners take free ports on loopback, and the
// log says warnings alone, since it goes where the agent's output goes.
func LoadExec(environ map[string]string, readFile func(string) ([]byte, error), check func(*Upstream) []*Complaint) (*Config, error) {
	preset := func(c *Config) {
		c.Listen, c.AdminListen, c.LogLevel = "127.0.0.1:0", "127.0.0.1:0", LogLevel(slog.LevelWarn)
	}
	return load(environ, readFile, preset, func(l *loader) { l.checkToServe(check) })
}

func (l *loader) checkToServe(check func(*Upstream) []*Complaint) {
	l.checkServe()
	for _, u := range l.cfg.Upstreams {
		at := l.at("upstreams." + u.Name + ".adapter")
		u.AdapterAt = Complaint{Source: at.source, Line: at.line, Path: at.path}
		l.add(check(u)...)
	}
}

func load(environ map[string]string, readFile func(string) ([]byte, error), preset func(*Config), more func(*loader)) (*Config, error) {
	if readFile == nil {
		readFile = func(string) ([]byte, error) { return nil, errors.New("no files can be read here") }
	}
	l := &loader{cfg: &Config{}, environ: environ, readFile: readFile, places: map[string]place{}}
	l.defaults(reflect.ValueOf(l.cfg).Elem())
	preset(l.cfg)
	l.file(environ["COUNTERFOIL_CONFIG"])
	l.variables()
	l.validate()
	more(l)
	if err := l.err(); err != nil {
		return nil, err
	}
	return l.cfg, nil
}

// defaults sets every field of a struct, and of those inside it, that names a
// default.
func (l *loader) defaults(v reflect.Value) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		text, ok := f.Tag.Lookup("default")
		switch {
		case ok:
			if err := setText(v.Field(i), text); err != nil {
				l.complain(place{source: f.Name}, "default %q: %s", text, err)
			}
		case f.Type.Kind() == reflect.Struct:
			l.defaults(v.Field(i))
		}
	}
}

// setText sets a field from text, as a variable or a scalar of the file has it.
func setText(v reflect.Value, text string) error {
	switch target := v.Addr().Interface().(type) {
	case encoding.TextUnmarshaler:
		return target.UnmarshalText([]byte(text))
	case *time.Duration:
		d, err := parseDuration(text)
		*target = d
		return err
	case *bool:
		if text != "true" && text != "false" {
			return errors.New("write true or false")
		}
		*target = text == "true"
		return nil
	case *int:
		n, err := strconv.Atoi(text)
		*target = n
		if err != nil {
			return errors.New("write a whole number")
		}
		return nil
	}
	if v.Kind() != reflect.String {
		return errors.New("cannot be written as text")
	}
	v.SetString(text)
	return nil
}

// variables reads the environment over what is there.
func (l *loader) variables() {
	l.unknownVariables()
	given := maps.Clone(l.environ)
	delete(given, "")
	for _, name := range []string{"HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY"} {
		if lower := given[strings.ToLower(name)]; given[name] == "" && lower != "" {
			given[name] = lower
		}
	}
	if given == nil {
		given = map[string]string{} // nil would mean the process's own
	}
	fields := variableFields(reflect.TypeFor[Config]())
	l.emptySecrets(given, fields)
	for _, f := range fields {
		if key := f.Tag.Get("yaml"); key != "" && given[f.Tag.Get("env")] != "" {
			l.places[key] = place{source: f.Tag.Get("env")}
		}
	}
	err := env.ParseWithOptions(l.cfg, env.Options{Environment: given, FuncMap: map[reflect.Type]env.ParserFunc{
		reflect.TypeFor[Upstreams](): func(text string) (any, error) { return l.mergeUpstreams(text), nil },
	}})
	l.variableErrors(err, fields)
}

// variableErrors turns the parser's errors, which name fields, into complaints
// that name variables.
func (l *loader) variableErrors(err error, fields []reflect.StructField) {
	var all env.AggregateError
	if !errors.As(err, &all) {
		l.complainOf(place{source: "environment"}, err)
		return
	}
	for _, e := range all.Errors {
		var parse env.ParseError
		if !errors.As(e, &parse) {
			l.complainOf(place{source: "environment"}, e)
			continue
		}
		for _, f := range fields {
			if f.Name == parse.Name {
				l.complainOf(place{source: f.Tag.Get("env")}, parse.Err)
			}
		}
	}
}

// emptySecrets refuses secrets that are set to nothing: somebody meant to
// protect something, and a substitution failed.
func (l *loader) emptySecrets(given map[string]string, fields []reflect.StructField) {
	for _, f := range fields {
		name := f.Tag.Get("env")
		isSecret := f.Type == reflect.TypeFor[Secret]() || f.Type == reflect.TypeFor[Tokens]()
		if value, set := given[name]; set && value == "" && isSecret && strings.HasPrefix(name, prefix) {
			l.complain(place{source: name}, "set, but empty: give it a value, or unset it")
		}
	}
}

// variableFields lists the fields of t, and of the structs in it, that have a
// variable.
func variableFields(t reflect.Type) []reflect.StructField {
	var fields []reflect.StructField
	for f := range t.Fields() {
		switch {
		case f.Tag.Get("env") != "":
			fields = append(fields, f)
		case f.Type.Kind() == reflect.Struct:
			fields = append(fields, variableFields(f.Type)...)
		}
	}
	return fields
}

// at says where the field of that path was set; for a field at its default,
// where it can be set.
func (l *loader) at(path string) place {
	if p, ok := l.places[path]; ok {
		return p
	}
	for _, f := range variableFields(reflect.TypeFor[Config]()) {
		if f.Tag.Get("yaml") == path {
			return place{source: f.Tag.Get("env")}
		}
	}
	dot := strings.LastIndexByte(path, '.')
	if dot < 0 {
		return place{source: path}
	}
	p := l.at(path[:dot])
	p.path = path
	return p
}

// stateDirectory is where the journal is by default, "" if nothing says so.
// XDG Base Directory Specification 0.8: a path that is not absolute is invalid.
func (l *loader) stateDirectory() string {
	if state := l.environ["XDG_STATE_HOME"]; filepath.IsAbs(state) {
		return filepath.Join(state, "counterfoil")
	}
	if home := l.environ["HOME"]; filepath.IsAbs(home) {
		return filepath.Join(home, ".local", "state", "counterfoil")
	}
	return ""
}
