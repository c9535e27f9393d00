package badger

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"

	"counterfoil/keystore/storetest"
)

// childLeases has a child process ask for leases until it is killed, and numbers
// its first operation.
const childLeases = "COUNTERFOIL_BADGER_TEST_LEASES"

// leaseSeed is where the clients of the killed processes begin.
const leaseSeed = 5

// leaseChild notes on its standard output what it asks for and what comes of it,
// in the order in which that happens.
func leaseChild(dir, firstID string) int {
	first, err := strconv.Atoi(firstID)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	s, err := Open(context.Background(), Config{Dir: dir})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	lines := json.NewEncoder(os.Stdout)
	log := storetest.NewLeaseLog(first, func(n storetest.LeaseNote) {
		if err := lines.Encode(n); err != nil {
			os.Exit(1)
		}
	})
	log.Happened(storetest.LeaseInput{Kind: "open"})
	var group sync.WaitGroup
	for i := range 5 {
		c := &storetest.LeaseClient{
			Store: s, Log: log, Random: rand.New(rand.NewPCG(leaseSeed+uint64(first), uint64(i))),
			Run: "leased", Number: i + 1, Life: firstID,
		}
		group.Go(func() {
			for c.Act() {
			}
		})
	}
	group.Wait()
	return 1
}

// TestLeasesAreLinearizableThroughKills: whatever was answered about a run's lease
// before its process was killed holds for the processes after it.
func TestLeasesAreLinearizableThroughKills(t *testing.T) {
	t.Logf("seed %d", leaseSeed)
	dir := t.TempDir()
	var notes []storetest.LeaseNote
	for range 4 {
		notes = append(notes, killedAfter[storetest.LeaseNote](t, dir, childLeases+"="+strconv.Itoa(len(notes)), 120)...)
	}
	granted := 0
	for _, n := range notes {
		if n.Out != nil && n.Out.Held {
			granted++
		}
	}
	if granted < 8 {
		t.Fatalf("%d answers in %d notes say that a lease is held: nothing was tested", granted, len(notes))
	}
	storetest.CheckLeases(t, notes)
}
