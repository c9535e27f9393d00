package upstream

import (
	"bytes"
	"context"
	"io"
	"net"
	"testing"

	"counterfoil/classify"

	"github.com/valyala/fasthttp"
)

// The peer is fasthttp's own client, against the same fasthttp server on
// loopback in the same process. Held constant: a POST of 256 bytes with six
// fields, an answer of 512 bytes, 256 callers.
const benchCallers = 256

var (
	benchBody  = bytes.Repeat([]byte("b"), 256)
	benchReply = bytes.Repeat([]byte("r"), 512)
	benchHead  = classify.Header{
		{Name: "Content-Type", Value: "application/json"},
		{Name: "Accept", Value: "application/json"},
		{Name: "Authorization", Value: "Bearer sk_test_0123456789"},
		{Name: "Idempotency-Key", Value: "0123456789abcdefghijklmn"},
		{Name: "User-Agent", Value: "agent/1.0"},
		{Name: "X-Trace", Value: "00-4bf92f3577b34da6a3ce929d0e0e4736"},
	}
)

func benchServer(b *testing.B) string {
	b.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	srv := &fasthttp.Server{Handler: func(ctx *fasthttp.RequestCtx) {
		ctx.SetContentType("application/json")
		ctx.SetBody(benchReply)
	}}
	go srv.Serve(ln)
	b.Cleanup(func() { srv.Shutdown() })
	return ln.Addr().String()
}

func BenchmarkUpstream(b *testing.B) {
	addr := benchServer(b)
	c, err := New(Config{URL: "http://" + addr})
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	for name, ctx := range map[string]func() (context.Context, context.CancelFunc){
		"plain":       func() (context.Context, context.CancelFunc) { return context.Background(), func() {} },
		"cancellable": func() (context.Context, context.CancelFunc) { return context.WithCancel(context.Background()) },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetParallelism(benchCallers / 2)
			b.RunParallel(func(pb *testing.PB) {
				buf := make([]byte, 4096)
				for pb.Next() {
					ctx, cancel := ctx()
					resp := c.Send(ctx, &classify.Request{Method: "POST", Target: "/v1/charges", Header: benchHead, Body: benchBody})
					if resp.Evidence != classify.Answered {
						b.Error(resp.Reason)
						cancel()
						return
					}
					n, err := io.ReadFull(resp.Body, buf[:resp.Length])
					if err != nil || n != len(benchReply) {
						b.Error(n, err)
					}
					resp.Body.Close()
					cancel()
				}
			})
		})
	}
}

func BenchmarkFasthttpHostClient(b *testing.B) {
	addr := benchServer(b)
	hc := &fasthttp.HostClient{Addr: addr, MaxConns: 512}
	defer hc.CloseIdleConnections()
	b.ReportAllocs()
	b.SetParallelism(benchCallers / 2)
	b.RunParallel(func(pb *testing.PB) {
		req, resp := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
		for pb.Next() {
			req.Reset()
			resp.Reset()
			req.Header.SetMethod("POST")
			req.SetRequestURI("http://" + addr + "/v1/charges")
			for _, f := range benchHead {
				req.Header.Set(f.Name, f.Value)
			}
			req.SetBody(benchBody)
			if err := hc.Do(req, resp); err != nil {
				b.Error(err)
				return
			}
			if len(resp.Body()) != len(benchReply) {
				b.Error(len(resp.Body()))
			}
		}
	})
}
