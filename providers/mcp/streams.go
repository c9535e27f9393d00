package mcp

import (
	"encoding/json"
	"math"
	"strconv"
	"sync"
)

const (
	// streamsMax bounds how many streams are followed, streamPointBytesMax what is
	// kept of one.
	streamsMax          = 4096
	streamPointBytesMax = 1 << 10
	// nowhere is the token of streams whose point of return is not known, since they
	// gave no event id, or a long one. No answer bears it.
	nowhere = "nowhere"
	// exactMax is where floating point no longer holds every whole number.
	exactMax = 1 << 53
)

// A streamPoint is where a stream has got to: the last event id that it gave, which
// no other stream of the session gives (MCP 2025-11-25, transports, resumability).
type streamPoint struct{ session, event string }

// streams are those that a server ended before the response, by every point from
// which a client may resume them. Ids of messages do not tell streams apart:
// clients of a server without sessions all count from 1, and one sends 1 for
// everything.
type streams struct {
	mu      sync.Mutex
	origins map[streamPoint]streamPoint
}

// follow remembers that the stream which began to be waited for at from has got to
// at. It is false where at is nothing that could be resumed. Beyond the bound any
// other stream is forgotten, and its call is in doubt as others are.
func (s *streams) follow(at, from streamPoint) bool {
	if at.event == "" || len(at.session)+len(at.event) > streamPointBytesMax {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.origins == nil {
		s.origins = map[streamPoint]streamPoint{}
	}
	if _, isKnown := s.origins[at]; !isKnown && len(s.origins) >= streamsMax {
		for other := range s.origins {
			delete(s.origins, other)
			break
		}
	}
	s.origins[at] = from
	return true
}

// origin is where the stream that is resumed at a point began to be waited for;
// false if none is.
func (s *streams) origin(at streamPoint) (streamPoint, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	from, ok := s.origins[at]
	return from, ok
}

// token names a call whose response the client is to come back for.
func token(from streamPoint, id []byte) string {
	return from.session + "\x00" + from.event + "\x00" + spelt(id)
}

// spelt is an id in one spelling: servers escape text and write numbers in ways of
// their own.
func spelt(id []byte) string {
	var text string
	if len(id) > 0 && id[0] == '"' && json.Unmarshal(id, &text) == nil {
		return `"` + text
	}
	number, err := strconv.ParseFloat(string(id), 64)
	if err != nil || math.Abs(number) >= exactMax {
		return string(id)
	}
	return strconv.FormatFloat(number, 'f', -1, 64)
}
