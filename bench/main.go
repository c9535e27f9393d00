// Command bench measures what Counterfoil costs: it starts a provider, a
// sidecar and, where nginx is installed, nginx as a plain proxy without any
// journal, drives each with the same load in one run, and prints a table with
// ratios. All traffic is on loopback.
//
// Cells are measured forwards and then backwards, since machines drift; what is
// printed is the mean of both. The journal's folder is first brought to its
// long-lived state, since a new folder flatters.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"
)

// options are what the flags say.
type options struct {
	cell    time.Duration
	warmMiB int
	bodyLen int
	dir     string
}

func main() {
	var o options
	flag.DurationVar(&o.cell, "cell", 3*time.Second, "how long each cell is measured, once forwards and once backwards")
	flag.IntVar(&o.warmMiB, "warm", 400, "MiB that are written to the journal before anything is measured")
	flag.IntVar(&o.bodyLen, "body", 1024, "bytes of each request's and answer's body; they do not compress")
	flag.StringVar(&o.dir, "dir", "", "where the journal's folder is made; the system's temporary folder by default")
	provider := flag.Bool("provider", false, "be the provider (for the benchmark itself)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	var err error
	if *provider {
		err = serveProvider(o.bodyLen)
	} else {
		err = run(ctx, o, os.Stdout)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}
