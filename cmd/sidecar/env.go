package main

import (
	"io"
	"net/http"
	"os"
	"strings"
	"time"
)

// A clientEnv is what a command may know of the world around it.
type clientEnv struct {
	variables      map[string]string
	readFile       func(string) ([]byte, error)
	stdin          io.Reader
	stdout, stderr io.Writer
	// http asks the admin listener.
	http *http.Client
	// now is the time, in the zone that times are printed in.
	now func() time.Time
}

func osEnv() clientEnv {
	variables := make(map[string]string)
	for _, v := range os.Environ() {
		name, value, _ := strings.Cut(v, "=")
		variables[name] = value
	}
	return clientEnv{
		variables: variables, readFile: os.ReadFile, stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr,
		http: &http.Client{}, now: time.Now,
	}
}

func (e clientEnv) environ() map[string]string { return e.variables }

// adminURL is where the environment says that the admin listener is. A value
// that is no address comes back as it is.
func (e clientEnv) adminURL() string {
	given := e.variables["COUNTERFOIL_ADMIN_LISTEN"]
	if given == "" {
		given = adminDefault
	}
	u, err := baseURL(given)
	if err != nil {
		return given
	}
	return u
}
