package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"time"
)

// A cell is one target at one level.
type cell struct {
	target *target
	level  int
	result result
}

// A bench is one run.
type bench struct {
	options
	parts   *parts
	out     io.Writer
	names   names
	sidecar *exec.Cmd
	targets []*target
	cells   []*cell
}

func run(ctx context.Context, o options, out io.Writer) (err error) {
	dir, err := os.MkdirTemp(o.dir, "counterfoil-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	b := &bench{options: o, parts: &parts{dir: dir}, out: out}
	defer b.parts.stop()
	if err := b.start(ctx); err != nil {
		return err
	}
	if err := b.warmUp(); err != nil {
		return err
	}
	if err := b.measure(ctx); err != nil {
		return err
	}
	return b.report()
}

// start brings the parts up and says how each is to be driven.
func (b *bench) start(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	_, provider, err := b.parts.announced(ctx, nil, self, "-provider", "-body", strconv.Itoa(b.bodyLen))
	if err != nil {
		return err
	}
	nginx, err := b.parts.nginx(ctx, provider)
	if err != nil && !errors.Is(err, errNoNginx) {
		return err
	}
	var sidecar string
	if b.sidecar, sidecar, err = b.parts.sidecar(ctx, provider); err != nil {
		return err
	}
	random := rand.New(rand.NewPCG(3, 4))
	body := noise(random, b.bodyLen)
	value, err := fillStore(sidecar, random, b.bodyLen)
	if err != nil {
		return fmt.Errorf("filling a store: %w", err)
	}
	renewal, err := acquireLease(sidecar)
	if err != nil {
		return fmt.Errorf("taking a lease: %w", err)
	}
	b.targets = []*target{
		{name: "direct GET", address: provider, path: "/x", method: "GET", plain: nginxGET},
		{name: nginxGET, address: nginx, path: "/x", method: "GET"},
		{name: "sidecar read", address: sidecar, path: "/p/x", method: "GET", outcome: "passthrough", plain: nginxGET},
		{name: "direct POST", address: provider, path: "/x", method: "POST", body: body, plain: nginxPOST},
		{name: nginxPOST, address: nginx, path: "/x", method: "POST", body: body},
		{name: freshEffect, address: sidecar, path: "/p/x", method: "POST", body: body, call: b.names.fresh, outcome: "executed", plain: nginxPOST},
		{name: replay, address: sidecar, path: "/p/x", method: "POST", body: body, call: b.names.known, outcome: "replayed", plain: nginxPOST},
		{name: "sidecar item put", address: sidecar, path: itemsPath, rest: anItem, method: "PUT", body: value, plain: nginxPOST, calls: freshEffect},
		{name: "sidecar item get", address: sidecar, path: itemsPath, rest: anItem, method: "GET", plain: nginxGET, calls: replay},
		{name: "sidecar lease renew", address: sidecar, path: leasePath, method: "PUT", body: renewal, plain: nginxPOST, calls: freshEffect},
	}
	b.targets = slices.DeleteFunc(b.targets, func(t *target) bool { return t.address == "" })
	return nil
}

// The cells that others are compared with.
const (
	nginxGET    = "nginx GET"
	nginxPOST   = "nginx POST"
	freshEffect = "sidecar fresh effect"
	replay      = "sidecar replay"
)

func (b *bench) target(name string) *target {
	for _, t := range b.targets {
		if t.name == name {
			return t
		}
	}
	return nil
}

// warmUp writes until the journal's folder is in its long-lived state.
func (b *bench) warmUp() error {
	fresh := b.target(freshEffect)
	for {
		if _, err := drive(fresh, 256, time.Second); err != nil {
			return err
		}
		written, err := writtenMiB(b.sidecar.Process.Pid)
		if err != nil {
			return err
		}
		if written >= b.warmMiB && b.names.made.Load() > 20_000 {
			return nil
		}
	}
}

// rest is given before each cell, so that what the one before left to be done in
// the background does not count against the next.
const rest = time.Second

// measure goes over all cells forwards, then backwards.
func (b *bench) measure(ctx context.Context) error {
	for _, level := range b.levels {
		for _, t := range b.targets {
			b.cells = append(b.cells, &cell{target: t, level: level})
		}
	}
	for _, c := range b.cells {
		time.Sleep(rest)
		r, err := drive(c.target, c.level, b.cell)
		if err != nil || ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
		c.result = r
	}
	for _, c := range slices.Backward(b.cells) {
		time.Sleep(rest)
		r, err := drive(c.target, c.level, b.cell)
		if err != nil || ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
		c.result = c.result.mean(r)
	}
	return nil
}

func (b *bench) find(name string, level int) *cell {
	for _, c := range b.cells {
		if c.target.name == name && c.level == level {
			return c
		}
	}
	return nil
}

// report prints the tables. Ratios are to nginx, where it was there, and of what
// is no call to a call that costs the store alike.
func (b *bench) report() error {
	sync, err := syncMedian(b.parts.dir)
	if err != nil {
		return err
	}
	memory, err := anonymousMiB(b.sidecar.Process.Pid)
	if err != nil {
		return err
	}
	fmt.Fprintf(b.out, "%s, %s/%s, %d cores; bodies of %d bytes; %d MiB written before; each cell %s forwards and %s backwards\n\n",
		runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), b.bodyLen, b.warmMiB, b.options.cell, b.options.cell)
	fmt.Fprintf(b.out, "| %-20s | %11s | %9s | %10s | %10s | %10s | %10s |\n", "", "connections", "calls/s", "median", "p99", "to nginx", "to calls")
	fmt.Fprintf(b.out, "|:---------------------|------------:|----------:|-----------:|-----------:|-----------:|-----------:|\n")
	for _, c := range b.cells {
		fmt.Fprintf(b.out, "| %-20s | %11d | %9.0f | %10s | %10s | %10s | %10s |\n", c.target.name, c.level, c.result.perSecond,
			c.result.median.Round(time.Microsecond), c.result.p99.Round(time.Microsecond), b.ratio(c, c.target.plain), b.ratio(c, c.target.calls))
	}
	b.latency(sync)
	fmt.Fprintf(b.out, "Sidecar: %d calls on record, %d MiB of anonymous memory.\n", b.names.made.Load(), memory)
	return nil
}

// ratio is what a cell reaches of another at the same level.
func (b *bench) ratio(c *cell, to string) string {
	peer := b.find(to, c.level)
	if peer == nil {
		return "-"
	}
	return fmt.Sprintf("%.2f", c.result.perSecond/peer.result.perSecond)
}

// latency says what one call alone costs, in syncs.
func (b *bench) latency(sync time.Duration) {
	fresh, direct := b.find(freshEffect, 1), b.find("direct POST", 1)
	if fresh == nil {
		return
	}
	added := fresh.result.median - direct.result.median
	goal := 2*sync + 300*time.Microsecond
	fmt.Fprintf(b.out, "\nOne connection: a fresh effect adds %s to the median; two syncs of %s and 0.3 ms are %s (%.2f of that).\n",
		added.Round(time.Microsecond), sync.Round(time.Microsecond), goal.Round(time.Microsecond), float64(added)/float64(goal))
}
