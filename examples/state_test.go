package examples_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"
)

const (
	statePage = "../docs/state.md"
	// pageAddress is where the page says that the sidecar is.
	pageAddress = "127.0.0.1:8100"
	// elided stands on the page for a value, or as a member for further ones.
	elided = "…"
	// pageMax bounds all commands of the page together.
	pageMax = 30 * time.Second
	// blockEnd is a line that no command prints.
	blockEnd = "-- end of block --"
)

// fenced finds the blocks that have a language: commands, and what they print.
var fenced = regexp.MustCompile("(?ms)^```(sh|json)\n(.*?)^```$")

// A command block of the page and what the page says that it prints.
type pageBlock struct{ commands, prints string }

// testStatePage runs the commands of docs/state.md as a reader would, in one
// shell, and compares what they print.
func testStatePage(t *testing.T, sidecar string) {
	t.Helper()
	blocks := readPage(t)
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintln(w, `{"id": "refund-1"}`)
	}))
	t.Cleanup(provider.Close)
	address := startSidecar(t, sidecar, "tickets="+provider.URL)

	var script strings.Builder
	for _, b := range blocks {
		fmt.Fprintf(&script, "%s\necho '%s'\n", strings.ReplaceAll(b.commands, pageAddress, address), blockEnd)
	}
	printed := strings.Split(run(t, pageMax, t.TempDir(), nil, "bash", "-euo", "pipefail", "-c", script.String()), blockEnd+"\n")
	for i, b := range blocks {
		got, err := readValues(printed[i])
		if err != nil {
			t.Fatalf("%s\nprinted no JSON (%v):\n%s", b.commands, err, printed[i])
		}
		want, err := readValues(b.prints)
		if err != nil {
			t.Fatalf("%s: not JSON: %v:\n%s", statePage, err, b.prints)
		}
		if err := match(got, want); err != nil {
			t.Errorf("%s\nprinted:\n%s\n%s says:\n%s\n%v", b.commands, printed[i], statePage, b.prints, err)
		}
	}
}

func readPage(t *testing.T) []pageBlock {
	t.Helper()
	page, err := os.ReadFile(statePage)
	if err != nil {
		t.Fatal(err)
	}
	var blocks []pageBlock
	for _, found := range fenced.FindAllStringSubmatch(string(page), -1) {
		switch {
		case found[1] == "sh":
			blocks = append(blocks, pageBlock{commands: found[2]})
		case len(blocks) == 0 || blocks[len(blocks)-1].prints != "":
			t.Fatalf("%s: what prints this?\n%s", statePage, found[2])
		default:
			blocks[len(blocks)-1].prints = found[2]
		}
	}
	if len(blocks) < 10 {
		t.Fatalf("%s has %d blocks of commands", statePage, len(blocks))
	}
	return blocks
}

// readValues reads JSON values that follow one another. A status is one as well.
func readValues(text string) ([]any, error) {
	var values []any
	for decoder := json.NewDecoder(strings.NewReader(text)); ; {
		var value any
		if err := decoder.Decode(&value); errors.Is(err, io.EOF) {
			return values, nil
		} else if err != nil {
			return nil, err
		}
		values = append(values, value)
	}
}

// match says how got differs from want, where elided stands for anything.
func match(got, want any) error {
	if want == elided && got != nil {
		return nil
	}
	switch want := want.(type) {
	case map[string]any:
		return matchObject(got, want)
	case []any:
		return matchArray(got, want)
	}
	if !reflect.DeepEqual(got, want) {
		return fmt.Errorf("got %v, want %v", got, want)
	}
	return nil
}

func matchObject(got any, want map[string]any) error {
	object, _ := got.(map[string]any)
	for name, value := range want {
		if name == elided {
			continue
		}
		if err := match(object[name], value); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	for name, value := range object {
		_, listed := want[name]
		if _, more := want[elided]; !listed && !more {
			return fmt.Errorf("%s: got %v, which is not on the page", name, value)
		}
	}
	return nil
}

func matchArray(got any, want []any) error {
	array, _ := got.([]any)
	if len(array) != len(want) {
		return fmt.Errorf("got %d values, want %d", len(array), len(want))
	}
	for i := range want {
		if err := match(array[i], want[i]); err != nil {
			return fmt.Errorf("value %d: %w", i, err)
		}
	}
	return nil
}

// startSidecar returns the address of a sidecar that ends with the test.
func startSidecar(t *testing.T, sidecar, upstreams string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), sidecar, "serve", "--announce")
	cmd.Env = []string{
		"COUNTERFOIL_UPSTREAMS=" + upstreams,
		"COUNTERFOIL_LISTEN=127.0.0.1:0",
		"COUNTERFOIL_ADMIN_LISTEN=127.0.0.1:0",
		"COUNTERFOIL_DATA=" + filepath.Join(t.TempDir(), "journal"),
		"COUNTERFOIL_LOG_LEVEL=error",
	}
	address := announced(t, cmd)
	t.Cleanup(func() { _ = cmd.Wait() }) // the test's context has ended it
	return address
}

// announced starts a sidecar and returns the address that it announces.
func announced(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the sidecar did not start: %v", err)
	}
	return strings.TrimSpace(address)
}
