package upstream

import (
	"errors"
	"fmt"
	"strconv"

	"counterfoil/classify"
)

const (
	// outBytesOnce is how much of head and body goes out in one write.
	outBytesOnce = 16 << 10
	outBytesKept = 32 << 10
)

// checkRequest refuses what could not be sent as it stands. Its errors hold
// no value of a field.
func checkRequest(r *classify.Request) error {
	switch {
	case !validToken(r.Method):
		return errors.New("the method is not a token")
	case r.Method == "CONNECT":
		return errors.New("CONNECT asks for a tunnel, which an upstream is not")
	case !validTarget(r.Target):
		return errors.New(`the target begins with neither "/" nor "?", or holds a space or control character`)
	}
	for i := range r.Header {
		if err := checkField(&r.Header[i]); err != nil {
			return err
		}
	}
	return nil
}

// checkField keeps framing in one hand: fields that this package writes, or
// that would change what a connection means, are nobody else's.
func checkField(f *classify.Field) error {
	if !validToken(f.Name) {
		return errors.New("a header field's name is not a token")
	}
	if !validValue(f.Value) {
		return fmt.Errorf("the value of header field %s holds a control character", f.Name)
	}
	if h := hopOf(f.Name); h == connection || h == contentLength || h == transferEncoding {
		return fmt.Errorf("header field %s is made by who sends: remove it", f.Name)
	}
	if hopIf(f.Name, "Host", dropped) == dropped || hopIf(f.Name, "Expect", dropped) == dropped || hopIf(f.Name, "Upgrade", dropped) == dropped {
		return fmt.Errorf("header field %s does not go to an upstream: remove it", f.Name)
	}
	return nil
}

func validTarget(target string) bool {
	for i := range len(target) {
		if c := target[i]; c <= ' ' || c == 0x7f {
			return false
		}
	}
	return target == "" || target[0] == '/' || target[0] == '?'
}

// compose puts the head and the first part of the body into cn.out, and
// returns what is left of the body.
func (cn *conn) compose(r *classify.Request) (rest []byte) {
	c, h := cn.client, &cn.head
	h.Reset()
	h.DisableNormalizing()
	h.DisableSpecialHeader() // nothing reordered, merged or invented
	h.SetMethod(r.Method)
	h.SetRequestURI(c.Target(r.Target))
	h.Add("Host", c.host)
	if c.proxyAuth != "" && !c.tunnels() {
		h.Add("Proxy-Authorization", c.proxyAuth)
	}
	for i := range r.Header {
		h.Add(r.Header[i].Name, r.Header[i].Value)
	}
	if len(r.Body) > 0 || expectsBody(r.Method) {
		h.Add("Content-Length", strconv.Itoa(len(r.Body)))
	}
	cn.out = h.AppendBytes(cn.out[:0])
	n := min(len(r.Body), max(outBytesOnce-len(cn.out), 0))
	cn.out = append(cn.out, r.Body[:n]...)
	return r.Body[n:]
}

// expectsBody: without a length, such a request would look unfinished (RFC
// 9110 section 8.6).
func expectsBody(method string) bool {
	return method == "POST" || method == "PUT" || method == "PATCH"
}
