package sandbox

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// proxyWorld has servers at addresses that the proxy believes to be elsewhere.
type proxyWorld struct {
	p     *proxy
	certs *tls.Config
}

func newProxyWorld(t *testing.T, allow ...string) proxyWorld {
	t.Helper()
	hello := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "hello "+r.Host) })
	web, secure := httptest.NewServer(hello), httptest.NewTLSServer(hello)
	t.Cleanup(web.Close)
	t.Cleanup(secure.Close)
	names := map[string]string{
		"api.test": "203.0.113.1", "sub.api.test": "203.0.113.2", "self.test": "127.0.0.1", "cloud.test": "169.254.169.254",
		"corp.test": "10.0.0.1", "inside.test": "10.0.0.2", "translated.test": "64:ff9b::a9fe:a9fe",
	}
	p := newProxy(allow)
	p.resolve = func(_ context.Context, _, host string) ([]netip.Addr, error) {
		if a, ok := names[host]; ok {
			return []netip.Addr{netip.MustParseAddr(a)}, nil
		}
		return nil, &net.DNSError{IsNotFound: true}
	}
	p.connect = func(ctx context.Context, network, address string) (net.Conn, error) {
		to := web.Listener.Addr().String()
		if strings.HasSuffix(address, ":443") {
			to = secure.Listener.Addr().String()
		}
		return (&net.Dialer{}).DialContext(ctx, network, to)
	}
	return proxyWorld{p, &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // the names are invented
}

// client returns a connection to the proxy.
func (w proxyWorld) client(t *testing.T) net.Conn {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	served, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		w.p.serve(context.WithoutCancel(t.Context()), served)
		end(served)
	}()
	return c
}

func (w proxyWorld) ask(t *testing.T, request string) (*http.Response, net.Conn) {
	t.Helper()
	c := w.client(t)
	if _, err := io.WriteString(c, request+" HTTP/1.1\r\nHost: other.test\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	r, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: strings.Fields(request)[0]})
	if err != nil {
		t.Fatal(err)
	}
	return r, c
}

// Docs: docs/pool.md
func TestProxyRules(t *testing.T) {
	t.Parallel()
	w := newProxyWorld(t, "api.test", "*.api.test", "self.test", "cloud.test", "corp.test", "inside.test@private", "192.0.2.7", "translated.test",
		"10.9.9.9:8000")
	for request, want := range map[string]int{
		"GET http://api.test/": 200, "GET http://API.test./": 200, "GET http://sub.api.test/": 200, "CONNECT api.test:443": 200,
		"GET http://192.0.2.7/": 200, "GET http://inside.test/": 200, "CONNECT 10.9.9.9:8000": 200, "GET http://[::ffff:192.0.2.7]/": 200,
		"GET http://api.test:8080/": 403, "CONNECT other.test:443": 403, "GET http://203.0.113.1/": 403, "CONNECT [2001:db8::1]:443": 403,
		"GET http://self.test/": 403, "GET http://cloud.test/": 403, "GET http://corp.test/": 403, "GET http://translated.test/": 403,
		"GET /": 403, "GET https://api.test/": 403, "CONNECT none.api.test:443": 502, "CONNECT api.test": 502,
	} {
		if r, _ := w.ask(t, request); r.StatusCode != want {
			t.Errorf("%s: %d, not %d", request, r.StatusCode, want)
		}
	}
	r, _ := w.ask(t, "GET http://api.test/x")
	if b, err := io.ReadAll(r.Body); err != nil || string(b) != "hello api.test" {
		t.Errorf("%q, %v: the server must not see another host than the rules", b, err)
	}
}

// A tunnel to an allowed host is TLS for an allowed name; a rule with a port allows every protocol there.
func TestProxyTunnel(t *testing.T) {
	t.Parallel()
	w := newProxyWorld(t, "api.test", "raw.test:80", "192.0.2.7:80")
	for name, ok := range map[string]bool{"api.test": true, "other.test": false, "": true} {
		_, c := w.ask(t, "CONNECT api.test:443")
		config := w.certs.Clone()
		config.ServerName = name
		if err := tls.Client(c, config).HandshakeContext(t.Context()); (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
	}
	for target, ok := range map[string]bool{"api.test:80": false, "192.0.2.7:80": true} {
		_, c := w.ask(t, "CONNECT "+target)
		if _, err := io.WriteString(c, "GET / HTTP/1.0\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if b, _ := io.ReadAll(c); strings.Contains(string(b), "hello") != ok {
			t.Errorf("%s: %q", target, b)
		}
	}
}

func TestProxiedSpecs(t *testing.T) {
	t.Parallel()
	s := Spec{Name: "x", Runtime: RuntimeJail, Network: NetworkRestricted, Allow: []string{"api.test"}, Lifetime: LifetimeEphemeral}
	has := []Capability{CapNetworkNone, CapNetworkFull}
	if err := lacks(RuntimeJail, has, s.required()); err == nil {
		t.Error("a list is accepted where it cannot be enforced")
	}
	if err := lacks(RuntimeJail, append(has, CapNetworkProxy), s.required()); err != nil {
		t.Error(err)
	}
	s.Lifetime = LifetimeNamed
	if err := lacks(RuntimeJail, append(has, CapNetworkProxy), s.required()); err == nil {
		t.Error("nothing serves the proxy of a sandbox that outlives its program")
	}
	s.Allow = []string{string(workorder.NetworkFull) + "!"}
	if s.Check() == nil {
		t.Error("a mistake in a rule is accepted")
	}
}
