package classify

import "strings"

// hopByHop are the fields that speak of one connection only (RFC 9110 section
// 7.6.1) or frame a message on it. Whoever sends makes its own.
var hopByHop = [...]string{
	"Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authenticate", "Proxy-Authorization",
	"Te", "Trailer", "Transfer-Encoding", "Upgrade", "Content-Length", "Http2-Settings",
}

// EndToEnd returns a copy of h without the fields that speak of one connection
// only, those that its Connection fields name included.
func EndToEnd(h Header) Header {
	named := connectionOptions(h)
	return h.Without(func(name string) bool {
		for _, hop := range hopByHop {
			if strings.EqualFold(hop, name) {
				return true
			}
		}
		for _, option := range named {
			if strings.EqualFold(option, name) {
				return true
			}
		}
		return false
	})
}

// connectionOptions lists what the Connection fields name.
func connectionOptions(h Header) []string {
	var options []string
	for i := range h {
		if !strings.EqualFold(h[i].Name, "Connection") {
			continue
		}
		for option := range strings.SplitSeq(h[i].Value, ",") {
			if option = strings.Trim(option, " \t"); option != "" {
				options = append(options, option)
			}
		}
	}
	return options
}
