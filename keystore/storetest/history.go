package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"counterfoil/keystore"
)

// An ItemOp is one operation on an item, and what came of it. Each write has a
// value that no other has, so that a value says which write it was.
type ItemOp struct {
	Kind  ItemOpKind
	Key   string
	Value string
	// If is the version that a conditional operation asks for.
	If keystore.ItemVersion

	Outcome ItemOutcome
	// Version is what was read or written, or what a refusal tells of; 0 is
	// nothing. Found is the value that was read, Was whether there was one.
	Version keystore.ItemVersion
	Found   string
	Was     bool
}

// An ItemOpKind is what an operation asks for.
type ItemOpKind uint8

const (
	// GetOp reads.
	GetOp ItemOpKind = iota
	// PutOp writes in any case.
	PutOp
	// CreateOp writes where nothing is.
	CreateOp
	// ReplaceOp writes in the place of one version.
	ReplaceOp
	// DeleteOp deletes in any case.
	DeleteOp
	// DeleteIfOp deletes one version.
	DeleteIfOp
)

var itemOpNames = [...]string{GetOp: "get", PutOp: "put", CreateOp: "create", ReplaceOp: "replace", DeleteOp: "delete", DeleteIfOp: "delete version"}

// An ItemOutcome is what came of an operation.
type ItemOutcome uint8

const (
	// Unanswered: nobody knows whether it was made.
	Unanswered ItemOutcome = iota
	// Made: it was.
	Made
	// Refused: its condition did not hold.
	Refused
)

// An ItemEvent is the call of an operation, or its return.
type ItemEvent struct {
	// Client makes one operation after the other.
	Client   int
	IsReturn bool
	Op       ItemOp
}

// An ItemClient makes random operations on few items of one store.
type ItemClient struct {
	Number int
	Store  keystore.Store
	Space  keystore.Space
	Keys   []string
	Random *rand.Rand
	// Tell is told of every call before it is made, and of every return.
	Tell func(ItemEvent)

	made int
	// seen is the version that the client saw last of each item.
	seen map[string]keystore.ItemVersion
}

// Run makes n operations, or fewer if one gets no answer. Any other error than
// that is returned.
func (c *ItemClient) Run(n int) error {
	if c.seen == nil {
		c.seen = map[string]keystore.ItemVersion{}
	}
	for range n {
		op := c.next()
		c.Tell(ItemEvent{Client: c.Number, Op: op})
		answer, err := c.make(op)
		if errors.Is(err, keystore.ErrUnavailable) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("client %d: %s of %q: %w", c.Number, itemOpNames[op.Kind], op.Key, err)
		}
		if answer.Outcome == Made {
			// What a refusal tells of may be a write without an answer, whose
			// value the judge would not know.
			c.seen[op.Key] = answer.Version
		}
		c.Tell(ItemEvent{Client: c.Number, IsReturn: true, Op: answer})
	}
	return nil
}

func (c *ItemClient) next() ItemOp {
	op := ItemOp{Kind: ItemOpKind(c.Random.IntN(int(DeleteIfOp) + 1)), Key: c.Keys[c.Random.IntN(len(c.Keys))]}
	switch op.Kind {
	case GetOp, DeleteOp:
	case PutOp, CreateOp:
		c.made++
		op.Value = fmt.Sprintf("%d-%d", c.Number, c.made)
	case ReplaceOp:
		c.made++
		op.Value, op.If = fmt.Sprintf("%d-%d", c.Number, c.made), c.seen[op.Key]
	case DeleteIfOp:
		op.If = c.seen[op.Key]
	}
	return op
}

func (c *ItemClient) make(op ItemOp) (ItemOp, error) {
	op.Outcome = Made
	if op.Kind == GetOp {
		i, err := c.Store.Item(context.Background(), c.Space, op.Key)
		if errors.Is(err, keystore.ErrNotFound) {
			return op, nil
		}
		if err == nil {
			op.Version, op.Found, op.Was = i.Version, string(i.Value), true
		}
		return op, err
	}
	written, err := c.Store.WriteItems(context.Background(), &keystore.Batch{Space: c.Space, Writes: []keystore.ItemWrite{op.write()}})
	if refused, ok := errors.AsType[*keystore.Refused](err); ok {
		op.Outcome, op.Version, op.Was = Refused, refused.Version, refused.Version != 0
		return op, nil
	}
	if err == nil {
		op.Was = written[0].Was
		if i := written[0].Item; i != nil {
			op.Version = i.Version
		}
	}
	return op, err
}

func (op ItemOp) write() keystore.ItemWrite {
	w := keystore.ItemWrite{Kind: keystore.PutItem, Key: op.Key, Value: []byte(op.Value)}
	switch op.Kind {
	case CreateOp:
		w.If.Absent = true
	case ReplaceOp:
		w.If.Versions = []keystore.ItemVersion{op.If}
	case DeleteIfOp:
		w.If.Versions = []keystore.ItemVersion{op.If}
		w.Kind, w.Value = keystore.DeleteItem, nil
	case DeleteOp:
		w.Kind, w.Value = keystore.DeleteItem, nil
	case GetOp, PutOp:
	}
	return w
}

// LinearizableWithin is how long a history may take to be judged.
const LinearizableWithin = time.Minute

// CheckItems fails the test if what the clients saw, in the order of events,
// cannot have come of operations made one at a time, each between its call and
// its return; one without a return may have been made at any time after its
// call, or never. History and picture of a failure are kept.
func CheckItems(t testing.TB, seed uint64, events []ItemEvent) {
	t.Helper()
	valueOf, err := versions(events)
	if err != nil {
		t.Errorf("seed %d: %v", seed, err)
	}
	history, unanswered := operations(events)
	model := itemModel(valueOf)
	result, info := porcupine.CheckOperationsVerbose(model, history, LinearizableWithin)
	t.Logf("seed %d: %d operations, %d without an answer: %s", seed, len(history), unanswered, result)
	if err == nil && result == porcupine.Ok {
		return
	}
	dir, dirErr := os.MkdirTemp("", "counterfoil-items-") //nolint:usetesting // it is looked at after the test
	text, jsonErr := json.MarshalIndent(events, "", " ")
	keepErr := errors.Join(dirErr, jsonErr, os.WriteFile(filepath.Join(dir, "history.json"), text, 0o600),
		porcupine.VisualizePath(model, info, filepath.Join(dir, "history.html")))
	t.Fatalf("seed %d: the history is %s; it is kept in %s (%v)", seed, result, dir, keepErr)
}

// versions says which value each version stands for. No version may stand for
// two, and no value may have two.
func versions(events []ItemEvent) (map[keystore.ItemVersion]string, error) {
	valueOf, versionOf := map[keystore.ItemVersion]string{}, map[string]keystore.ItemVersion{}
	var errs []error
	for _, e := range events {
		value := e.Op.Value
		if e.Op.Kind == GetOp {
			value = e.Op.Found
		}
		if !e.IsReturn || e.Op.Outcome != Made || e.Op.Version == 0 {
			continue
		}
		if other, ok := valueOf[e.Op.Version]; ok && other != value {
			errs = append(errs, fmt.Errorf("version %d stands for %q and for %q", e.Op.Version, other, value))
		}
		if other, ok := versionOf[value]; ok && other != e.Op.Version {
			errs = append(errs, fmt.Errorf("value %q has versions %d and %d", value, other, e.Op.Version))
		}
		valueOf[e.Op.Version], versionOf[value] = value, e.Op.Version
	}
	return valueOf, errors.Join(errs...)
}

// operations pairs calls with their returns.
func operations(events []ItemEvent) (history []porcupine.Operation, unanswered int) {
	open := map[int]int{} // by client
	for at, e := range events {
		if !e.IsReturn {
			open[e.Client] = len(history)
			history = append(history, porcupine.Operation{ClientId: e.Client, Input: e.Op, Call: int64(at), Output: e.Op, Return: math.MaxInt64})
			unanswered++
			continue
		}
		op := &history[open[e.Client]]
		op.Output, op.Return = e.Op, int64(at)
		unanswered--
	}
	return history, unanswered
}

// itemModel is an item as it ought to be: nothing, or the value of one write.
func itemModel(valueOf map[keystore.ItemVersion]string) porcupine.Model {
	return porcupine.Model{
		Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
			byKey := map[string][]porcupine.Operation{}
			for _, op := range history {
				key := op.Input.(ItemOp).Key
				byKey[key] = append(byKey[key], op)
			}
			var parts [][]porcupine.Operation
			for _, part := range byKey {
				parts = append(parts, part)
			}
			return parts
		},
		Init: func() any { return "" },
		Step: func(state, _, output any) (bool, any) {
			return output.(ItemOp).step(state.(string), valueOf)
		},
		DescribeOperation: func(_, output any) string {
			op := output.(ItemOp)
			outcome := [...]string{"no answer", "made", "refused"}[op.Outcome]
			return fmt.Sprintf("%s %s %s if %q: %s, version %d %s", itemOpNames[op.Kind], op.Key, op.Value, valueOf[op.If], outcome, op.Version, op.Found)
		},
	}
}

// step says whether an operation that came to this can have met that value, empty
// for none, and what is there after it.
func (op ItemOp) step(present string, valueOf map[keystore.ItemVersion]string) (bool, string) {
	holds := true
	switch op.Kind {
	case CreateOp:
		holds = present == ""
	case ReplaceOp, DeleteIfOp:
		holds = op.If != 0 && present == valueOf[op.If] && present != ""
	case GetOp:
		return op.Outcome == Unanswered || present == op.Found, present
	case PutOp, DeleteOp:
	}
	after := op.Value // empty for a delete
	if !holds {
		after = present
	}
	told, known := valueOf[op.Version]
	switch op.Outcome {
	case Made:
		return holds && op.Was == (present != ""), after
	case Refused:
		tells := op.Version == 0 && present == "" || op.Version != 0 && present != "" && (!known || told == present)
		return !holds && tells, after
	case Unanswered:
	}
	return true, after
}
