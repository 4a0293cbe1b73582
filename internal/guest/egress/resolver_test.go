package egress

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// upstream is a resolver that knows the names given and remembers what it was asked.
type upstream struct {
	addr  netip.AddrPort
	names map[string]string
	mu    sync.Mutex
	asked []string
}

func newUpstream(tb testing.TB, names map[string]string) *upstream {
	tb.Helper()
	c, err := (&net.ListenConfig{}).ListenPacket(tb.Context(), "udp4", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { c.Close() })
	u := &upstream{addr: netip.MustParseAddrPort(c.LocalAddr().String()), names: names}
	go func() {
		buf := make([]byte, 4096)
		for {
			n, from, err := c.ReadFrom(buf)
			if err != nil {
				return
			}
			if a := u.answer(buf[:n]); a != nil {
				_, _ = c.WriteTo(a, from)
			}
		}
	}()
	return u
}

func (u *upstream) answer(q []byte) []byte {
	var m dnsmessage.Message
	if m.Unpack(q) != nil || len(m.Questions) != 1 {
		return nil
	}
	name := strings.TrimSuffix(m.Questions[0].Name.String(), ".")
	u.mu.Lock()
	u.asked = append(u.asked, name)
	u.mu.Unlock()
	m.Response, m.Additionals = true, nil
	a, ok := u.names[name]
	switch {
	case !ok:
		m.RCode = dnsmessage.RCodeNameError
	case a == "broken":
		m.RCode = dnsmessage.RCodeServerFailure
	case m.Questions[0].Type == dnsmessage.TypeA:
		h := dnsmessage.ResourceHeader{Name: m.Questions[0].Name, Class: dnsmessage.ClassINET, TTL: 1}
		m.Answers = []dnsmessage.Resource{{Header: h, Body: &dnsmessage.AResource{A: netip.MustParseAddr(a).As4()}}}
	}
	b, err := m.Pack()
	if err != nil {
		return nil
	}
	return b
}

func (u *upstream) questions() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clone(u.asked)
}

func newTestResolver(tb testing.TB, n workorder.NetworkPolicy, u *upstream) *Egress {
	tb.Helper()
	e, err := New(Config{Policy: n, EngineGID: 1})
	if err != nil {
		tb.Fatal(err)
	}
	hosts := tb.TempDir() + "/hosts"
	if err := os.WriteFile(hosts, []byte("127.0.0.1 localhost box # me\n203.0.113.9 Office.Example\n"), 0o644); err != nil {
		tb.Fatal(err)
	}
	e.lookup.hosts.path = hosts
	e.lookup.upstream = []netip.AddrPort{u.addr}
	e.resolver.search = []string{"corp.example"}
	e.Names(map[string]netip.Addr{"Redis": netip.MustParseAddr("10.213.0.5")})
	return e
}

func question(tb testing.TB, name string, typ dnsmessage.Type, edns bool) []byte {
	tb.Helper()
	m := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: 4711, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(name), Type: typ, Class: dnsmessage.ClassINET}},
	}
	if edns {
		var h dnsmessage.ResourceHeader
		if err := h.SetEDNS0(4096, 0, false); err != nil {
			tb.Fatal(err)
		}
		m.Additionals = []dnsmessage.Resource{{Header: h, Body: &dnsmessage.OPTResource{}}}
	}
	b, err := m.Pack()
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// ask returns the code and the addresses of the answer.
func ask(tb testing.TB, e *Egress, name string, typ dnsmessage.Type) string {
	tb.Helper()
	var m dnsmessage.Message
	a := e.resolver.answer(tb.Context(), "udp", question(tb, name, typ, true), nil)
	if err := m.Unpack(a); err != nil || m.ID != 4711 || !m.Response {
		tb.Fatalf("%q: %v %+v", name, err, m)
	}
	out := strings.TrimPrefix(m.RCode.String(), "RCode")
	for _, r := range m.Answers {
		switch b := r.Body.(type) {
		case *dnsmessage.AResource:
			out += " " + netip.AddrFrom4(b.A).String()
		case *dnsmessage.AAAAResource:
			out += " " + netip.AddrFrom16(b.AAAA).String()
		}
	}
	for _, r := range m.Additionals {
		if o, ok := r.Body.(*dnsmessage.OPTResource); ok && len(o.Options) > 0 {
			out += " " + string(o.Options[0].Data[2:])
		}
	}
	return out
}

func TestResolver(t *testing.T) {
	u := newUpstream(t, map[string]string{"a.test": "203.0.113.1", "x.b.test": "203.0.113.2", "c.test": "203.0.113.3", "down.test": "broken"})
	e := newTestResolver(t, workorder.NetworkPolicy{
		Mode: workorder.NetworkRestricted, Allow: []string{"a.test", "*.b.test", "c.test:22", "down.test", "gone.test", "office.example:8080"},
	}, u)
	const no, invalid = "NameError " + edePrefix + noNameRule, "NameError " + edePrefix + noHostName
	for _, c := range []struct {
		name string
		typ  dnsmessage.Type
		want string
	}{
		{"a.test.", dnsmessage.TypeA, "Success 198.18.0.1"},
		{"A.TeSt.", dnsmessage.TypeA, "Success 198.18.0.1"},
		{"a.test.", dnsmessage.TypeAAAA, "Success"},
		{"a.test.", 65, "Success"},
		{"a.test.", 64, "Success"},
		{"a.test.", dnsmessage.TypeTXT, "Success"},
		{"a.test.", dnsmessage.TypeALL, "Success"},
		{"x.b.test.", dnsmessage.TypeA, "Success 198.18.0.6"},
		{"c.test.", dnsmessage.TypeA, "Success 198.18.0.2"},
		{"gone.test.", dnsmessage.TypeA, "NameError"},
		{"y.b.test.", dnsmessage.TypeA, "NameError"},
		{"down.test.", dnsmessage.TypeA, "ServerFailure"},
		{"redis.", dnsmessage.TypeA, "Success 10.213.0.5"},
		{"REDIS.", dnsmessage.TypeAAAA, "Success"},
		{"localhost.", dnsmessage.TypeA, "Success 127.0.0.1"},
		{"x.localhost.", dnsmessage.TypeAAAA, "Success ::1"},
		{"box.", dnsmessage.TypeA, "Success 127.0.0.1"},
		{"office.example.", dnsmessage.TypeA, "Success 198.18.0.5"}, // its connections are judged by name, too
		{"b.test.", dnsmessage.TypeA, no},
		{"evil.test.", dnsmessage.TypeA, no},
		{"test.", dnsmessage.TypeNS, no},
		{"secret.evil.test.", dnsmessage.TypeTXT, no},
		{"1.0.18.198.in-addr.arpa.", dnsmessage.TypePTR, no},
		{"a.test.corp.example.", dnsmessage.TypeA, "NameError"},
		{"redis.corp.example.", dnsmessage.TypeA, "NameError"},
		{".", dnsmessage.TypeNS, invalid},
		{"a.test\x00.evil.test.", dnsmessage.TypeA, invalid},
		{"a b.b.test.", dnsmessage.TypeA, invalid},
		{"\xc3\xa4.b.test.", dnsmessage.TypeA, invalid},
		{"-x.b.test.", dnsmessage.TypeA, invalid},
	} {
		if got := ask(t, e, c.name, c.typ); got != c.want {
			t.Errorf("%q %v: %q, want %q", c.name, c.typ, got, c.want)
		}
	}
	for _, q := range u.questions() {
		if !slices.Contains([]string{"a.test", "x.b.test", "y.b.test", "c.test", "gone.test", "down.test"}, q) {
			t.Errorf("%q was asked upstream", q)
		}
	}
	for _, h := range e.Report().Hosts {
		if strings.HasSuffix(h.Host, "corp.example") || h.Status != workorder.NetworkRefused || h.Protocol != "dns" || h.Port != 0 {
			t.Errorf("reported: %+v", h)
		}
	}
}

func TestResolverNone(t *testing.T) {
	u := newUpstream(t, map[string]string{"a.test": "203.0.113.1"})
	e := newTestResolver(t, workorder.NetworkPolicy{Mode: workorder.NetworkNone}, u)
	for name, want := range map[string]string{
		"a.test.": "NameError " + edePrefix + "network: none", "redis.": "Success 10.213.0.5", "office.example.": "Success 203.0.113.9",
	} {
		if got := ask(t, e, name, dnsmessage.TypeA); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if q := u.questions(); len(q) > 0 {
		t.Errorf("asked upstream: %q", q)
	}
}

// Long names are kept apart, whole: each has a rule of its own.
func TestLongNamesAreKeptWhole(t *testing.T) {
	e := newTestResolver(t, workorder.NetworkPolicy{Mode: workorder.NetworkRestricted}, newUpstream(t, nil))
	const stem = "prod-registry-k8s-io-us-east-1.s3.dualstack.us-east-1.amazonaws"
	for _, name := range []string{stem + ".com", stem + ".org"} {
		ask(t, e, name+".", dnsmessage.TypeA)
	}
	ask(t, e, `a\x00`+strings.Repeat("b", 40)+"."+strings.Repeat("c", 60)+".", dnsmessage.TypeA)
	var got []string
	for _, h := range e.Report().Hosts {
		got = append(got, h.Host+" "+h.Rule)
	}
	if !slices.Contains(got, stem+".com - "+stem+".com") || !slices.Contains(got, stem+".org - "+stem+".org") || len(got) != 3 {
		t.Errorf("%q", got)
	}
}

func TestResolverFullAndLearn(t *testing.T) {
	u := newUpstream(t, map[string]string{"a.test": "203.0.113.1"})
	full := newTestResolver(t, workorder.NetworkPolicy{Mode: workorder.NetworkFull}, u)
	if got := ask(t, full, "a.test.", dnsmessage.TypeA); got != "Success 203.0.113.1" {
		t.Error(got)
	}
	if got := ask(t, full, "redis.", dnsmessage.TypeA); got != "Success 10.213.0.5" {
		t.Error(got)
	}
	learn := newTestResolver(t, workorder.NetworkPolicy{Mode: workorder.NetworkRestricted, Learn: true}, u)
	if got := ask(t, learn, "a.test.", dnsmessage.TypeA); got != "Success 198.18.0.1" {
		t.Error(got)
	}
	// In earnest the question alone would be refused, also for a name that is not there.
	if got := ask(t, learn, "missing.test.", dnsmessage.TypeA); got != "NameError" {
		t.Error(got)
	}
	h := learn.Report().Hosts
	if len(h) != 2 || h[0].Host != "a.test" || h[0].Status != workorder.NetworkLearned || h[0].Rule != "- a.test" || h[1].Host != "missing.test" {
		t.Errorf("%+v", h)
	}
}

func TestHostilePackets(t *testing.T) {
	u := newUpstream(t, nil)
	e := newTestResolver(t, workorder.NetworkPolicy{Mode: workorder.NetworkRestricted, Allow: []string{"a.test"}}, u)
	header := func(flags, questions uint16) []byte {
		b := binary.BigEndian.AppendUint16([]byte{0x12, 0x67}, flags)
		return append(binary.BigEndian.AppendUint16(b, questions), make([]byte, 6)...)
	}
	one := func(name ...byte) []byte { return append(append(header(0, 1), name...), 0, 1, 0, 1) }
	long := func(n int) (b []byte) {
		for range n {
			b = append(b, 1, 'a')
		}
		return append(b, 0)
	}
	for name, c := range map[string]struct {
		in   []byte
		code int // -1: no answer
	}{
		"nothing":            {nil, -1},
		"short":              {[]byte{1, 2, 3}, -1},
		"an answer":          {header(0x8000, 1), -1},
		"no question":        {header(0, 0), 1},
		"two questions":      {header(0, 2), 1},
		"65535 questions":    {header(0, 65535), 1},
		"an update":          {header(5<<11, 0), 4},
		"compression loop":   {one(0xc0, 12), 1},
		"pointer beyond":     {one(0xc0, 0xff), 1},
		"label beyond":       {one(63, 'a'), 1},
		"reserved label":     {one(0x80, 'a', 0), 1},
		"dot in a label":     {one(6, 'a', '.', 't', 'e', 's', 't', 0), 1},
		"name of 256 bytes":  {one(long(128)...), 1},
		"name of 255 bytes":  {one(long(127)...), 3},
		"class CHAOS":        {append(append(header(0, 1), 1, 'a', 0), 0, 1, 0, 3), 5},
		"garbage behind":     {append(one(1, 'a', 0), 1, 2, 3), 3},
		"garbage additional": {func() []byte { b := one(1, 'a', 0); b[11] = 9; return append(b, 0xc0, 0xc0) }(), 3},
	} {
		a := e.resolver.answer(t.Context(), "udp", c.in, nil)
		switch {
		case c.code < 0 && a != nil:
			t.Errorf("%s: answered %x", name, a)
		case c.code >= 0 && (len(a) < 12 || a[0] != 0x12 || a[1] != 0x67 || int(a[3]&15) != c.code):
			t.Errorf("%s: %x, want code %d", name, a, c.code)
		}
	}
}

func TestAnswersFitTheClient(t *testing.T) {
	q := query{question: dnsmessage.Question{Name: dnsmessage.MustNewName("a.test."), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}, size: plainSize}
	r := reply{}
	for i := range 100 {
		r.addrs = append(r.addrs, netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}))
	}
	if a := q.build(r, "udp"); len(a) > plainSize || a[2]&truncatedBit == 0 {
		t.Errorf("udp: %d bytes, flags %x", len(a), a[2])
	}
	if a := q.build(r, "tcp"); len(a) < 1600 || a[2]&truncatedBit != 0 {
		t.Errorf("tcp: %d bytes, flags %x", len(a), a[2])
	}
}

func TestPoolIsBounded(t *testing.T) {
	s := newPool(policy{rules: []workorder.AllowRule{{Host: "kept.test"}, {Host: "sub.test", Sub: true}, {Host: "10.0.0.1"}}})
	kept := s.byName["kept.test"]
	if !kept.IsValid() || len(s.byName) != 1 {
		t.Fatalf("%v", s.byName)
	}
	b := make([]byte, 4)
	for i := range maxNames + 10 {
		binary.BigEndian.PutUint32(b, uint32(i))
		if a := s.address(string(b)); a.IsValid() != (i < maxNames-1) || a.IsValid() && !synthetic().Contains(a) {
			t.Fatalf("%d: %s", i, a)
		}
	}
	if n, ok := s.name(kept); !ok || n != "kept.test" || s.address("kept.test") != kept {
		t.Error("a name lost its address")
	}
}

// FuzzAnswer wants no crash, an answer to its question, and no name upstream that no rule names.
func FuzzAnswer(f *testing.F) {
	u := newUpstream(f, map[string]string{"a.test": "203.0.113.1"})
	e := newTestResolver(f, workorder.NetworkPolicy{Mode: workorder.NetworkRestricted, Allow: []string{"a.test"}}, u)
	f.Add(question(f, "a.test.", dnsmessage.TypeA, true))
	f.Add(question(f, "evil.test.", dnsmessage.TypeTXT, false))
	f.Add([]byte{0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0xc0, 12, 0, 1, 0, 1})
	f.Fuzz(func(t *testing.T, q []byte) {
		a := e.resolver.answer(context.WithoutCancel(t.Context()), "udp", q, nil)
		if a != nil && (len(a) < 12 || a[0] != q[0] || a[1] != q[1] || a[2]&0x80 == 0) {
			t.Errorf("%x is no answer to %x", a, q)
		}
		for _, n := range u.questions() {
			if !strings.EqualFold(n, "a.test") {
				t.Fatalf("%q was asked upstream", n)
			}
		}
	})
}

// Containers on the default bridge ask at its address, by UDP and TCP.
func TestServeDNS(t *testing.T) {
	u := newUpstream(t, map[string]string{"elsewhere": "93.184.216.7"})
	e := newTestResolver(t, workorder.NetworkPolicy{Mode: workorder.NetworkFull}, u)
	at, err := e.serveDNS(t.Context(), netip.MustParseAddrPort("127.0.0.1:0"))
	for range 20 {
		if !errors.Is(err, syscall.EADDRINUSE) { // a port that is free for UDP need not be for TCP
			break
		}
		at, err = e.serveDNS(t.Context(), netip.MustParseAddrPort("127.0.0.1:0"))
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	over := func(network, name string) string {
		c, err := (&net.Dialer{}).DialContext(t.Context(), network, at.String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		q, a := question(t, name, dnsmessage.TypeA, false), make([]byte, plainSize)
		if network == "tcp" {
			if err = writeFrame(c, q); err == nil {
				a, err = readFrame(c)
			}
		} else if _, err = c.Write(q); err == nil {
			var n int
			n, err = c.Read(a)
			a = a[:n]
		}
		var m dnsmessage.Message
		if err == nil {
			err = m.Unpack(a)
		}
		if err != nil || m.ID != 4711 || len(m.Answers) != 1 {
			t.Fatalf("%s %s: %v %+v", network, name, err, m)
		}
		return netip.AddrFrom4(m.Answers[0].Body.(*dnsmessage.AResource).A).String()
	}
	if a := over("udp", "rEdis."); a != "10.213.0.5" {
		t.Error(a)
	}
	if a := over("tcp", "redis."); a != "10.213.0.5" {
		t.Error(a)
	}
	if a := over("udp", "elsewhere."); a != "93.184.216.7" {
		t.Error(a)
	}
}
