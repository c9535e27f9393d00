package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"counterfoil/internal/admin"
)

const (
	adminDefault = "127.0.0.1:8101"
	// answerTimeout bounds one question to the admin listener, answerBytesMax
	// its answer.
	answerTimeout  = 30 * time.Second
	answerBytesMax = 64 << 20
)

// A client asks the admin listener, as the flags of a command say.
type client struct {
	env       clientEnv
	admin     string
	namespace string
	asJSON    bool
	limit     int
	after     string
}

// addFlags declares the flags that every command of the client has.
func (c *client) addFlags(cmd *cobra.Command) {
	c.addAdminFlag(cmd)
	cmd.Flags().BoolVar(&c.asJSON, "json", false, "print what the API answers, for programs")
	cmd.Long += "\n\nWhere the sidecar has an admin token, it is taken from COUNTERFOIL_ADMIN_TOKEN."
}

func (c *client) addAdminFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.admin, "admin", "", "URL or address of the admin listener (default $COUNTERFOIL_ADMIN_LISTEN, else "+adminDefault+")")
}

func (c *client) addNamespaceFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.namespace, "namespace", "", "namespace of the run (default: the sidecar's own)")
}

func (c *client) addPageFlags(cmd *cobra.Command) {
	cmd.Flags().IntVar(&c.limit, "limit", 100, "how many to list at most, 1 to 1000")
	cmd.Flags().StringVar(&c.after, "after", "", "go on after the cursor that the last list ended with")
}

// query is what the flags say, for a path that takes it.
func (c *client) query() url.Values {
	q := url.Values{}
	if c.namespace != "" {
		q.Set("namespace", c.namespace)
	}
	if c.limit != 0 {
		q.Set("limit", strconv.Itoa(c.limit))
	}
	if c.after != "" {
		q.Set("after", c.after)
	}
	return q
}

// addKeyArgument lets a command take a key that begins with "-:", the printed
// form of a call without a run: the parser of flags sees the flag ":" in it.
func addKeyArgument(cmd *cobra.Command) {
	cmd.Flags().StringArrayP(keyFlag, ":", nil, "the rest of a key that begins with -:")
	cmd.Flags().Lookup(keyFlag).Hidden = true
}

const keyFlag = "key-without-run"

// arguments are those that stand bare, and keys that were taken for a flag.
func arguments(cmd *cobra.Command, bare []string) []string {
	keys, err := cmd.Flags().GetStringArray(keyFlag)
	if err != nil {
		return bare // it takes none
	}
	for _, rest := range keys {
		bare = append(bare, "-:"+rest)
	}
	return bare
}

// exactly is the check of a command's arguments: as many as are named.
func exactly(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		args = arguments(cmd, args)
		if len(args) == len(names) {
			return nil
		}
		if len(names) == 0 {
			return usagef("%s takes no argument, but got %q", cmd.Name(), args)
		}
		return usagef("%s takes %s, but got %d arguments; see %s --help", cmd.Name(), strings.Join(names, " and "), len(args), cmd.CommandPath())
	}
}

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// checkLimit refuses a limit that the API would not take.
func (c *client) checkLimit() error {
	if c.limit < 1 || c.limit > 1000 {
		return usagef("--limit is a number from 1 to 1000, not %d", c.limit)
	}
	return nil
}

// base is the URL of the admin listener.
func (c *client) base() (string, error) {
	if c.admin != "" {
		return baseURL(c.admin)
	}
	return baseURL(c.env.adminURL())
}

// baseURL makes a URL of a URL, an address or a port alone. What is bound
// everywhere is reached on this machine.
func baseURL(given string) (string, error) {
	whole := given
	if _, err := strconv.ParseUint(given, 10, 16); err == nil {
		whole = "127.0.0.1:" + given
	}
	if !strings.Contains(whole, "://") {
		whole = "http://" + whole
	}
	u, err := url.Parse(whole)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "", usagef("%q is no address of an admin listener: write it like http://%s", given, adminDefault)
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return "", usagef("the address of the admin listener is scheme, host and port alone, like http://%s", adminDefault)
	}
	if ip := net.ParseIP(u.Hostname()); u.Hostname() == "" || ip != nil && ip.IsUnspecified() {
		u.Host = net.JoinHostPort("127.0.0.1", u.Port())
	}
	return strings.TrimSuffix(u.Scheme+"://"+u.Host+u.EscapedPath(), "/"), nil
}

func (c *client) get(ctx context.Context, path string, q url.Values, into any) ([]byte, error) {
	if len(q) > 0 {
		path += "?" + q.Encode()
	}
	return c.ask(ctx, http.MethodGet, path, nil, into)
}

func (c *client) post(ctx context.Context, path string, order, into any) ([]byte, error) {
	body, err := json.Marshal(order)
	if err != nil {
		return nil, fmt.Errorf("writing the request: %w", err)
	}
	return c.ask(ctx, http.MethodPost, path, body, into)
}

// ask sends one request and reads its answer into a value. It also returns the
// answer as it came. Redirects are not followed: nobody else gets the token.
func (c *client) ask(ctx context.Context, method, path string, body []byte, into any) ([]byte, error) {
	base, err := c.base()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, base+path, bytes.NewReader(body))
	if err != nil {
		return nil, usagef("%q is no address of an admin listener: %w", base, err)
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if token := c.env.variables["COUNTERFOIL_ADMIN_TOKEN"]; token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	once := *c.env.http
	once.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	resp, err := once.Do(r)
	if err != nil {
		return nil, unreachable(base, err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, answerBytesMax+1))
	if err != nil {
		return nil, fmt.Errorf("the answer of %s broke off: %w", base, err)
	}
	if len(raw) > answerBytesMax {
		return nil, fmt.Errorf("the answer of %s has more than %d MiB: ask for less with --limit", base, answerBytesMax>>20)
	}
	return raw, understand(base, resp, raw, into)
}

// unreachable says what to do where nobody answers.
func unreachable(base string, err error) error {
	if outer, ok := errors.AsType[*url.Error](err); ok {
		err = outer.Err
	}
	var dial *net.OpError
	if errors.As(err, &dial) && dial.Op == "dial" {
		return fmt.Errorf("no sidecar answers at %s (%w): start one with \"sidecar serve\", or say where it is with --admin or COUNTERFOIL_ADMIN_LISTEN", base, dial.Err)
	}
	return fmt.Errorf("asking the sidecar at %s: %w", base, err)
}

func strangerAt(base string, resp *http.Response) error {
	return fmt.Errorf("what answers at %s is not the admin listener of a sidecar (status %d): say where it is with --admin or COUNTERFOIL_ADMIN_LISTEN", base, resp.StatusCode)
}

// understand reads an answer, or says why it is a refusal.
func understand(base string, resp *http.Response, raw []byte, into any) error {
	stranger := strangerAt(base, resp)
	mediaType := resp.Header.Get("Content-Type")
	if resp.StatusCode == http.StatusOK && mediaType == "application/json" {
		if json.Unmarshal(raw, into) != nil {
			return stranger
		}
		return nil
	}
	var document admin.Document
	if mediaType != "application/problem+json" || json.Unmarshal(raw, &document) != nil {
		return stranger
	}
	if document.Status == http.StatusUnauthorized {
		return refusedToken(base, resp.Request)
	}
	return refusedError{&document}
}

// refusedToken says it in words of the command line, not of HTTP.
func refusedToken(base string, asked *http.Request) error {
	if asked.Header.Get("Authorization") == "" {
		return fmt.Errorf("the sidecar at %s wants its admin token: set COUNTERFOIL_ADMIN_TOKEN to the one that it was started with", base)
	}
	return fmt.Errorf("the sidecar at %s has another admin token: set COUNTERFOIL_ADMIN_TOKEN to the one that it was started with", base)
}

// refusedError is a refusal of the sidecar.
type refusedError struct{ document *admin.Document }

func (e refusedError) Error() string { return printable(e.document.Detail) }

// printJSON passes an answer on as it came.
func (c *client) printJSON(raw []byte) error {
	_, err := c.env.stdout.Write(raw)
	return err
}
