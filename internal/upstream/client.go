// Package upstream makes one attempt on the wire and says what it proved.
//
// Start with [New] and [Client.Send]. Send writes a request at most once,
// never repeats one, follows no redirect and never returns an error: a
// time-out, a refused connection or a cut stream is evidence about the
// attempt.
//
//   - Unsent: not one byte of the request was given to the operating system.
//     Only then may Send, by itself, go on to another connection.
//   - Lost: a byte was, and no whole head of a final answer came.
//   - Answered: a whole head came. The body proves its own end: it returns
//     io.EOF after a clean end and any other error when it was cut.
//
// The request's head is written with fasthttp, its rewriting of names, values
// and paths turned off. The answer's head is read here, since fasthttp's
// reader moves and merges fields, renames some, takes an answer with two kinds
// of framing, and takes a connection that closes on a chunk's edge for a clean
// end.
package upstream

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"net"
	"net/url"
	"sync"
	"time"

	"counterfoil/classify"
)

// A Client reaches one upstream. It may be used by many goroutines at once.
type Client struct {
	timeouts Timeouts
	dialer   net.Dialer
	tls      *tls.Config

	base      *url.URL
	prefix    string // before every target on the request line
	whole     string // what stands there for an empty target
	host      string // the Host header
	addr      string // the origin's host:port
	proxy     *url.URL
	proxyAuth string // "" if the proxy asks for none

	slots chan struct{} // one token per connection in use

	mu     sync.Mutex
	idle   []*conn // the oldest first
	sweep  *time.Timer
	closed bool
}

// New checks cfg and returns a client for it. It opens no connection. Errors
// say which setting to change, and hold no credentials.
func New(cfg Config) (*Client, error) {
	base, err := parseBase(cfg.URL)
	if err != nil {
		return nil, err
	}
	timeouts, err := cfg.Timeouts.withDefaults()
	if err != nil {
		return nil, err
	}
	if cfg.MaxConns < 0 {
		return nil, fmt.Errorf("connection limit %d is negative: use a positive number, or zero for %d", cfg.MaxConns, maxConnsDefault)
	}
	if cfg.MaxConns == 0 {
		cfg.MaxConns = maxConnsDefault
	}
	proxy, err := cfg.proxyFor(base)
	if err != nil {
		return nil, err
	}
	trust, err := cfg.trust()
	if err != nil {
		return nil, err
	}
	c := &Client{
		timeouts: timeouts,
		tls:      trust,
		base:     base,
		prefix:   basePath(base),
		whole:    cmp.Or(base.EscapedPath(), "/"),
		host:     base.Host,
		addr:     address(base),
		slots:    make(chan struct{}, cfg.MaxConns),
	}
	c.useProxy(proxy)
	return c, nil
}

func (c *Client) useProxy(proxy *url.URL) {
	if proxy == nil {
		return
	}
	c.proxy = proxy
	if proxy.User != nil {
		password, _ := proxy.User.Password()
		c.proxyAuth = "Basic " + base64.StdEncoding.EncodeToString([]byte(proxy.User.Username()+":"+password))
	}
	if !c.tunnels() {
		origin := c.base.Scheme + "://" + c.host // absolute-form, RFC 9112 section 3.2.2
		c.prefix, c.whole = origin+c.prefix, origin+c.whole
	}
}

// tunnels reports whether the proxy is asked to CONNECT, rather than handed
// the request.
func (c *Client) tunnels() bool { return c.proxy != nil && c.base.Scheme == "https" }

// Target returns what stands on the request line for a request's target: the
// base URL's path without a final slash, then target, bytes untouched. Where
// the target has no path it is the base URL's path as it is configured. Through
// a plain HTTP proxy the scheme and host stand before it.
func (c *Client) Target(target string) string {
	if target == "" || target[0] == '?' {
		return c.whole + target
	}
	return c.prefix + target
}

// Send makes one attempt at r and returns when the whole head of a final
// answer came, or when none will. The request leaves at most once. r and its
// body are only read, and no longer used once Send has returned.
//
// When the evidence is Answered, the response's body must be read to io.EOF
// or closed: until then it holds one of the client's connections. The body is
// for one goroutine; cancelling ctx, also after Send has returned, makes its
// Read fail. Cancelling before a byte has left is Unsent.
//
// The header has no hop-by-hop fields: Connection and those it names,
// Keep-Alive, Proxy-Authenticate, Proxy-Connection, TE, Trailer, Upgrade,
// Content-Length and Transfer-Encoding are taken out. Trailers are dropped.
// Length is -1 for chunked and close-delimited bodies, and holds what HEAD and
// 304 answers declare although no body follows.
func (c *Client) Send(ctx context.Context, r *classify.Request) *classify.Response {
	if err := checkRequest(r); err != nil {
		return unsent("request not sendable: " + err.Error())
	}
	deadline := time.Now().Add(c.timeouts.Attempt)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	if err := c.acquire(ctx, deadline); err != nil {
		return unsent(err.Error())
	}
	if cn := c.takeIdle(); cn != nil {
		resp := cn.exchange(ctx, deadline, r)
		if resp.Evidence == classify.Answered {
			return resp
		}
		cn.close()
		if resp.Evidence == classify.Lost || ctx.Err() != nil || !time.Now().Before(deadline) {
			c.release()
			return resp
		}
		// The connection had died: nothing left, so a new one is no repeat.
	}
	cn, err := c.dial(ctx, deadline)
	if err != nil {
		c.release()
		return unsent(err.Error())
	}
	resp := cn.exchange(ctx, deadline, r)
	if resp.Evidence != classify.Answered {
		cn.close()
		c.release()
	}
	return resp
}

func unsent(reason string) *classify.Response {
	return &classify.Response{Evidence: classify.Unsent, Reason: reason}
}
