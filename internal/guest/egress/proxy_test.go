package egress

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// testEgress has a proxy without a kernel: what the kernel would have redirected is said by dst.
type testEgress struct {
	*Egress
	addr string // of the proxy

	mu      sync.Mutex
	dst     netip.AddrPort
	dialled []string
	events  []workorder.Event
}

func newTestEgress(tb testing.TB, n workorder.NetworkPolicy, servers map[uint16]net.Addr) *testEgress {
	tb.Helper()
	te := &testEgress{}
	var err error
	te.Egress, err = New(Config{Policy: n, EngineGID: 1, Emit: func(e workorder.Event) {
		te.mu.Lock()
		defer te.mu.Unlock()
		te.events = append(te.events, e)
	}})
	if err != nil {
		tb.Fatal(err)
	}
	te.lookup.hosts.path = tb.TempDir() + "/hosts"
	for i, name := range []string{"good.test", "other.test", "evil.test", "a.wild.test"} {
		te.lookup.keep(name, cached{addrs: []netip.Addr{netip.AddrFrom4([4]byte{203, 0, 113, byte(i + 1)})}, until: time.Now().Add(time.Hour)})
	}
	te.lookup.keep("metadata.test", cached{addrs: []netip.Addr{netip.MustParseAddr("169.254.169.254")}, until: time.Now().Add(time.Hour)})
	te.proxy.original = func(c *net.TCPConn) (netip.AddrPort, error) {
		te.mu.Lock()
		defer te.mu.Unlock()
		if !te.dst.IsValid() {
			return originalDst(c)
		}
		return te.dst, nil
	}
	te.proxy.reach = func(ctx context.Context, targets []netip.Addr, port uint16) (*net.TCPConn, error) {
		te.mu.Lock()
		te.dialled = append(te.dialled, netip.AddrPortFrom(targets[0], port).String())
		te.mu.Unlock()
		to, ok := servers[port]
		if !ok {
			return nil, fmt.Errorf("nothing listens at %d", port)
		}
		var d net.Dialer
		c, err := d.DialContext(ctx, "tcp", to.String())
		if err != nil {
			return nil, err
		}
		return c.(*net.TCPConn), nil
	}
	port, cut, err := te.listenProxy(tb.Context(), tb.Context(), te.proxy)
	if err != nil {
		tb.Fatal(err)
	}
	te.cut = cut
	tb.Cleanup(te.Close)
	te.addr = fmt.Sprintf("127.0.0.1:%d", port)
	return te
}

// to says where the next connections want to go: a name (by its synthetic address) or an address.
func (te *testEgress) to(host string, port uint16) {
	a := parseAddr(host)
	if !a.IsValid() {
		a = te.pool.address(host)
	}
	te.mu.Lock()
	defer te.mu.Unlock()
	te.dst, te.dialled = netip.AddrPortFrom(a, port), nil
}

func (te *testEgress) reached() string {
	te.mu.Lock()
	defer te.mu.Unlock()
	return strings.Join(te.dialled, " ")
}

func echoServer(tb testing.TB) *httptest.Server {
	tb.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "host=%s uri=%s body=%s ua=%q", r.Host, r.RequestURI, b, r.UserAgent())
	}))
	tb.Cleanup(s.Close)
	return s
}

// speak sends text and returns all that comes back.
func (te *testEgress) speak(t *testing.T, text string) string {
	t.Helper()
	c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", te.addr)
	if err != nil {
		return err.Error()
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err := io.WriteString(c, text); err != nil {
		return err.Error()
	}
	b, err := io.ReadAll(c)
	if err != nil {
		return string(b) + " " + err.Error()
	}
	return string(b)
}

func TestHTTPDecisions(t *testing.T) {
	server := echoServer(t)
	te := newTestEgress(t, workorder.NetworkPolicy{
		Mode: workorder.NetworkRestricted, Allow: []string{"good.test", "other.test", "*.wild.test", "good.test:8000", "metadata.test", "203.0.113.77:81", "evil.test:22"},
	}, map[uint16]net.Addr{80: server.Listener.Addr(), 8000: server.Listener.Addr(), 81: server.Listener.Addr()})
	const last = "Connection: close\r\n\r\n"
	for _, c := range []struct {
		name, host string
		port       uint16
		send, want string
		reached    string
	}{
		{"allowed", "good.test", 80, "GET /a%2Fb?x=1;y HTTP/1.1\r\nHost: good.test\r\n" + last, "host=good.test uri=/a%2Fb?x=1;y body= ua=\"\"", "203.0.113.1:80"},
		{"case, dot, port", "good.test", 80, "GET / HTTP/1.1\r\nHost: GOOD.test.:80\r\n" + last, "host=GOOD.test.:80", "203.0.113.1:80"},
		{"other host is dialled", "good.test", 80, "GET / HTTP/1.1\r\nHost: other.test\r\n" + last, "host=other.test", "203.0.113.2:80"},
		{"wildcard", "a.wild.test", 80, "GET / HTTP/1.1\r\nHost: a.wild.test\r\n" + last, "200 OK", "203.0.113.4:80"},
		{"address, allowed host", "198.51.100.9", 80, "GET / HTTP/1.1\r\nHost: good.test\r\n" + last, "200 OK", "203.0.113.1:80"},
		{"address, host of a rule with its port", "198.51.100.9", 8000, "GET / HTTP/1.1\r\nHost: good.test\r\n" + last, "200 OK", "203.0.113.1:8000"},
		{"body", "good.test", 80, "POST / HTTP/1.1\r\nHost: good.test\r\nContent-Length: 3\r\n" + last + "abc", "body=abc", "203.0.113.1:80"},
		{"two hosts in turn", "good.test", 80, "GET /1 HTTP/1.1\r\nHost: good.test\r\n\r\nGET /2 HTTP/1.1\r\nHost: other.test\r\n" + last, "host=other.test uri=/2", "203.0.113.1:80 203.0.113.2:80"},
		{"second request refused", "good.test", 80, "GET /1 HTTP/1.1\r\nHost: good.test\r\n\r\nGET /2 HTTP/1.1\r\nHost: evil.test\r\n\r\n", "403 Forbidden", "203.0.113.1:80"},
		{"refused with its line", "198.51.100.9", 80, "GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n", "\n- evil.test\n", ""},
		{"address as host", "198.51.100.9", 80, "GET / HTTP/1.1\r\nHost: 198.51.100.9\r\n\r\n", "\n- 198.51.100.9\n", ""},
		{"IPv6 address as host", "2001:db8::9", 80, "GET / HTTP/1.1\r\nHost: [2001:db8::9]:80\r\n\r\n", "\n- '2001:db8::9'\n", ""},
		{"absolute form", "good.test", 80, "GET http://evil.test/ HTTP/1.1\r\nHost: good.test\r\n\r\n", "403", ""},
		{"CONNECT", "good.test", 80, "CONNECT good.test:80 HTTP/1.1\r\nHost: good.test:80\r\n\r\n", "403", ""},
		{"CONNECT to an address", "good.test", 80, "CONNECT 1.2.3.4:443 HTTP/1.1\r\nHost: good.test\r\n\r\n", "403", ""},
		{"h2c upgrade", "good.test", 80, "GET / HTTP/1.1\r\nHost: good.test\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\nGET / HTTP/1.1\r\nHost: evil.test\r\n\r\n", "403", "203.0.113.1:80"},
		{"h2c", "good.test", 80, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "reset", ""},
		{"h2c later", "good.test", 80, "GET / HTTP/1.1\r\nHost: good.test\r\n\r\nPRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "200 OK", "203.0.113.1:80"},
		{"two hosts", "good.test", 80, "GET / HTTP/1.1\r\nHost: good.test\r\nHost: evil.test\r\n\r\n", "400 Bad", ""},
		{"no host", "good.test", 80, "GET / HTTP/1.1\r\n\r\n", "400 Bad", ""},
		{"no host in HTTP/1.0", "good.test", 80, "GET / HTTP/1.0\r\n\r\n", "host=good.test", "203.0.113.1:80"},
		{"no host and no name", "198.51.100.9", 80, "GET / HTTP/1.0\r\n\r\n", "403", ""},
		{"null byte", "good.test", 80, "GET / HTTP/1.1\r\nHost: good.test\x00.evil.test\r\n\r\n", "400 Bad", ""},
		{"user in host", "good.test", 80, "GET / HTTP/1.1\r\nHost: good.test@evil.test\r\n\r\n", "40", ""},
		{"folded header", "good.test", 80, "GET / HTTP/1.1\r\nX: y\r\n Host: evil.test\r\nHost: good.test\r\n" + last, "host=good.test", "203.0.113.1:80"},
		{"leading empty line", "good.test", 80, "\r\nGET / HTTP/1.1\r\nHost: evil.test\r\n\r\n", "reset", ""},
		{"lower case", "good.test", 80, "get / HTTP/1.1\r\nHost: evil.test\r\n\r\n", "reset", ""},
		{"name with another port's rule", "evil.test", 80, "GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n", "\n- evil.test\n", ""},
		{"explicit port", "good.test", 8000, "GET / HTTP/1.1\r\nHost: good.test:8000\r\n" + last, "host=good.test:8000", "203.0.113.1:8000"},
		{"other host at an explicit port", "good.test", 8000, "GET / HTTP/1.1\r\nHost: evil.test\r\n" + last, "403", ""},
		{"like SSH", "good.test", 80, "SSH-2.0 / HTTP/1.1\r\nHost: evil.test\r\n\r\nGET / HTTP/1.1\r\nHost: evil.test\r\n" + last, "reset", ""},
		{"address of a rule", "203.0.113.77", 81, "GET / HTTP/1.1\r\nHost: x\r\n" + last, "host=x", "203.0.113.77:81"},
		{"no name behind it", "198.19.0.1", 80, "GET / HTTP/1.1\r\nHost: good.test\r\n\r\n", "reset", ""},
	} {
		te.to(c.host, c.port)
		if got := te.speak(t, c.send); !strings.Contains(got, c.want) {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
		if got := te.reached(); got != c.reached {
			t.Errorf("%s: dialled %q, want %q", c.name, got, c.reached)
		}
	}
	// A host that no rule can allow is refused without a line for the project file.
	for host, at := range map[string]string{"169.254.169.254": "198.51.100.9", "metadata.test": "metadata.test"} {
		te.to(at, 80)
		got := te.speak(t, "GET / HTTP/1.1\r\nHost: "+host+"\r\n\r\n")
		if dialled := te.reached(); !strings.Contains(got, "403 Forbidden") || !strings.Contains(got, host) || strings.Contains(got, "\n- ") || dialled != "" {
			t.Errorf("%s: got %q, dialled %q", host, got, dialled)
		}
	}
	te.to("good.test", 80)
	got := te.speak(t, "POST / HTTP/1.1\r\nHost: good.test\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: evil.test\r\n\r\n")
	if strings.Contains(got, "host=evil.test") {
		t.Errorf("smuggled: %q", got)
	}
}

// The proxy serves only clients that the kernel redirected.
func TestDirectConnections(t *testing.T) {
	te := newTestEgress(t, workorder.NetworkPolicy{Mode: workorder.NetworkRestricted, Learn: true}, nil)
	if got := te.speak(t, "GET / HTTP/1.1\r\nHost: good.test\r\n\r\n"); !strings.Contains(got, "reset") && !strings.Contains(got, "broken pipe") || te.reached() != "" {
		t.Errorf("%q, dialled %q", got, te.reached())
	}
}

func TestTooManyConnections(t *testing.T) {
	te := newTestEgress(t, workorder.NetworkPolicy{Mode: workorder.NetworkRestricted, Allow: []string{"good.test"}}, nil)
	te.to("good.test", 80)
	te.proxy.open.Store(maxConns)
	if got := te.speak(t, "GET "); !strings.Contains(got, "reset") && !strings.Contains(got, "broken pipe") {
		t.Errorf("%q", got)
	}
	te.mu.Lock()
	defer te.mu.Unlock()
	if len(te.events) != 1 || te.events[0].Type != workorder.EventWarning {
		t.Errorf("%+v", te.events)
	}
}

func TestLedger(t *testing.T) {
	var events []workorder.Event
	l := newLedger(workorder.NetworkRestricted, func(e workorder.Event) { events = append(events, e) })
	asked := 0
	a := attempt{host: "x.test", port: 80, protocol: "tcp", reason: noRule, rule: "- x.test", by: func() string { asked++; return fmt.Sprint("p", asked) }}
	for range 20 {
		l.note(a)
	}
	want := workorder.NetworkHost{Host: "x.test", Port: 80, Protocol: "tcp", Status: "refused", Count: 20, By: []string{"p1", "p2", "p3"}, Reason: noRule, Rule: "- x.test"}
	if got := l.report().Hosts[0]; got.Count != want.Count || !slices.Equal(got.By, want.By) || got.Rule != want.Rule || asked != maxBy {
		t.Errorf("%+v, asked %d", got, asked)
	}
	if e := events[0]; len(events) != 1 || e.Name != "x.test:80" || e.By != "p1" || e.Fix != "- x.test" || e.Status != "refused" {
		t.Errorf("%+v", events)
	}
	for i := range 2 * maxHosts {
		l.note(attempt{host: fmt.Sprint(i), port: 1, protocol: "tcp"})
	}
	r := l.report()
	if len(r.Hosts) != maxHosts+1 || r.Hosts[0].Host != otherHosts || r.Hosts[0].Count != maxHosts+1 {
		t.Errorf("%d hosts, first %+v", len(r.Hosts), r.Hosts[0])
	}
}

func TestJudge(t *testing.T) {
	p, err := newPolicy(workorder.NetworkPolicy{Mode: workorder.NetworkRestricted, Allow: []string{"a.test", "*.b.test", "c.test:22", "[2001:db8::1]:5432", "10.0.0.1"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		host string
		port uint16
		want verdict
	}{
		{"a.test", 443, allowed},
		{"a.test", 80, allowed},
		{"a.test", 22, refused},
		{"x.a.test", 443, refused},
		{"xa.test", 443, refused},
		{"x.y.b.test", 443, allowed},
		{"b.test", 443, refused},
		{"c.test", 22, allowed},
		{"c.test", 443, refused},
		{"2001:db8::1", 5432, allowed},
		{"10.0.0.1", 443, allowed},
		{"10.0.0.1", 22, refused},
	} {
		if got := p.judge(c.host, c.port); got != c.want {
			t.Errorf("%s:%d: %v", c.host, c.port, got)
		}
	}
	for _, c := range []struct {
		host string
		port uint16
		want string
	}{
		{"a.test", 443, "- a.test"},
		{"a.test", 22, "- a.test:22"},
		{"a.test", 0, "- a.test"},
		{"2001:db8::1", 22, `- '[2001:db8::1]:22'`},
		{"2001:db8::1", 80, `- '2001:db8::1'`},
		{"null", 80, `- 'null'`},
		{"10.0.0.1", 22, "- 10.0.0.1:22"},
	} {
		if got := fix(c.host, c.port); got != c.want {
			t.Errorf("%s %d: %s, want %s", c.host, c.port, got, c.want)
		}
	}
	own := []netip.Prefix{netip.MustParsePrefix("10.213.0.0/16"), netip.MustParsePrefix("2001:db8:5::2/128")}
	for a, never := range map[string]bool{
		"169.254.169.254": true, "::ffff:169.254.169.254": true, "64:ff9b::a9fe:a9fe": true, "64:ff9b::7f00:1": true, "fd00:ec2::254": true,
		"168.63.129.16": true, "127.0.0.1": true, "127.9.9.9": true, "::1": true, "0.0.0.0": true, "0.1.2.3": true, "::": true, "224.0.0.1": true, "ff02::1": true,
		"fe80::1": true, "255.255.255.255": true, "198.18.0.1": true, "198.19.255.255": true, "10.213.5.5": true, "2001:db8:5::2": true,
		"8.8.8.8": false, "10.0.0.1": false, "192.168.1.1": false, "172.17.0.1": false, "2001:db8:5::3": false, "64:ff9b::808:808": false, "fd00::1": false,
	} {
		if got := neverReal(a, own); got != never {
			t.Errorf("%s: %v", a, got)
		}
	}
}

func neverReal(a string, own []netip.Prefix) bool { return never(netip.MustParseAddr(a), own) != "" }

// median runs f b.N times and reports the median in microseconds.
func median(b *testing.B, f func()) {
	b.Helper()
	all := make([]time.Duration, 0, b.N)
	f() // the first one searches for the process
	for b.Loop() {
		begin := time.Now()
		f()
		all = append(all, time.Since(begin))
	}
	slices.Sort(all)
	b.ReportMetric(float64(all[len(all)/2].Nanoseconds())/1000, "median-µs")
}

// BenchmarkProxy compares requests through the proxy with direct ones, on loopback. The
// overhead is the difference of the medians.
func BenchmarkProxy(b *testing.B) {
	plain := echoServer(b)
	secure := httptest.NewTLSServer(plain.Config.Handler)
	b.Cleanup(secure.Close)
	te := newTestEgress(b, workorder.NetworkPolicy{Mode: workorder.NetworkRestricted, Allow: []string{"good.test"}},
		map[uint16]net.Addr{80: plain.Listener.Addr(), 443: secure.Listener.Addr()})
	for _, way := range []string{"direct", "proxy"} {
		dial := func(to net.Addr) net.Conn {
			addr := to.String()
			if way == "proxy" {
				addr = te.addr
			}
			c, err := (&net.Dialer{}).DialContext(b.Context(), "tcp", addr)
			if err != nil {
				b.Fatal(err)
			}
			return c
		}
		get := func(c net.Conn, r *bufio.Reader) {
			_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: good.test\r\n\r\n")
			resp, err := http.ReadResponse(r, nil)
			if err != nil {
				b.Fatal(err)
			}
			if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
				b.Fatal(resp.Status, err)
			}
			resp.Body.Close()
		}
		b.Run("http-keepalive/"+way, func(b *testing.B) {
			te.to("good.test", 80)
			c := dial(plain.Listener.Addr())
			defer c.Close()
			r := bufio.NewReader(c)
			median(b, func() { get(c, r) })
		})
		b.Run("http-new/"+way, func(b *testing.B) {
			te.to("good.test", 80)
			median(b, func() {
				c := dial(plain.Listener.Addr())
				get(c, bufio.NewReader(c))
				c.Close()
			})
		})
		b.Run("tls-new/"+way, func(b *testing.B) {
			te.to("good.test", 443)
			median(b, func() {
				c := tls.Client(dial(secure.Listener.Addr()), &tls.Config{ServerName: "good.test", InsecureSkipVerify: true})
				get(c, bufio.NewReader(c))
				c.Close()
			})
		})
	}
}

// A resolver's answer for an allowed name does not send the box into networks of the user's, unless a rule says so.
func TestNamesOfPrivateAddresses(t *testing.T) {
	server := echoServer(t)
	for name, c := range map[string]struct {
		allow   []string
		learn   bool
		reached bool
		want    workorder.NetworkHost
	}{
		"a rule that does not say so": {allow: []string{"in.test"}, want: workorder.NetworkHost{Status: workorder.NetworkRefused, Rule: "- in.test@private"}},
		"one of another port":         {allow: []string{"in.test", "in.test:81@private"}, want: workorder.NetworkHost{Status: workorder.NetworkRefused, Rule: "- in.test@private"}},
		"a rule that says so":         {allow: []string{"in.test@private"}, reached: true, want: workorder.NetworkHost{Status: workorder.NetworkAllowed, Rule: "- in.test@private"}},
		"a rule for the address":      {allow: []string{"in.test", "10.99.0.1"}, reached: true, want: workorder.NetworkHost{Status: workorder.NetworkAllowed, Rule: "- in.test@private"}},
		"learning":                    {learn: true, reached: true, want: workorder.NetworkHost{Status: workorder.NetworkLearned, Rule: "- in.test@private"}},
		"learning, with a rule":       {allow: []string{"in.test"}, learn: true, reached: true, want: workorder.NetworkHost{Status: workorder.NetworkLearned, Rule: "- in.test@private"}},
	} {
		te := newTestEgress(t, workorder.NetworkPolicy{Mode: workorder.NetworkRestricted, Allow: c.allow, Learn: c.learn}, map[uint16]net.Addr{80: server.Listener.Addr(), 443: server.Listener.Addr()})
		te.lookup.keep("in.test", cached{addrs: []netip.Addr{netip.MustParseAddr("10.99.0.1")}, until: time.Now().Add(time.Hour)})
		te.to("in.test", 80)
		got := te.speak(t, "GET / HTTP/1.1\r\nHost: in.test\r\nConnection: close\r\n\r\n")
		if reached := te.reached() != ""; reached != c.reached {
			t.Errorf("%s: reached %v: %q", name, reached, got)
		}
		for i := 0; len(te.Report().Hosts) == 0 && i < 1000; i++ {
			time.Sleep(time.Millisecond) // it is noted behind the answer
		}
		hosts := te.Report().Hosts
		if len(hosts) != 1 || hosts[0].Status != c.want.Status || hosts[0].Rule != c.want.Rule {
			t.Errorf("%s: %+v", name, hosts)
		}
	}
	// A mixed answer leads to its public part; what /etc/hosts says is root's; and every kind of private range counts.
	te := newTestEgress(t, workorder.NetworkPolicy{Mode: workorder.NetworkRestricted, Allow: []string{"in.test", "engine.test"}}, map[uint16]net.Addr{80: server.Listener.Addr()})
	dial := func(host string, addrs ...string) string {
		var all []netip.Addr
		for _, a := range addrs {
			all = append(all, netip.MustParseAddr(a))
		}
		te.lookup.keep(host, cached{addrs: all, until: time.Now().Add(time.Hour)})
		te.to(host, 80)
		te.speak(t, "GET / HTTP/1.1\r\nHost: "+host+"\r\nConnection: close\r\n\r\n")
		return te.reached()
	}
	if got := dial("in.test", "10.0.0.1", "203.0.113.9"); got != "203.0.113.9:80" {
		t.Errorf("mixed: %q", got)
	}
	for _, a := range []string{"10.1.2.3", "172.31.0.1", "192.168.1.1", "100.64.1.1", "fd00::1", "::ffff:10.1.2.3", "2002:a01:203::1", "64:ff9b::a01:203", "64:ff9b:1::1"} {
		if got := dial("in.test", a); got != "" {
			t.Errorf("%s: dialled %q", a, got)
		}
	}
	if err := os.WriteFile(te.lookup.hosts.path, []byte("172.30.99.1 engine.test\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	te.lookup.hosts.read = time.Time{}
	if got := dial("engine.test"); got != "172.30.99.1:80" {
		t.Errorf("of /etc/hosts: %q", got)
	}
}

// TestHTTPBounds: what is held in memory of a message, and of where hosts lead, is bounded.
func TestHTTPBounds(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/long" {
			w.Header().Set("X-Long", strings.Repeat("x", 2*maxResponseHeader))
		}
		_, _ = io.WriteString(w, "here")
	}))
	t.Cleanup(server.Close)
	te := newTestEgress(t, workorder.NetworkPolicy{Mode: workorder.NetworkRestricted, Allow: []string{"good.test"}}, map[uint16]net.Addr{80: server.Listener.Addr()})
	for path, c := range map[string]struct{ header, want string }{
		"/":      {"X: y", "here"},
		"/large": {"X: " + strings.Repeat("x", 2*maxRequestHeader), "431 "},
		"/long":  {"X: y", "502 "},
	} {
		te.to("good.test", 80)
		if got := te.speak(t, "GET "+path+" HTTP/1.1\r\nHost: good.test\r\n"+c.header+"\r\nConnection: close\r\n\r\n"); !strings.Contains(got, c.want) {
			t.Errorf("%s: %.500q, want %q", path, got, c.want)
		}
	}
	var p scopeByHost
	forgot := 0
	for i := range 10 * maxPlaces {
		host := fmt.Sprint(i)
		if p.keep(host, inside) {
			forgot++
		}
		if to, known := p.get(host); to != inside || !known || len(p.of) > maxPlaces {
			t.Fatalf("%s leads to %v, %v, of %d", host, to, known, len(p.of))
		}
	}
	if p.keep("639", public) || forgot != 9 {
		t.Errorf("it forgot %d times", forgot)
	}
}
