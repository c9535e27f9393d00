package fake

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"
)

// A Ledger is what a provider has on record, and how many effects made it. It
// is safe for concurrent use. Objects are made of the types of JSON; what a
// method takes or returns is a copy.
type Ledger struct {
	// Clock tells the time, nil for the real one. Lag hides what is made from
	// then on from Visible, until Reveal. Both are to be set before the first
	// request.
	Clock func() time.Time
	Lag   bool

	mu      sync.Mutex
	effects int
	serial  int
	kinds   map[string][]*entry
}

type entry struct {
	object map[string]any
	hidden bool
}

// Now is the provider's time, in UTC.
func (l *Ledger) Now() time.Time {
	if l.Clock != nil {
		return l.Clock().UTC()
	}
	return time.Now().UTC()
}

// Add commits one effect: it has the object on record and returns it. An object
// without an id gets one that is unlike any other, as in charge-3.
func (l *Ledger) Add(kind string, object map[string]any) map[string]any {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.effects++
	return l.put(kind, object, l.Lag)
}

// Put has an object on record that was there before, as Case.Setup needs it: it
// is no effect, and shows at once.
func (l *Ledger) Put(kind string, object map[string]any) map[string]any {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.put(kind, object, false)
}

func (l *Ledger) put(kind string, object map[string]any, hidden bool) map[string]any {
	object = copyOf(object).(map[string]any)
	if object["id"] == nil {
		l.serial++
		object["id"] = fmt.Sprintf("%s-%d", kind, l.serial)
	}
	if l.kinds == nil {
		l.kinds = make(map[string][]*entry)
	}
	l.kinds[kind] = append(l.kinds[kind], &entry{object, hidden})
	return copyOf(object).(map[string]any)
}

// Next returns a number that it never returned before, from 1 on, for ids of a
// provider's own form.
func (l *Ledger) Next() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.serial++
	return l.serial
}

// Change lets f change an object, and returns what it is then; nil if there is
// none of that id. It is one effect if anything differs: to set what is there
// already is none.
func (l *Ledger) Change(kind string, id any, f func(object map[string]any)) map[string]any {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.find(kind, id)
	if e == nil {
		return nil
	}
	changed := copyOf(e.object).(map[string]any)
	f(changed)
	if !reflect.DeepEqual(changed, e.object) {
		l.effects++
		e.object = changed
	}
	return copyOf(changed).(map[string]any)
}

// Remove deletes an object, which is one effect; false, and none, if there is
// none of that id.
func (l *Ledger) Remove(kind string, id any) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.find(kind, id)
	if e == nil {
		return false
	}
	l.effects++
	l.kinds[kind] = slices.DeleteFunc(l.kinds[kind], func(other *entry) bool { return other == e })
	return true
}

// find needs mu. Ids are compared as they are printed, so that one out of a
// path finds a number.
func (l *Ledger) find(kind string, id any) *entry {
	for _, e := range l.kinds[kind] {
		if fmt.Sprint(e.object["id"]) == fmt.Sprint(id) {
			return e
		}
	}
	return nil
}

// Get returns an object as a read by its id shows it; nil if there is none.
func (l *Ledger) Get(kind string, id any) map[string]any {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.find(kind, id); e != nil {
		return copyOf(e.object).(map[string]any)
	}
	return nil
}

// List returns every object of a kind, the oldest first.
func (l *Ledger) List(kind string) []map[string]any {
	return l.list(kind, func(*entry) bool { return true })
}

// Visible returns what lists and searches show by now, the oldest first.
func (l *Ledger) Visible(kind string) []map[string]any {
	return l.list(kind, func(e *entry) bool { return !e.hidden })
}

func (l *Ledger) list(kind string, shows func(*entry) bool) []map[string]any {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := []map[string]any{}
	for _, e := range l.kinds[kind] {
		if shows(e) {
			list = append(list, copyOf(e.object).(map[string]any))
		}
	}
	return list
}

// Reveal ends the lag of all that was made so far.
func (l *Ledger) Reveal() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, entries := range l.kinds {
		for _, e := range entries {
			e.hidden = false
		}
	}
}

// Effects is how often the world was changed.
func (l *Ledger) Effects() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.effects
}

func copyOf(v any) any {
	switch v := v.(type) {
	case map[string]any:
		c := maps.Clone(v)
		if c == nil {
			c = map[string]any{}
		}
		for k := range c {
			c[k] = copyOf(c[k])
		}
		return c
	case []any:
		c := slices.Clone(v)
		for i := range c {
			c[i] = copyOf(c[i])
		}
		return c
	}
	return v
}
