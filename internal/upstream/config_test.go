package upstream

import (
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestConfigMistakes(t *testing.T) {
	noPEM := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(noPEM, []byte("nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	const good = "http://127.0.0.1"
	for name, tc := range map[string]struct {
		cfg  Config
		says string
	}{
		"no URL":          {Config{}, "use http or https"},
		"no scheme":       {Config{URL: "127.0.0.1"}, "use http or https"},
		"other scheme":    {Config{URL: "ftp://h"}, "use http or https"},
		"no host":         {Config{URL: "http:///v1"}, "no host"},
		"host in UTF-8":   {Config{URL: "http://münchen.example"}, "xn--"},
		"user":            {Config{URL: "http://me:secret@h"}, "auth"},
		"bad escape":      {Config{URL: "http://me:secret@h/%zz"}, "cannot be parsed"},
		"query":           {Config{URL: "http://h/?token=secret"}, "query"},
		"bare query":      {Config{URL: "http://h/?"}, "query"},
		"fragment":        {Config{URL: "http://h/#secret"}, "fragment"},
		"connections":     {Config{URL: good, MaxConns: -1}, "connection limit"},
		"connect":         {Config{URL: good, Timeouts: Timeouts{Connect: -1}}, "connect time-out"},
		"first byte":      {Config{URL: good, Timeouts: Timeouts{FirstByte: -1}}, "first byte time-out"},
		"idle":            {Config{URL: good, Timeouts: Timeouts{Idle: -1}}, "idle time-out"},
		"attempt":         {Config{URL: good, Timeouts: Timeouts{Attempt: -1}}, "attempt time-out"},
		"keep":            {Config{URL: good, Timeouts: Timeouts{Keep: -1}}, "keep time-out"},
		"CA file missing": {Config{URL: good, CAFile: noPEM + ".not"}, "CA file"},
		"CA file empty":   {Config{URL: good, CAFile: noPEM}, "no PEM certificate"},
		"SOCKS proxy":     {Config{URL: good, Proxy: via("socks5://me:secret@h:1080")}, "http and https proxies"},
		"proxy unusable":  {Config{URL: good, Proxy: func(*url.URL) (*url.URL, error) { return nil, errors.New("secret") }}, "proxy"},
	} {
		c, err := New(tc.cfg)
		if err == nil || c != nil || !strings.Contains(err.Error(), tc.says) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: error %v, want one that says %q and holds no secret", name, err, tc.says)
		}
	}
}

func TestConfigDefaults(t *testing.T) {
	c := newClient(t, Config{URL: "https://api.example.com/v1", Timeouts: Timeouts{Idle: time.Second}})
	want := Timeouts{Connect: 5 * time.Second, FirstByte: 2 * time.Minute, Idle: time.Second, Attempt: 10 * time.Minute, Keep: 55 * time.Second}
	if c.timeouts != want || cap(c.slots) != 512 || c.addr != "api.example.com:443" || c.host != "api.example.com" {
		t.Errorf("%+v, %d connections, %s, %s", c.timeouts, cap(c.slots), c.addr, c.host)
	}
}

func TestConfigHosts(t *testing.T) {
	for base, want := range map[string][2]string{
		"http://h":           {"h", "h:80"},
		"http://h:8080/x":    {"h:8080", "h:8080"},
		"https://[::1]":      {"[::1]", "[::1]:443"},
		"https://[::1]:8443": {"[::1]:8443", "[::1]:8443"},
	} {
		if c := newClient(t, Config{URL: base}); c.host != want[0] || c.addr != want[1] {
			t.Errorf("%s: host %s, address %s; want %v", base, c.host, c.addr, want)
		}
	}
}
