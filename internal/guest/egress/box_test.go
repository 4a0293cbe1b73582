//go:build boxtest

// The tests of the box*_test.go files run as root in a box of their own without a
// network (docker run --network none --sysctl net.ipv6.conf.all.disable_ipv6=0, NET_ADMIN, SYS_ADMIN, SYS_PTRACE,
// writable /proc/sys): they give it one, with a world of servers behind it, and a bridge with an inner
// container's network. The image has nft and ip. They are compiled on the host (go test -c -tags boxtest).
package egress_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/connowner"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/egress"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const (
	engineGID   = 980
	commandTime = 30 * time.Second
	good        = "93.184.216.1"
	evil        = "93.184.216.2"
	metadata    = "169.254.169.254"
)

func command(t *testing.T, argv ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), commandTime)
	defer cancel()
	if _, err := proc.Output(ctx, proc.Spec{Argv: argv}); err != nil {
		t.Fatalf("%v: %v", argv, err)
	}
}

func commands(t *testing.T, text string) {
	t.Helper()
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) > 0 {
			command(t, f...)
		}
	}
}

// theWorld is outside of the box, made once.
type theWorld struct {
	mu    sync.Mutex
	asked []string
}

var startWorld = sync.OnceValue(func() *theWorld { return &theWorld{} })

func setWorld(t *testing.T) *theWorld {
	t.Helper()
	w := startWorld()
	if _, err := os.Stat("/sys/class/net/up0"); err == nil {
		return w
	}
	for path, text := range map[string]string{
		"/etc/resolv.conf":                    "nameserver 198.51.100.53\n",
		"/etc/hosts":                          "127.0.0.1 localhost\n10.99.0.1 in-hosts.test\n",
		"/proc/sys/net/ipv4/ping_group_range": "0 2147483647", "/proc/sys/net/ipv4/ip_forward": "1",
		"/proc/sys/net/ipv6/conf/all/forwarding": "1",
	} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	commands(t, `
		ip netns add world
		ip netns add inner
		ip link add up0 type veth peer name w0 netns world
		ip addr add 203.0.113.2/24 dev up0
		ip addr add 2001:db8:1::2/64 dev up0 nodad
		ip link set up0 up
		ip -n world link set lo up
		ip -n world link set w0 up
		ip -n world addr add 203.0.113.1/24 dev w0
		ip -n world addr add 2001:db8:1::1/64 dev w0 nodad
		ip route add default via 203.0.113.1
		ip -6 route add default via 2001:db8:1::1
		ip -n inner link set lo up`)
	for _, a := range worldAddrs[1:] {
		add := []string{"ip", "-n", "world", "addr", "add", a, "dev", "lo"}
		if strings.Contains(a, ":") {
			add = append(add, "nodad") // otherwise no process binds to it until the kernel's worker has searched for another's
		}
		command(t, add...)
	}
	r, out := io.Pipe()
	in, _ := io.Pipe() // never ends
	_, err := proc.Start(context.WithoutCancel(t.Context()), proc.Spec{
		Argv: []string{"ip", "netns", "exec", "world", os.Args[0]}, Env: append(os.Environ(), "EGRESS_ROLE=world"),
		Stdin: in, Stdout: out, Stderr: os.Stderr,
	})
	if err != nil {
		t.Fatal(err)
	}
	ready := make(chan struct{})
	go func() {
		s := bufio.NewScanner(r)
		for s.Scan() {
			if name, ok := strings.CutPrefix(s.Text(), "dns "); ok {
				w.mu.Lock()
				w.asked = append(w.asked, name)
				w.mu.Unlock()
			} else if s.Text() == "ready" {
				close(ready)
			}
		}
	}()
	select {
	case <-ready:
	case <-time.After(commandTime):
		t.Fatal("the world is not ready")
	}
	return w
}

func (w *theWorld) wasAsked(name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Contains(w.asked, name)
}

// box is a box with a policy in force.
type box struct {
	t     *testing.T
	e     *egress.Egress
	world *theWorld

	mu     sync.Mutex
	events []workorder.Event
}

func newBox(t *testing.T, p workorder.NetworkPolicy, resolvers ...netip.Addr) *box {
	t.Helper()
	return newBoxAfter(t, p, func(*egress.Egress) error { return nil }, resolvers...)
}

// newBoxAfter is newBox with a call before Up.
func newBoxAfter(t *testing.T, p workorder.NetworkPolicy, before func(*egress.Egress) error, resolvers ...netip.Addr) *box {
	t.Helper()
	b := &box{t: t, world: setWorld(t)}
	_ = proc.Run(t.Context(), proc.Spec{Argv: []string{"ip", "link", "del", "br-in"}})
	_ = proc.Run(t.Context(), proc.Spec{Argv: []string{"ip", "link", "del", "v-in"}})
	b.world.mu.Lock()
	b.world.asked = nil
	b.world.mu.Unlock()
	var err error
	b.e, err = egress.New(egress.Config{
		Policy: p, EngineGID: engineGID, Resolvers: resolvers, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Origin: connowner.New(nil, func(_ context.Context, ip netip.Addr) string {
			if ip.String() == "10.213.1.2" {
				return "web"
			}
			return ""
		}),
		Emit: func(e workorder.Event) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.events = append(b.events, e)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(before(b.e), b.e.Up(t.Context())); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.e.Close)
	commands(t, `
		ip link add br-in type bridge
		ip addr add 10.213.1.1/24 dev br-in
		ip addr add fd00:213::1/64 dev br-in nodad
		ip link add v-in type veth peer name eth0 netns inner
		ip link set v-in master br-in up
		ip link set br-in up
		ip -n inner addr add 10.213.1.2/24 dev eth0
		ip -n inner addr add fd00:213::2/64 dev eth0 nodad
		ip -n inner link set eth0 up
		ip -n inner route add default via 10.213.1.1
		ip -n inner -6 route add default via fd00:213::1`)
	if err := b.e.Inner(b.t.Context(), netip.MustParsePrefix("10.213.0.0/16")); err != nil {
		t.Fatal(err)
	}
	b.e.Names(map[string]netip.Addr{"redis": netip.MustParseAddr("10.213.1.2")})
	return b
}

// spec is a client of the test: sandbox, inner, engine, boot or world.
func spec(who string, args []string) proc.Spec {
	s := proc.Spec{Argv: append([]string{os.Args[0]}, args...), Env: append(os.Environ(), "EGRESS_ROLE=client"), Stderr: os.Stderr}
	switch who {
	case "sandbox":
		s.User = &proc.Credential{UID: 1000, GID: 1000}
	case "engine":
		s.User = &proc.Credential{UID: 0, GID: engineGID}
	case "inner", "world":
		s.Argv = append([]string{"ip", "netns", "exec", who}, s.Argv...)
	}
	return s
}

func do(t *testing.T, who string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), commandTime)
	defer cancel()
	out, err := proc.Output(ctx, spec(who, args))
	if err != nil {
		t.Fatalf("%s %q: %v", who, args, err)
	}
	return strings.TrimSpace(string(out))
}

// check runs a client and wants its line to begin with a word and to contain another.
func (b *box) check(who, want, contains string, args ...string) {
	b.t.Helper()
	got := do(b.t, who, args...)
	if !strings.HasPrefix(got, want+":") || !strings.Contains(got, contains) {
		b.t.Errorf("%s %q:\n got  %s\n want %s: …%s…", who, args, got, want, contains)
	}
}

// untrusted checks for a process of the box and for an inner container.
func (b *box) untrusted(want, contains string, args ...string) {
	b.t.Helper()
	b.check("sandbox", want, contains, args...)
	b.check("inner", want, contains, args...)
}

// reported wants an entry of the report, and its first event.
func (b *box) reported(host string, port uint16, protocol string, status workorder.NetworkStatus, rule, by string) {
	b.t.Helper()
	find := func() bool {
		return slices.ContainsFunc(b.e.Report().Hosts, func(h workorder.NetworkHost) bool {
			return h.Host == host && h.Port == port && h.Protocol == protocol && h.Status == status && h.Rule == rule &&
				slices.ContainsFunc(h.By, func(s string) bool { return strings.Contains(s, by) })
		})
	}
	for end := time.Now().Add(patience); !find(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			b.t.Errorf("not reported: %s %d %s %s %q by %q; the report:\n%+v", host, port, protocol, status, rule, by, b.e.Report().Hosts)
			return
		}
	}
}

// synthetic resolves a name as a client of the box does.
func (b *box) synthetic(name string) string {
	b.t.Helper()
	const collided = "operation not permitted" // from a port that boot has asked from within 30 seconds: see afterBoot
	got := collided
	for tries := 0; strings.Contains(got, collided) && tries < 5; tries++ {
		got = do(b.t, "sandbox", "dns", "udp", "198.51.100.53:53", name+".", "A")
	}
	f := strings.Fields(got)
	if a := f[len(f)-1]; strings.HasPrefix(a, "198.18.") {
		return a
	}
	b.t.Fatalf("%s: %s", name, got)
	return ""
}

// always are the promises of every mode.
func (b *box) always() {
	b.t.Helper()
	for _, who := range []string{"sandbox", "inner", "engine"} {
		b.check(who, "error", "refused", "send", metadata+":80", "GET / HTTP/1.0\\r\\n\\r\\n")
		b.check(who, "error", "", "udp", metadata+":4000")
	}
	b.reported(metadata, 80, "tcp", workorder.NetworkRefused, "", "")
	b.reported(metadata, 4000, "udp", workorder.NetworkRefused, "", "web")
	// Boot has its way.
	b.check("boot", "ok", "page host=x", "send", evil+":80", "GET / HTTP/1.0\\r\\nHost: x\\r\\n\\r\\n")
	b.check("boot", "ok", "93.184.216.2", "dns", "udp", "198.51.100.53:53", "evil.test.", "A")
	// Services and loopback.
	b.serve("inner", ":7000")
	b.serve("sandbox", ":7001")
	b.check("sandbox", "ok", "hello", "send", "10.213.1.2:7000", "")
	b.check("boot", "ok", "hello", "send", "10.213.1.2:7000", "")
	b.check("inner", "ok", "hello", "send", "10.213.1.1:7001", "")
	b.check("sandbox", "ok", "hello", "send", "127.0.0.1:7001", "")
	b.check("sandbox", "ok", "hello", "send", "[::1]:7001", "")
	// No connection comes in.
	b.check("world", "timeout", "", "send", "203.0.113.2:7001", "")
	b.check("world", "timeout", "", "send", "[2001:db8:1::2]:7001", "")
}

// serve starts a listener.
func (b *box) serve(who, addr string) {
	b.t.Helper()
	r, w := io.Pipe()
	s := spec(who, []string{"listen", addr})
	s.Stdout = w
	p, err := proc.Start(b.t.Context(), s)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { p.Signal(9); _ = p.Wait() })
	line, err := bufio.NewReader(r).ReadString('\n')
	if err != nil || !strings.Contains(line, "listening") {
		b.t.Fatalf("%q %v", line, err)
	}
	go func() { _, _ = io.Copy(io.Discard, r) }()
}

func page(host string) string {
	return "GET / HTTP/1.1\\r\\nHost: " + host + "\\r\\nConnection: close\\r\\n\\r\\n"
}

func TestFull(t *testing.T) {
	b := newBox(t, workorder.NetworkPolicy{Mode: workorder.NetworkFull})
	b.always()
	b.untrusted("ok", "page", "send", evil+":80", page("x"))
	b.untrusted("ok", "ping", "udp", evil+":4000")
	b.untrusted("ok", "93.184.216.2", "dns", "udp", "198.51.100.53:53", "evil.test.", "A")
	b.check("sandbox", "ok", "echo", "icmp", "udp4", evil)
	b.check("inner", "ok", "echo", "icmp", "ip4:icmp", evil)
	b.untrusted("ok", "page", "send", "[2001:db8:2::1]:80", page("x"))
	b.check("inner", "ok", "from=203.0.113.2:", "send", evil+":80", page("x")) // masqueraded
	b.check("engine", "ok", "page", "send", evil+":80", page("x"))
}

func TestNone(t *testing.T) {
	b := newBox(t, workorder.NetworkPolicy{Mode: workorder.NetworkNone})
	b.always()
	b.untrusted("error", "refused", "send", good+":80", page("good.test"))
	b.untrusted("error", "refused", "send", "[2001:db8:2::1]:80", page("x"))
	b.untrusted("error", "", "udp", good+":4000")
	b.untrusted("error", "", "udp", "[2001:db8:2::1]:4000")
	b.check("sandbox", "error", "", "icmp", "udp4", good)
	b.check("inner", "error", "unreachable", "icmp", "ip4:icmp", good)
	for _, network := range []string{"udp", "tcp"} {
		b.untrusted("ok", "NameError", "dns", network, "198.51.100.53:53", "secret.good.test.", "A")
		b.untrusted("ok", "NameError", "dns", network, "[2001:db8:2::1]:53", "secret.good.test.", "TXT")
		b.untrusted("ok", "10.213.1.2", "dns", network, "198.51.100.53:53", "redis.", "A")
	}
	if b.world.wasAsked("secret.good.test") {
		t.Error("a question left the box")
	}
	b.reported("secret.good.test", 0, "dns", workorder.NetworkRefused, "", "web")
	b.reported(good, 80, "tcp", workorder.NetworkRefused, "", "")
	// The engine pulls images until it is sealed.
	b.check("engine", "ok", "page", "send", good+":80", page("x"))
	b.check("engine", "ok", good, "dns", "udp", "198.51.100.53:53", "good.test.", "A")
	b.seal()
	b.check("engine", "error", "refused", "send", good+":80", page("x"))
	b.check("engine", "ok", "NameError", "dns", "udp", "198.51.100.53:53", "good.test.", "A")
	b.check("engine", "ok", "hello", "send", "10.213.1.2:7000", "")
	b.check("boot", "ok", "page", "send", good+":80", page("x"))
}

// The policy binds the inner engine from the start if it was sealed before it was applied.
func TestSealedBeforeUp(t *testing.T) {
	for _, mode := range []workorder.NetworkMode{workorder.NetworkNone, workorder.NetworkRestricted} {
		t.Run(string(mode), func(t *testing.T) {
			b := newBoxAfter(t, workorder.NetworkPolicy{Mode: mode}, func(e *egress.Egress) error { return e.Seal(t.Context()) })
			b.serve("inner", ":7000")
			b.check("engine", "error", "", "send", good+":22", "")
			b.check("engine", "ok", "NameError", "dns", "udp", "198.51.100.53:53", "good.test.", "A")
			b.check("engine", "ok", "hello", "send", "10.213.1.2:7000", "")
			b.check("boot", "ok", "page", "send", good+":80", page("x"))
		})
	}
}

// seal holds a connection of the engine open, and wants it to be cut.
func (b *box) seal() {
	b.t.Helper()
	out := &syncBuffer{}
	s := spec("engine", []string{"banner-wait", good + ":22"})
	s.Stdout = out
	p, err := proc.Start(b.t.Context(), s)
	if err != nil {
		b.t.Fatal(err)
	}
	for end := time.Now().Add(patience); !strings.Contains(out.String(), "banner"); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			b.t.Fatalf("no banner: %s", out)
		}
	}
	if err := b.e.Seal(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
	_ = p.Wait()
	if !strings.Contains(out.String(), "reset") {
		b.t.Errorf("the engine's connection lives on: %s", out)
	}
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// An inner network can be given any range; boot's connections must not go there.
func TestAgentMadeNetworkAttractsNothing(t *testing.T) {
	b := newBox(t, workorder.NetworkPolicy{Mode: workorder.NetworkFull})
	commands(t, `
		ip addr add 93.184.216.254/24 dev br-in
		ip -n inner addr add 93.184.216.1/24 dev eth0`)
	b.serve("inner", ":7000")
	b.serve("sandbox", ":7001")
	b.check("sandbox", "ok", "hello", "send", good+":7000", "")
	b.check("boot", "error", "refused", "send", good+":7000", "")
	b.check("boot", "error", "refused", "send", "93.184.216.254:7001", "") // the gateway is an address of the box itself
	commands(t, "ip -n inner addr del 93.184.216.1/24 dev eth0")
}

func TestUpFailsWithoutNFT(t *testing.T) {
	setWorld(t)
	t.Setenv("PATH", "/nowhere")
	e, err := egress.New(egress.Config{Policy: workorder.NetworkPolicy{Mode: workorder.NetworkFull}, EngineGID: engineGID})
	if err != nil {
		t.Fatal(err)
	}
	err = e.Up(t.Context())
	if err == nil || !strings.Contains(err.Error(), "nftables") {
		t.Fatal(err)
	}
	t.Log(err)
	if _, err := egress.New(egress.Config{Policy: workorder.NetworkPolicy{Mode: "open"}, EngineGID: engineGID}); err == nil {
		t.Error("an unknown mode was taken")
	}
}
