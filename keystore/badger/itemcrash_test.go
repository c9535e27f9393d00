package badger

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"testing"

	"counterfoil/keystore/storetest"
)

// childItems holds the seed of a child that works on items.
const childItems = "COUNTERFOIL_BADGER_TEST_ITEMS"

// itemsChild makes operations on few items until it is killed. It says each
// before it makes it, and what came of it after, line by line.
func itemsChild(dir, seedText string) int {
	seed, err := strconv.ParseUint(seedText, 10, 64)
	if err != nil {
		fmt.Println("error", err)
		return 1
	}
	s, err := Open(context.Background(), Config{Dir: dir})
	if err != nil {
		fmt.Println("error", err)
		return 1
	}
	var mu sync.Mutex
	tell := func(e storetest.ItemEvent) {
		line, err := json.Marshal(e)
		mu.Lock()
		defer mu.Unlock()
		if _, writeErr := os.Stdout.Write(append(line, '\n')); err != nil || writeErr != nil {
			os.Exit(1)
		}
	}
	var group sync.WaitGroup
	for n := range itemClients {
		number := int(s.Facts().Epoch)*itemClients + n
		c := storetest.ItemClient{
			Number: number, Store: s, Space: notes, Keys: []string{"a", "b", "c"},
			Random: rand.New(rand.NewPCG(seed, uint64(number))), Tell: tell,
		}
		group.Go(func() {
			if err := c.Run(1 << 30); err != nil {
				fmt.Println("error", err)
				os.Exit(1)
			}
		})
	}
	group.Wait()
	return 0
}

const itemClients = 6

// TestItemsAreLinearizableThroughKills kills a child with -9 under load, again
// and again, and judges what its clients saw.
func TestItemsAreLinearizableThroughKills(t *testing.T) {
	const seed, lives, perLife = 41, 6, 400
	random := rand.New(rand.NewPCG(seed, 0))
	dir := t.TempDir()
	s := mustOpen(t, Config{Dir: dir})
	putStore(t, s, 0)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	var events []storetest.ItemEvent
	for range lives {
		events = append(events, killedAfter[storetest.ItemEvent](t, dir, childItems+"="+fmt.Sprint(seed), perLife+random.IntN(perLife))...)
	}
	s = openTest(t, Config{Dir: dir})
	last := storetest.ItemClient{
		Store: s, Space: notes, Keys: []string{"a", "b", "c"}, Random: rand.New(rand.NewPCG(seed, 1)),
		Tell: func(e storetest.ItemEvent) { events = append(events, e) },
	}
	if err := last.Run(50); err != nil {
		t.Fatal(err)
	}
	storetest.CheckItems(t, seed, events)
}

// killedAfter starts a child that is told what to do by a variable, kills it once
// it has written so many notes, and returns them.
func killedAfter[T any](t *testing.T, dir, variable string, limit int) (notes []T) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childDir+"="+dir, variable)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var n T
		if err := json.Unmarshal(lines.Bytes(), &n); err != nil {
			if len(notes) < limit {
				t.Fatalf("the child said %q", lines.Text())
			}
			break // cut off by the kill: what it was about to note had not begun, or has no answer
		}
		if notes = append(notes, n); len(notes) == limit {
			cmd.Process.Kill()
		}
	}
	cmd.Wait()
	if len(notes) < limit {
		t.Fatalf("the child ended after %d notes", len(notes))
	}
	return notes
}
