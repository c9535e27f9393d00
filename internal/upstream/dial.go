package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"time"
)

// dial opens a connection that is ready for a request: through the proxy and
// past the TLS handshake. Nothing of a request has left when it fails.
func (c *Client) dial(ctx context.Context, deadline time.Time) (*conn, error) {
	if c.isClosed() {
		return nil, errClosed
	}
	if until := time.Now().Add(c.timeouts.Connect); until.Before(deadline) {
		deadline = until
	}
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()

	nc, err := c.dialer.DialContext(ctx, "tcp", c.dialAddr())
	if err != nil {
		return nil, fmt.Errorf("connecting: %w", err)
	}
	cn, err := c.newConn(nc)
	if err == nil {
		err = c.prepare(ctx, cn)
	}
	if err != nil {
		nc.Close()
		return nil, err
	}
	return cn, nil
}

func (c *Client) dialAddr() string {
	if c.proxy != nil {
		return address(c.proxy)
	}
	return c.addr
}

// prepare does what stands between a TCP connection and the first request.
func (c *Client) prepare(ctx context.Context, cn *conn) error {
	if c.proxy != nil && c.proxy.Scheme == "https" {
		if err := c.secure(ctx, cn, c.proxy); err != nil {
			return fmt.Errorf("TLS handshake with the proxy: %w", err)
		}
	}
	if c.tunnels() {
		if err := c.tunnel(ctx, cn); err != nil {
			return err
		}
	}
	if c.base.Scheme == "https" {
		if err := c.secure(ctx, cn, c.base); err != nil {
			return fmt.Errorf("TLS handshake: %w", err)
		}
	}
	return nil
}

// secure puts TLS on top of what the connection speaks so far.
func (c *Client) secure(ctx context.Context, cn *conn, peer *url.URL) error {
	cfg := c.tls.Clone()
	cfg.ServerName = peer.Hostname()
	t := tls.Client(cn.nc, cfg)
	if err := t.HandshakeContext(ctx); err != nil {
		return err
	}
	cn.nc = t
	cn.tls = t
	return nil
}

// tunnel asks the proxy for a connection to the origin (RFC 9110 section
// 9.3.6). The proxy's own words never become an answer.
func (c *Client) tunnel(ctx context.Context, cn *conn) error {
	stop := context.AfterFunc(ctx, cn.abort)
	defer stop()
	ask := "CONNECT " + c.addr + " HTTP/1.1\r\nHost: " + c.addr + "\r\n"
	if c.proxyAuth != "" {
		ask += "Proxy-Authorization: " + c.proxyAuth + "\r\n"
	}
	if _, err := cn.nc.Write([]byte(ask + "\r\n")); err != nil {
		return fmt.Errorf("asking the proxy for a tunnel: %w", err)
	}
	h, err := cn.readHead()
	switch {
	case err != nil && ctx.Err() != nil:
		return fmt.Errorf("asking the proxy for a tunnel: %w", ctx.Err())
	case err != nil:
		return fmt.Errorf("asking the proxy for a tunnel: %w", err)
	case h.status/100 != 2:
		return errors.New("the proxy refused a tunnel with status " + strconv.Itoa(h.status))
	case cn.in.buffered() > 0:
		return errors.New("the proxy sent more than its answer ahead of the tunnel")
	case !stop():
		return fmt.Errorf("asking the proxy for a tunnel: %w", ctx.Err())
	}
	return nil
}
