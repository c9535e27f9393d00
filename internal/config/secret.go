package config

import "log/slog"

// A Secret prints as stars everywhere: convert it to a string to use it.
type Secret string

const redacted = "***"

func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return redacted
}

// GoString keeps it out of %#v.
func (s Secret) GoString() string { return `"` + s.String() + `"` }

// MarshalText keeps it out of JSON and YAML.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// LogValue keeps it out of logs.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }
