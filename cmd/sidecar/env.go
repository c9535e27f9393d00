package main

import (
	"io"
	"os"
	"strings"
)

// A clientEnv is what a command may know of the world around it.
type clientEnv struct {
	variables      map[string]string
	readFile       func(string) ([]byte, error)
	stdout, stderr io.Writer
}

func osEnv() clientEnv {
	variables := make(map[string]string)
	for _, v := range os.Environ() {
		name, value, _ := strings.Cut(v, "=")
		variables[name] = value
	}
	return clientEnv{variables: variables, readFile: os.ReadFile, stdout: os.Stdout, stderr: os.Stderr}
}

func (e clientEnv) environ() map[string]string { return e.variables }
func (e clientEnv) adminURL() string {
	if a := e.variables["COUNTERFOIL_ADMIN_LISTEN"]; a != "" {
		return "http://" + a
	}
	return "http://127.0.0.1:8101"
}
