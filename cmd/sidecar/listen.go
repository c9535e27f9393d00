package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"syscall"
	"time"

	"counterfoil/internal/admin"
	"counterfoil/internal/config"
)

const (
	// portPoll is how often an address that is taken is tried again, portWait
	// for how long if no sidecar says that it is about to end.
	portPoll = 100 * time.Millisecond
	portWait = time.Second
	// readinessBytesMax bounds what is read of a predecessor's answer.
	readinessBytesMax = 64 << 10
)

// listeners are the sockets, bound before the store is opened, so that a port
// that is taken is known soon.
type listeners struct {
	admin net.Listener
	data  []dataListener
}

type dataListener struct {
	net.Listener
	// upstream is empty for the common listener.
	upstream string
}

// listen binds every address. What a sidecar holds that drains is waited for.
func (s *sidecar) listen(ctx context.Context) (*listeners, error) {
	began, told := time.Now(), false
	for {
		l, err := s.bind()
		if !errors.Is(err, syscall.EADDRINUSE) {
			return l, err
		}
		draining := s.predecessorDrains(ctx)
		if draining && !told {
			told = true
			s.log.Info("waiting for the sidecar that drains at the same addresses", "at_most", s.restartWait())
		}
		waited := time.Since(began)
		if waited > s.restartWait() || !draining && waited > portWait {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(portPoll):
		}
	}
}

// predecessorDrains reports whether a sidecar answers at the admin address, and
// says that it is about to end.
func (s *sidecar) predecessorDrains(ctx context.Context) bool {
	base, err := baseURL(string(s.cfg.AdminListen))
	if err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, portWait)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/ready", nil)
	if err != nil {
		return false
	}
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	var answer admin.Readiness
	err = json.NewDecoder(io.LimitReader(resp.Body, readinessBytesMax)).Decode(&answer)
	return err == nil && slices.Contains(answer.Reasons, admin.DrainingReason)
}

// bind tries every address once. The error joins those that cannot be had.
func (s *sidecar) bind() (*listeners, error) {
	l := &listeners{}
	var errs []error
	bind := func(setting string, address config.Address) net.Listener {
		ln, err := net.Listen("tcp", string(address))
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w%s", setting, err, adviceOn(err)))
		}
		return ln
	}
	add := func(setting string, address config.Address, upstream string) {
		if ln := bind(setting, address); ln != nil {
			l.data = append(l.data, dataListener{ln, upstream})
		}
	}
	add("COUNTERFOIL_LISTEN (the data listener)", s.cfg.Listen, "")
	for _, u := range s.cfg.Upstreams {
		if u.Listen != "" {
			add("upstreams."+u.Name+".listen, or its @port in COUNTERFOIL_UPSTREAMS", u.Listen, u.Name)
		}
	}
	l.admin = bind("COUNTERFOIL_ADMIN_LISTEN (the admin listener)", s.cfg.AdminListen)
	if len(errs) > 0 {
		l.close()
		return nil, errors.Join(errs...)
	}
	return l, nil
}

// adviceOn says what to do where an address cannot be had.
func adviceOn(err error) string {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return ": end the program that has it, or set another port"
	case errors.Is(err, syscall.EACCES):
		return ": set a port from 1024 on, or give the right to lower ones"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return ": set an address that this machine has, as 127.0.0.1"
	}
	return ": set another address"
}

// own are the listeners of single upstreams, for the log.
func (l *listeners) own() slog.Attr {
	var own []any
	for _, d := range l.data[1:] {
		own = append(own, slog.String(d.upstream, d.Addr().String()))
	}
	return slog.Group("own", own...)
}

func (l *listeners) close() {
	for _, d := range l.data {
		_ = d.Close() // it may be closed already
	}
	if l.admin != nil {
		_ = l.admin.Close()
	}
}
