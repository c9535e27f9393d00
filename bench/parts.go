package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// startPatience bounds the start of each part.
const startPatience = 30 * time.Second

// parts are the processes that the benchmark has started.
type parts struct {
	dir string
	all []*exec.Cmd
}

// announced starts a program and returns the first line that it prints: its
// address.
func (p *parts) announced(ctx context.Context, environ []string, program string, args ...string) (*exec.Cmd, string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), environ...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, "", err
	}
	if err := cmd.Start(); err != nil {
		return nil, "", err
	}
	p.all = append(p.all, cmd)
	line := make(chan string, 1)
	go func() {
		text, _ := bufio.NewReader(out).ReadString('\n')
		line <- strings.TrimSpace(text)
	}()
	select {
	case address := <-line:
		if address == "" {
			return nil, "", fmt.Errorf("%s did not start", filepath.Base(program))
		}
		return cmd, address, nil
	case <-time.After(startPatience):
		return nil, "", fmt.Errorf("%s did not start within %s", filepath.Base(program), startPatience)
	}
}

// stop ends every part, the newest first.
func (p *parts) stop() {
	for _, cmd := range slices.Backward(p.all) {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may be gone
		_ = cmd.Wait()
	}
}

func (p *parts) sidecar(ctx context.Context, provider string) (*exec.Cmd, string, error) {
	program := filepath.Join(p.dir, "sidecar")
	build := exec.CommandContext(ctx, "go", "build", "-o", program, "counterfoil/cmd/sidecar")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return nil, "", fmt.Errorf("building the sidecar: %w", err)
	}
	return p.announced(ctx, []string{
		"COUNTERFOIL_UPSTREAMS=p=http://" + provider, "COUNTERFOIL_DATA=" + p.data(), "COUNTERFOIL_LOG_LEVEL=error",
		"COUNTERFOIL_LISTEN=127.0.0.1:0", "COUNTERFOIL_ADMIN_LISTEN=127.0.0.1:0",
	}, program, "serve", "--announce")
}

func (p *parts) data() string { return filepath.Join(p.dir, "data") }

// nginxConfig is a plain proxy with connections kept alive on both sides, and
// nothing else.
const nginxConfig = `daemon off; master_process on; worker_processes auto; pid %[1]s/nginx.pid; error_log %[1]s/nginx.log;
events { worker_connections 2048; }
http {
  access_log off; client_body_temp_path %[1]s/body; proxy_temp_path %[1]s/proxy;
  fastcgi_temp_path %[1]s/f; uwsgi_temp_path %[1]s/u; scgi_temp_path %[1]s/s;
  keepalive_requests 100000000;
  upstream p { server %[2]s; keepalive 512; keepalive_requests 100000000; }
  server { listen %[3]s; location / { proxy_pass http://p; proxy_http_version 1.1; proxy_set_header Connection ""; } }
}
`

// errNoNginx says that the comparison has to do without nginx.
var errNoNginx = errors.New("nginx is not installed")

func (p *parts) nginx(ctx context.Context, provider string) (string, error) {
	program, err := exec.LookPath("nginx")
	if err != nil {
		return "", errNoNginx
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	address := ln.Addr().String()
	if err := ln.Close(); err != nil {
		return "", err
	}
	file := filepath.Join(p.dir, "nginx.conf")
	if err := os.WriteFile(file, fmt.Appendf(nil, nginxConfig, p.dir, provider, address), 0o600); err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, program, "-c", file, "-p", p.dir)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return "", err
	}
	p.all = append(p.all, cmd)
	return address, waitFor(ctx, address)
}

// waitFor tries an address until something listens there.
func waitFor(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	for {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("nothing listens at %s: %w", address, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// anonymousMiB is the memory of a process that no file stands behind.
func anonymousMiB(pid int) (int, error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/smaps_rollup")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "Anonymous:" {
			kib, err := strconv.Atoi(fields[1])
			return kib >> 10, err
		}
	}
	return 0, errors.New("no line Anonymous")
}

// writtenMiB is what a process has had written to disk.
func writtenMiB(pid int) (int, error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/io")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "write_bytes: "); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(rest), 10, 64)
			return int(n >> 20), err
		}
	}
	return 0, errors.New("no line write_bytes")
}

// syncMedian measures one sync: an append of 1 KiB and fdatasync, to a file
// that is preallocated.
func syncMedian(dir string) (time.Duration, error) {
	f, err := os.CreateTemp(dir, "sync-")
	if err != nil {
		return 0, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	if err := syscall.Fallocate(int(f.Fd()), 0, 0, 1<<20); err != nil {
		return 0, fmt.Errorf("preallocating: %w", err)
	}
	piece := make([]byte, 1<<10)
	var took []time.Duration
	for range 500 {
		began := time.Now()
		if _, err := f.Write(piece); err != nil {
			return 0, err
		}
		if err := syscall.Fdatasync(int(f.Fd())); err != nil {
			return 0, err
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	return took[len(took)/2], nil
}
