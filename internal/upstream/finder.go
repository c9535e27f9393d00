package upstream

import (
	"context"
	"crypto/tls"
	"net/http"
	"net/url"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"counterfoil/classify"
)

// A Finder sends lookups. They are reads, so it may repeat them: that is what
// sets it apart from a Client. It follows no redirect. It is safe for concurrent
// use.
type Finder struct {
	base   *url.URL
	client *retryablehttp.Client
}

const (
	// findTries is how often a lookup is sent at the most.
	findTries = 3
	// findWaitMin and findWaitMax bound the pause between two.
	findWaitMin = 100 * time.Millisecond
	findWaitMax = 2 * time.Second
	// findAttempt bounds one try.
	findAttempt = 10 * time.Second
)

// NewFinder returns the finder of one upstream. Of cfg's time-outs only Connect
// counts.
func NewFinder(cfg Config) (*Finder, error) {
	base, err := parseBase(cfg.URL)
	if err != nil {
		return nil, err
	}
	trust, err := cfg.trust()
	if err != nil {
		return nil, err
	}
	timeouts, err := cfg.Timeouts.withDefaults()
	if err != nil {
		return nil, err
	}
	proxy, err := cfg.proxyFor(base)
	if err != nil {
		return nil, err
	}
	return &Finder{base: base, client: newRetrying(trust, proxy, timeouts.Connect)}, nil
}

func newRetrying(trust *tls.Config, proxy *url.URL, connect time.Duration) *retryablehttp.Client {
	transport := &http.Transport{
		TLSClientConfig: trust, TLSHandshakeTimeout: connect, DisableCompression: true,
		MaxIdleConns: 4, IdleConnTimeout: 30 * time.Second, ResponseHeaderTimeout: findAttempt,
		MaxResponseHeaderBytes: headBytesMax,
	}
	if proxy != nil {
		transport.Proxy = http.ProxyURL(proxy)
	}
	c := retryablehttp.NewClient()
	c.Logger = nil
	c.RetryMax, c.RetryWaitMin, c.RetryWaitMax = findTries-1, findWaitMin, findWaitMax
	c.ErrorHandler = retryablehttp.PassthroughErrorHandler
	c.HTTPClient = &http.Client{
		Transport: transport,
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		},
	}
	return c
}

// Send asks, and asks again after a connection error, a 5xx or a 429, three
// times in all. Errors never name the URL: its query may hold a secret.
func (f *Finder) Send(ctx context.Context, r *classify.Request) *classify.Response {
	var body any // a search by POST has one
	if len(r.Body) > 0 {
		body = r.Body
	}
	req, err := retryablehttp.NewRequestWithContext(ctx, r.Method, f.base.Scheme+"://"+f.base.Host+basePath(f.base)+r.Target, body)
	if err != nil {
		return &classify.Response{Evidence: classify.Unsent, Reason: "the lookup's target is no URL"}
	}
	for _, field := range classify.EndToEnd(r.Header) {
		req.Header.Add(field.Name, field.Value)
	}
	resp, err := f.client.Do(req) //nolint:bodyclose // it goes to the caller with the answer
	if err != nil {
		return &classify.Response{Evidence: classify.Lost, Reason: "the provider could not be reached"}
	}
	h := make(classify.Header, 0, len(resp.Header))
	for name, values := range resp.Header {
		for _, v := range values {
			h = append(h, classify.Field{Name: name, Value: v})
		}
	}
	return &classify.Response{Evidence: classify.Answered, Status: resp.StatusCode, Header: classify.EndToEnd(h), Length: resp.ContentLength, Body: resp.Body}
}

// Close gives up idle connections.
func (f *Finder) Close() { f.client.HTTPClient.CloseIdleConnections() }
