package classify

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"io"
	"strings"
)

// decodedBytesMax bounds what a compressed body may grow to: past it, its
// compressed bytes count. It is what a body may have that is not compressed, so
// that compressing one makes nobody hold more.
const decodedBytesMax = 10 << 20

// decodeBody removes a content coding that it knows. It returns the body as it
// is, and the coding's name, where it cannot.
func decodeBody(h Header, body []byte) (decoded []byte, coding string) {
	coding = contentCoding(h)
	switch coding {
	case "", "identity":
		return body, ""
	case "gzip", "x-gzip":
		decoded, ok := inflate(body, func(r io.Reader) (io.ReadCloser, error) { return gzip.NewReader(r) })
		if ok {
			return decoded, ""
		}
	case "deflate":
		decoded, ok := inflate(body, zlib.NewReader)
		if ok {
			return decoded, ""
		}
	}
	return body, coding
}

func contentCoding(h Header) string {
	if !h.Has("Content-Encoding") {
		return ""
	}
	return strings.ToLower(strings.Join(h.Values("Content-Encoding"), ","))
}

// inflate returns false for what is damaged, too long, or followed by bytes
// that a reader might pass over.
func inflate(body []byte, open func(io.Reader) (io.ReadCloser, error)) ([]byte, bool) {
	rest := bytes.NewReader(body)
	r, err := open(rest)
	if err != nil {
		return nil, false
	}
	decoded, err := io.ReadAll(io.LimitReader(r, decodedBytesMax+1))
	if err != nil || len(decoded) > decodedBytesMax || rest.Len() > 0 {
		return nil, false
	}
	return decoded, r.Close() == nil
}
