package upstream

import (
	"reflect"
	"testing"

	"counterfoil/classify"
)

// Trailers are dropped, forbidden or not; none ever gets into the header.
func TestC79_TrailersAreDropped(t *testing.T) {
	p := provide(t, answering("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\nX-A: 1\r\n\r\n"+
		"2\r\nok\r\n0\r\nX-Sum: abc\r\nContent-Length: 5\r\nSet-Cookie: evil=1\r\nTransfer-Encoding: chunked\r\n\r\n"))
	c := p.client(t)
	for range 3 {
		resp := exchangeOK(t, c, request("POST", "/", "x"), 200, "ok")
		if want := (classify.Header{{Name: "X-A", Value: "1"}}); !reflect.DeepEqual(resp.Header, want) {
			t.Errorf("header %v, want %v", resp.Header, want)
		}
	}
	if p.connections() != 1 {
		t.Errorf("%d connections, want 1", p.connections())
	}
}
