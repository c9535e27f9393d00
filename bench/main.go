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
	"strconv"
	"strings"
	"time"
)

// options are what the flags say.
type options struct {
	cell    time.Duration
	warmMiB int
	bodyLen int
	dir     string
	levels  []int
}

func main() {
	var o options
	flag.DurationVar(&o.cell, "cell", 3*time.Second, "how long each cell is measured, once forwards and once backwards")
	flag.IntVar(&o.warmMiB, "warm", 400, "MiB that are written to the journal before anything is measured")
	flag.IntVar(&o.bodyLen, "body", 1024, "bytes of each request's and answer's body; they do not compress")
	flag.StringVar(&o.dir, "dir", "", "where the journal's folder is made; the system's temporary folder by default")
	levels := flag.String("levels", "1,64,256", "connections to drive over, separated by commas")
	provider := flag.Bool("provider", false, "be the provider (for the benchmark itself)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := parseLevels(*levels, &o)
	switch {
	case err != nil:
	case *provider:
		err = serveProvider(o.bodyLen)
	default:
		err = run(ctx, o, os.Stdout)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func parseLevels(text string, o *options) error {
	for field := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(field))
		if err != nil || n < 1 || n > 4096 {
			return fmt.Errorf("-levels: %q is no number from 1 to 4096", field)
		}
		o.levels = append(o.levels, n)
	}
	return nil
}
