package main

import (
	"fmt"
	"math/rand/v2"
	"net"

	"github.com/valyala/fasthttp"
)

// serveProvider answers every request at once with the same body, and prints
// its address. It does as little as can be, so that what is measured is what
// stands before it.
func serveProvider(bodyLen int) error {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	body := noise(rand.New(rand.NewPCG(1, 2)), bodyLen)
	server := &fasthttp.Server{
		Handler: func(ctx *fasthttp.RequestCtx) {
			ctx.SetContentType("application/octet-stream")
			ctx.SetBody(body)
		},
		NoDefaultServerHeader: true,
	}
	fmt.Println(ln.Addr())
	return server.Serve(ln)
}

// noise returns bytes that do not compress.
func noise(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}
