package badger

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A log that is written to a file without a name is found by nobody: what is
// begun then would be sent, and sent again after a restart. It happens in a
// child, since a store without its directory is left as it is, not closed.
func TestADirectoryThatIsReplacedTakesNothingMore(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	_, lines := startChild(t, dir)
	for range 50 {
		lines.Scan()
	}
	if err := errors.Join(os.Rename(dir, dir+".old"), os.Mkdir(dir, 0o700)); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() && !strings.HasPrefix(lines.Text(), "error ") { //nolint:revive // the condition reads
	}
	if !strings.Contains(lines.Text(), errReplaced.Error()) {
		t.Fatalf("the child said %q", lines.Text())
	}
	// From now on the child has an error for each operation that it says it made.
	refused := 0
	for range 4000 {
		if !lines.Scan() {
			t.Fatal("the child ended")
		}
		if strings.HasPrefix(lines.Text(), "error ") {
			refused++
		}
	}
	if refused < 1950 {
		t.Errorf("%d of 2000 operations were refused", refused)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("the new directory holds %v, %v", left, err)
	}
}
