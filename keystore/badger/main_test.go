package badger

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		if n := os.Getenv(childCalls); n != "" {
			os.Exit(fillChild(dir, n))
		}
		if first := os.Getenv(childLeases); first != "" {
			os.Exit(leaseChild(dir, first))
		}
		if seed := os.Getenv(childItems); seed != "" {
			os.Exit(itemsChild(dir, seed))
		}
		os.Exit(child(dir))
	}
	goleak.VerifyTestMain(m)
}
