package proxy

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"counterfoil/internal/view"
	"counterfoil/keystore"
)

// listRuns answers with a page of the namespace's runs, in order of creation.
func (x *exchange) listRuns(ctx context.Context, query url.Values) error {
	page, err := pageOf(query, "state", "label", "older_than", "newer_than")
	if err != nil {
		return err
	}
	filter, err := view.ParseRunFilter(query, time.Now())
	if err != nil {
		return invalid("%s.", err)
	}
	list, err := view.ListRuns(ctx, x.records, x.namespace, page, &filter, view.Agent)
	if err != nil {
		return mistaken(page, err)
	}
	return x.json(list)
}

// showRun answers with a run and a page of its calls.
func (x *exchange) showRun(ctx context.Context, k keystore.Key, query url.Values) error {
	page, err := pageOf(query)
	if err != nil {
		return err
	}
	summary, err := x.records.Run(ctx, k.Namespace, k.Run)
	if err != nil {
		return err
	}
	v, err := view.ShowRun(ctx, x.records, &summary, view.Agent)
	if err != nil {
		return err
	}
	calls, err := x.records.Calls(ctx, k.Namespace, k.Run, page)
	if err != nil {
		return mistaken(page, err)
	}
	v.Calls = viewCalls(calls)
	return x.json(v)
}

// putRun makes a run, or changes what is said of it.
func (x *exchange) putRun(ctx context.Context, k keystore.Key, query url.Values) error {
	if err := checkQuery(query); err != nil {
		return err
	}
	if err := isRun(k.Run); err != nil {
		return err
	}
	spec := keystore.RunSpec{Namespace: k.Namespace, Run: k.Run}
	release, err := x.readObject(ctx, func(name string) memberReader {
		switch name {
		case "flow_version":
			return func(raw []byte) (err error) { spec.FlowVersion, err = readName(raw); return err }
		case "budget":
			return func(raw []byte) (err error) { spec.Budget, err = x.readBudget(raw); return err }
		case "labels":
			return func(raw []byte) (err error) { spec.Labels, err = readLabels(raw); return err }
		}
		return nil
	})
	defer release()
	if err != nil {
		return err
	}
	if err := spec.Validate(); err != nil {
		return invalid("%s.", err)
	}
	summary, isNew, err := x.records.PutRun(ctx, &spec)
	if err != nil {
		return err
	}
	v, err := view.ShowRun(ctx, x.records, &summary, view.Agent)
	if err != nil {
		return err
	}
	return x.jsonAs(createdOr200(isNew), v)
}

// isRun refuses the name under which calls that name no run are kept: a lease or
// a budget there would bind them all.
func isRun(run string) error {
	if run == keystore.NoPart {
		return invalid("The run - stands for calls that name no run, and can be given nothing. Name a run.")
	}
	return nil
}

// readName reads a part of an identity.
func readName(raw []byte) (string, error) {
	s, err := readText(raw)
	if err == nil {
		err = keystore.ValidatePart(s)
	}
	return s, err
}

// readBudget reads how many effects a run may begin.
func (x *exchange) readBudget(raw []byte) (*keystore.Budget, error) {
	b := &keystore.Budget{}
	return b, readMembers("", raw, func(name string) memberReader {
		switch name {
		case "effects":
			return func(raw []byte) error {
				n, err := readCount(raw)
				b.Effects = &n
				return err
			}
		case "upstreams":
			return func(raw []byte) (err error) { b.Upstreams, err = x.readUpstreamCounts(raw); return err }
		}
		return nil
	})
}

// readUpstreamCounts reads numbers by upstream. A name that is not configured
// would bound nothing.
func (x *exchange) readUpstreamCounts(raw []byte) (map[string]uint32, error) {
	counts := map[string]uint32{}
	return counts, readMembers("", raw, func(name string) memberReader {
		return func(raw []byte) error {
			o := x.upstream(name)
			if o == nil {
				return fmt.Errorf("no upstream has that name; configured: %s", x.names)
			}
			n, err := readCount(raw)
			counts[o.name] = n
			return err
		}
	})
}

func readCount(raw []byte) (uint32, error) {
	n, err := readWhole(raw)
	if err == nil && (n < 0 || n > 1<<32-1) {
		err = fmt.Errorf("%d is not within 0 and 4294967295", n)
	}
	return uint32(n), err
}

// readLabels reads a map of strings; its bounds are the store's to check.
func readLabels(raw []byte) (map[string]string, error) {
	labels := map[string]string{}
	return labels, readMembers("", raw, func(name string) memberReader {
		return func(raw []byte) (err error) { labels[name], err = readText(raw); return err }
	})
}

// showRecovery answers with what a restarted agent needs to know.
func (x *exchange) showRecovery(ctx context.Context, k keystore.Key, query url.Values) error {
	page, err := pageOf(query)
	if err != nil {
		return err
	}
	report, err := x.journal.Report(ctx, k.Namespace, k.Run, page)
	if err != nil {
		return mistaken(page, err)
	}
	return x.json(view.RecoveryOf(&report))
}

// acquireLease gives out a run's lease.
func (x *exchange) acquireLease(ctx context.Context, k keystore.Key, query url.Values) error {
	if err := errors.Join(checkQuery(query), isRun(k.Run)); err != nil {
		return err
	}
	q := keystore.LeaseRequest{Namespace: k.Namespace, Run: k.Run}
	release, err := x.readObject(ctx, func(name string) memberReader {
		switch name {
		case "owner":
			return func(raw []byte) (err error) { q.Owner, err = readName(raw); return err }
		case "ttl_seconds":
			return func(raw []byte) (err error) { q.TTL, err = readLeaseTTL(raw); return err }
		}
		return nil
	})
	defer release()
	switch {
	case err != nil:
		return err
	case q.Owner == "" || q.TTL == 0:
		return invalid(`Say who takes the lease and for how long, as in {"owner":"worker-1","ttl_seconds":30}.`)
	}
	if err := q.Validate(); err != nil {
		return invalid("%s.", err)
	}
	grant, err := x.records.AcquireLease(ctx, &q)
	if err != nil {
		return err
	}
	return x.json(view.GrantOf(&grant))
}

// renewLease prolongs a lease.
func (x *exchange) renewLease(ctx context.Context, k keystore.Key, query url.Values) error {
	if err := checkQuery(query); err != nil {
		return err
	}
	var fence keystore.Fence
	var ttl time.Duration
	release, err := x.readObject(ctx, func(name string) memberReader {
		switch name {
		case "fence":
			return func(raw []byte) (err error) { fence, err = readFence(raw); return err }
		case "ttl_seconds":
			return func(raw []byte) (err error) { ttl, err = readLeaseTTL(raw); return err }
		}
		return nil
	})
	defer release()
	switch {
	case err != nil:
		return err
	case fence == 0:
		return invalid(`Say which lease is renewed, as in {"fence":7}; ttl_seconds changes for how long.`)
	}
	grant, err := x.records.RenewLease(ctx, k.Namespace, k.Run, fence, ttl)
	if err != nil {
		return err
	}
	return x.json(view.GrantOf(&grant))
}

// releaseLease gives a lease back.
func (x *exchange) releaseLease(ctx context.Context, k keystore.Key, query url.Values) error {
	if err := checkQuery(query, "fence"); err != nil {
		return err
	}
	n, err := strconv.ParseUint(query.Get("fence"), 10, 63)
	if err != nil || n == 0 {
		return invalid("Say in the query which lease is given back: ?fence=N, a whole number from 1 up.")
	}
	if err := x.records.ReleaseLease(ctx, k.Namespace, k.Run, keystore.Fence(n)); err != nil {
		return err
	}
	return x.noContent()
}

// showLease answers with the newest lease of a run.
func (x *exchange) showLease(ctx context.Context, k keystore.Key, query url.Values) error {
	if err := checkQuery(query); err != nil {
		return err
	}
	grant, err := x.records.Lease(ctx, k.Namespace, k.Run)
	if err != nil {
		return err
	}
	return x.json(view.LeaseOf(&grant))
}

func readFence(raw []byte) (keystore.Fence, error) {
	n, err := readWhole(raw)
	if err == nil && n < 1 {
		err = fmt.Errorf("%d is none: fences begin at 1", n)
	}
	return keystore.Fence(n), err
}

// readLeaseTTL reads for how long a lease is given.
func readLeaseTTL(raw []byte) (time.Duration, error) {
	seconds, err := readWhole(raw)
	if err != nil {
		return 0, err
	}
	if most := int64(keystore.LeaseTTLMax / time.Second); seconds < 1 || seconds > most {
		return 0, fmt.Errorf("%d is not within 1 and %d", seconds, most)
	}
	return time.Duration(seconds) * time.Second, nil
}
