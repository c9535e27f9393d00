package upstream

import (
	"context"
	"errors"
	"fmt"
	"time"
)

var errClosed = errors.New("the upstream's client is closed")

// acquire waits for the right to hold a connection. Idle connections hold
// none, and a new one is only dialled when there is no idle one, so open
// connections never outnumber the slots.
func (c *Client) acquire(ctx context.Context, deadline time.Time) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("given up before sending: %w", err)
	}
	select {
	case c.slots <- struct{}{}:
		return nil
	default:
	}
	wait := time.NewTimer(min(c.timeouts.Connect, time.Until(deadline)))
	defer wait.Stop()
	select {
	case c.slots <- struct{}{}:
		return nil
	case <-wait.C:
		return fmt.Errorf("connection limit: all %d connections to the upstream stayed busy", cap(c.slots))
	case <-ctx.Done():
		return fmt.Errorf("given up before sending: %w", ctx.Err())
	}
}

func (c *Client) release() { <-c.slots }

// takeIdle returns the connection used last that is still open and silent, or
// nil. A connection that has something to say between requests, be it its
// end, belongs to no request and is closed.
func (c *Client) takeIdle() *conn {
	for {
		cn := c.popIdle()
		if cn == nil {
			return nil
		}
		if time.Since(cn.idleSince) < cn.keep && cn.quiet() {
			return cn
		}
		cn.close()
	}
}

func (c *Client) popIdle() *conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := len(c.idle) - 1
	if last < 0 {
		return nil
	}
	cn := c.idle[last]
	c.idle[last] = nil
	c.idle = c.idle[:last]
	return cn
}

// keep takes a connection back after a clean end, and its slot.
func (c *Client) keep(cn *conn) {
	cn.rest()
	if !c.pushIdle(cn) {
		cn.close()
	}
	c.release()
}

func (c *Client) pushIdle(cn *conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.idle = append(c.idle, cn)
	if c.sweep == nil {
		c.sweep = time.AfterFunc(c.timeouts.Keep, c.closeOld)
	}
	return true
}

// closeOld closes what was idle for too long, and comes again while anything
// is idle.
func (c *Client) closeOld() {
	for _, cn := range c.takeOld(time.Now()) {
		cn.close()
	}
}

func (c *Client) takeOld(now time.Time) []*conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	var old []*conn
	kept := c.idle[:0]
	for _, cn := range c.idle {
		if now.Sub(cn.idleSince) < cn.keep {
			kept = append(kept, cn)
		} else {
			old = append(old, cn)
		}
	}
	clear(c.idle[len(kept):])
	c.idle = kept
	c.sweep = nil
	if len(kept) > 0 && !c.closed {
		c.sweep = time.AfterFunc(c.timeouts.Keep, c.closeOld)
	}
	return old
}

// Close closes idle connections now and the others as their answers end. It
// waits for nothing. What is sent after it is Unsent.
func (c *Client) Close() {
	c.mu.Lock()
	c.closed = true
	idle := c.idle
	c.idle = nil
	if c.sweep != nil {
		c.sweep.Stop()
	}
	c.mu.Unlock()
	for _, cn := range idle {
		cn.close()
	}
}

func (c *Client) isClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}
