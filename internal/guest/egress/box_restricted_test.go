//go:build boxtest

package egress_test

import (
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

var restrictedRules = []string{
	"good.test", "good.test:22", "dual.test", "six.test", "private.test@private", "*.wild.test", "rebind.test", "self.test", "inner.test", "loop.test", "synthetic.test",
	"evil.test:22", "in-hosts.test:8080", evil + ":8080", "missing.test",
}

func TestRestricted(t *testing.T) {
	b := newBox(t, workorder.NetworkPolicy{Mode: workorder.NetworkRestricted, Allow: restrictedRules})
	b.always()
	t.Run("names", func(t *testing.T) { b.t = t; b.names() })
	t.Run("tls", func(t *testing.T) { b.t = t; b.tls() })
	t.Run("http", func(t *testing.T) { b.t = t; b.http() })
	t.Run("other protocols", func(t *testing.T) { b.t = t; b.others() })
	t.Run("rebinding", func(t *testing.T) { b.t = t; b.rebinding() })
	t.Run("after boot from its port", func(t *testing.T) { b.t = t; b.afterBoot() })
	t.Run("sealed", func(t *testing.T) {
		b.t = t
		b.check("engine", "ok", "page", "send", evil+":80", page("evil.test"))
		b.seal()
		b.check("engine", "ok", "403", "send", evil+":80", page("evil.test"))
		b.check("engine", "ok", "NameError", "dns", "udp", "198.51.100.53:53", "evil2.test.", "A")
		b.check("engine", "ok", "page", "tls", b.synthetic("good.test")+":443", "good.test")
		b.check("engine", "error", "refused", "send", metadata+":80", "x")
	})
}

func (b *box) names() {
	for _, server := range []string{"198.51.100.53:53", evil + ":53", "[2001:db8:2::1]:53", metadata + ":53"} {
		for _, network := range []string{"udp", "tcp"} {
			b.untrusted("ok", "198.18.", "dns", network, server, "good.test.", "A")
			b.untrusted("ok", "NameError", "dns", network, server, "tunnel-6964.attacker.test.", "TXT")
		}
	}
	const s = "198.51.100.53:53"
	b.untrusted("ok", "198.18.", "dns", "udp", s, "GoOd.TeSt.", "A")
	b.untrusted("ok", "198.18.", "dns", "udp", s, "a.b.wild.test.", "A")
	b.untrusted("ok", "198.18.", "dns", "udp", s, "six.test.", "A")
	b.check("sandbox", "ok", "Success", "dns", "udp", s, "six.test.", "AAAA")
	b.check("sandbox", "ok", "Success", "dns", "udp", s, "good.test.", "HTTPS")
	b.check("sandbox", "ok", "NameError", "dns", "udp", s, "missing.test.", "A")
	b.check("sandbox", "ok", "NameError", "dns", "udp", s, "wild.test.", "A")
	b.check("sandbox", "ok", "NameError", "dns", "udp", s, `good.test\x00.evil.test.`, "A")
	b.check("sandbox", "ok", "NameError", "dns", "udp", s, `g\xc3\xb6od.test.`, "A")
	b.untrusted("ok", "10.213.1.2", "dns", "tcp", s, "redis.", "A")
	for _, n := range []string{"tunnel-6964.attacker.test", "wild.test"} {
		if b.world.wasAsked(n) {
			b.t.Errorf("%s was asked for outside", n)
		}
	}
	b.reported("tunnel-6964.attacker.test", 0, "dns", workorder.NetworkRefused, "- tunnel-6964.attacker.test", "web")
}

func (b *box) tls() {
	g, d, six, e := b.synthetic("good.test"), b.synthetic("dual.test"), b.synthetic("six.test"), b.synthetic("evil.test")
	b.untrusted("ok", "sni=good.test at="+good, "tls", g+":443", "good.test")
	b.untrusted("ok", "sni= at="+good, "tls", g+":443", "") // the name is known
	b.untrusted("ok", "page", "tls", d+":443", "dual.test")
	b.untrusted("ok", "at=[2001:db8:2::1]", "tls", six+":443", "six.test")
	// Another server name is judged, and dialled, by itself.
	b.untrusted("ok", "sni=six.test at=[2001:db8:2::1]", "tls", g+":443", "six.test")
	b.untrusted("error", "access denied", "tls", g+":443", "evil.test")
	b.untrusted("error", "access denied", "tls", e+":443", "evil.test")
	// An address says nothing; the name does.
	b.untrusted("ok", "at="+good, "tls", evil+":443", "good.test")
	b.untrusted("ok", "at="+good, "tls", "[2001:db8:2::2]:443", "good.test")
	b.untrusted("error", "access denied", "tls", good+":443", "")
	b.untrusted("error", "access denied", "tls", good+":443", "evil.test")
	b.untrusted("error", "refused", "tls", good+":8443", "good.test") // no rule is about the port
	b.reported("evil.test", 443, "tcp", workorder.NetworkRefused, "- evil.test", "web")
	b.reported(good, 8443, "tcp", workorder.NetworkRefused, "- "+good+":8443", "")
	b.reported("good.test", 443, "tcp", workorder.NetworkAllowed, "", "web")
	b.reported(good, 443, "tcp", workorder.NetworkRefused, "- "+good, "")
}

func (b *box) http() {
	g, e := b.synthetic("good.test"), b.synthetic("evil.test")
	b.untrusted("ok", "page host=good.test", "send", g+":80", page("good.test"))
	b.untrusted("ok", "page host=GOOD.test.", "send", g+":80", page("GOOD.test."))
	b.untrusted("ok", "page", "send", g+":80", "GET / HTTP/1.0\\r\\n\\r\\n")
	b.untrusted("ok", "403 Forbidden", "send", e+":80", page("evil.test"))
	b.untrusted("ok", "at="+good, "send", evil+":80", page("good.test")) // dialled by name
	b.untrusted("ok", "- evil.test", "send", good+":80", page("evil.test"))
	b.untrusted("ok", "- evil.test", "send", g+":80", page("evil.test"))
	b.untrusted("ok", "403", "send", g+":80", "GET http://evil.test/ HTTP/1.1\\r\\nHost: good.test\\r\\n\\r\\n")
	b.untrusted("ok", "host=good.test", "send", g+":80", "GET http://good.test/ HTTP/1.1\\r\\nHost: evil.test\\r\\nConnection: close\\r\\n\\r\\n")
	b.untrusted("ok", "403", "send", g+":80", "CONNECT evil.test:443 HTTP/1.1\\r\\nHost: evil.test:443\\r\\n\\r\\n")
	b.untrusted("ok", "403", "send", g+":80", "CONNECT good.test:80 HTTP/1.1\\r\\nHost: good.test:80\\r\\n\\r\\n")
	// Every request of a connection.
	b.untrusted("ok", "403", "send", g+":80", "GET / HTTP/1.1\\r\\nHost: good.test\\r\\n\\r\\n"+page("evil.test"))
	// Requests that a server might read otherwise.
	for _, s := range []string{
		"GET / HTTP/1.1\\r\\nHost: good.test\\r\\nHost: evil.test\\r\\n\\r\\n",
		"POST / HTTP/1.1\\r\\nHost: good.test\\r\\nTransfer-Encoding: chunked\\r\\nContent-Length: x\\r\\n\\r\\n0\\r\\n\\r\\n",
		"GET / HTTP/1.1\\r\\n\\r\\n",
		"GET / HTTP/1.1\\r\\nHost: good.test\\x00evil.test\\r\\n\\r\\n",
		"GET / HTTP/1.1\\r\\n Host: evil.test\\r\\nHost: good.test\\r\\n\\r\\n",
		"GET / HTTP/1.1\\r\\nHost : evil.test\\r\\nHost: good.test\\r\\n\\r\\n",
	} {
		if got := do(b.t, "sandbox", "send", g+":80", s); strings.Contains(got, "page") && !strings.Contains(got, "host=good.test ") {
			b.t.Errorf("%s: %s", s, got)
		}
	}
	got := do(b.t, "sandbox", "send", g+":80",
		"POST / HTTP/1.1\\r\\nHost: good.test\\r\\nContent-Length: 4\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n0\\r\\n\\r\\n"+page("evil.test"))
	if strings.Contains(got, "host=evil.test") {
		b.t.Errorf("smuggled: %s", got)
	}
	b.check("sandbox", "error", "", "send", g+":80", "\\r\\n"+page("evil.test"))
	b.check("sandbox", "error", "", "send", g+":80", "get / HTTP/1.1\\r\\nHost: evil.test\\r\\n\\r\\n")
	b.check("sandbox", "error", "", "send", g+":80", "PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n")
	b.untrusted("ok", "echo frame", "websocket", g+":80", "good.test")
	b.untrusted("ok", "refuses evil.test", "websocket", g+":80", "evil.test")
	b.untrusted("ok", "page", "send", evil+":8080", page("whatever")) // a rule for the address
	b.untrusted("ok", "page", "send", "10.99.0.1:8080", page("in-hosts.test"))
	b.untrusted("ok", "403", "send", "10.99.0.1:8080", page("whatever"))
	b.untrusted("ok", "page", "send", b.synthetic("private.test")+":80", page("private.test"))
}

func (b *box) others() {
	g := b.synthetic("good.test")
	b.untrusted("ok", "banner at="+good+":22 got 5 bytes", "banner", g+":22") // the server speaks first; half-close
	b.untrusted("error", "reset", "banner", good+":22")
	b.untrusted("error", "reset", "banner", b.synthetic("six.test")+":22")
	b.untrusted("error", "reset", "banner", "198.19.255.1:22") // stands for nothing
	for _, a := range []string{good, g, "[2001:db8:2::1]"} {
		b.untrusted("error", "", "udp", a+":443") // QUIC
		b.untrusted("error", "", "udp", a+":4000")
	}
	b.check("sandbox", "error", "", "icmp", "udp4", good)
	b.check("inner", "error", "unreachable", "icmp", "ip4:icmp", good)
	b.reported("good.test", 22, "tcp", workorder.NetworkAllowed, "", "web")
	b.reported(good, 22, "tcp", workorder.NetworkRefused, "- "+good+":22", "web")
	b.reported("good.test", 443, "udp", workorder.NetworkRefused, "", "web")
	b.reported("2001:db8:2::1", 4000, "udp", workorder.NetworkRefused, "", "")
	b.reported(good, 0, "icmp", workorder.NetworkRefused, "", "web")
}

func (b *box) rebinding() {
	b.serve("sandbox", ":80")
	for _, n := range []string{"rebind.test", "self.test", "inner.test", "loop.test", "synthetic.test"} {
		a := b.synthetic(n)
		b.untrusted("ok", "403 Forbidden", "send", a+":80", page(n))
		b.untrusted("error", "access denied", "tls", a+":443", n)
		b.reported(n, 443, "tcp", workorder.NetworkRefused, "", "web")
	}
}

// The kernel decides with a connection's first packet where it goes, and UDP has no end: what boot sent a second ago is still a connection.
func (b *box) afterBoot() {
	for i, server := range []string{"198.51.100.53:53", good + ":4000", "[2001:db8:2::1]:53"} {
		port := strconv.Itoa(40053 + i)
		b.check("boot", "ok", "ping", "udp", server, port)
		b.check("sandbox", "error", "", "udp", server, port)
		b.check("engine", "error", "", "udp", server, port)
		b.check("boot", "ok", "ping", "udp", server, port) // boot's own goes on
	}
}

func TestLearn(t *testing.T) {
	b := newBox(t, workorder.NetworkPolicy{Mode: workorder.NetworkRestricted, Allow: []string{"good.test"}, Learn: true})
	b.always()
	e := b.synthetic("evil.test")
	b.untrusted("ok", "sni=evil.test at="+evil, "tls", e+":443", "evil.test")
	b.untrusted("ok", "banner at="+evil, "banner", e+":22")
	b.untrusted("ok", "banner at="+evil, "banner", evil+":22")
	b.untrusted("ok", "host=six.test", "send", evil+":8080", page("six.test"))
	b.untrusted("ok", "page", "tls", b.synthetic("good.test")+":443", "good.test")
	b.untrusted("ok", "403 Forbidden", "send", b.synthetic("rebind.test")+":80", page("rebind.test"))
	b.untrusted("error", "", "udp", evil+":4000")
	b.check("inner", "error", "unreachable", "icmp", "ip4:icmp", evil)
	b.reported("evil.test", 443, "tcp", workorder.NetworkLearned, "- evil.test", "web")
	b.reported("evil.test", 22, "tcp", workorder.NetworkLearned, "- evil.test:22", "web")
	b.reported(evil, 22, "tcp", workorder.NetworkLearned, "- "+evil+":22", "web")
	b.reported("six.test", 8080, "tcp", workorder.NetworkLearned, "- six.test:8080", "web")
	b.reported("good.test", 443, "tcp", workorder.NetworkAllowed, "", "web")
}

// Engines give boxes on user-defined networks a resolver on loopback, behind rules in the box's own network
// and on a port that anybody could find.
func TestResolverOfTheEngineOnLoopback(t *testing.T) {
	for _, mode := range []workorder.NetworkMode{workorder.NetworkRestricted, workorder.NetworkNone} {
		t.Run(string(mode), func(t *testing.T) { loopbackResolver(t, mode) })
	}
}

func loopbackResolver(t *testing.T, mode workorder.NetworkMode) {
	t.Helper()
	b := newBox(t, workorder.NetworkPolicy{Mode: mode}, netip.MustParseAddr("127.0.0.11"), netip.MustParseAddr("198.51.100.53"))
	commands(t, `
		nft add table ip of_the_engine
		nft add chain ip of_the_engine output { type nat hook output priority -100 ; }
		nft add rule ip of_the_engine output ip daddr 127.0.0.11 tcp dport 53 dnat to 127.0.0.11:40000`)
	b.serve("boot", "127.0.0.11:40000")
	b.check("sandbox", "ok", "NameError", "dns", "tcp", "127.0.0.11:53", "x.attacker.test.", "A")
	b.check("sandbox", "error", "refused", "send", "127.0.0.11:40000", "")
	b.check("boot", "ok", "hello", "send", "127.0.0.11:53", "")
	b.check("engine", "ok", "hello", "send", "127.0.0.11:53", "")
	b.seal()
	b.check("engine", "ok", "NameError", "dns", "tcp", "127.0.0.11:53", "x.attacker.test.", "A")
	b.check("engine", "error", "refused", "send", "127.0.0.11:40000", "")
	command(t, "nft", "delete", "table", "ip", "of_the_engine")
}
