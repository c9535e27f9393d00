package config

import (
	"errors"
	"fmt"
	"strings"
)

// expand replaces ${env:NAME} and ${file:/path}; $${ stands for ${. A file's
// last line break is left out. What is put in is not looked at again.
func (l *loader) expand(text string) (string, error) {
	var out strings.Builder
	for {
		before, after, found := strings.Cut(text, "${")
		out.WriteString(before)
		if !found {
			return out.String(), nil
		}
		if strings.HasSuffix(before, "$") {
			out.WriteByte('{')
			text = after
			continue
		}
		name, rest, closed := strings.Cut(after, "}")
		if !closed {
			return "", errors.New("${ without its }: write ${env:NAME} or ${file:/path}, or $${ for the two characters")
		}
		value, err := l.lookUp(name)
		if err != nil {
			return "", err
		}
		out.WriteString(value)
		text = rest
	}
}

func (l *loader) lookUp(reference string) (string, error) {
	kind, name, _ := strings.Cut(reference, ":")
	switch {
	case kind == "env" && name != "":
		value := l.environ[name]
		if value == "" {
			return "", fmt.Errorf("the variable %s is not set: set it, or leave the field out", name)
		}
		return value, nil
	case kind == "file" && name != "":
		return l.secretFile(name)
	}
	return "", errors.New("${…} of an unknown kind: write ${env:NAME} or ${file:/path}, or $${ for the two characters")
}

func (l *loader) secretFile(path string) (string, error) {
	data, err := l.readFile(path)
	if err != nil {
		return "", err
	}
	if len(data) > secretFileMax {
		return "", fmt.Errorf("%s has %d bytes; a secret has at most %d", path, len(data), secretFileMax)
	}
	value := strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r")
	if value == "" {
		return "", fmt.Errorf("%s is empty: write the secret into it", path)
	}
	return value, nil
}
