package egress

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/connowner"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const (
	// maxConns bounds the connections through the proxy; each takes two descriptors and two pipes.
	maxConns = 4096
	// helloTime bounds the wait for a client's first bytes, slow clients on a loaded box included.
	helloTime = 10 * time.Second
	// refusedTime bounds that wait for a connection that will be refused anyway.
	refusedTime = 250 * time.Millisecond
	// unclearTime is between the two: bearable for a client that waits for its server.
	unclearTime = 2 * time.Second
	// acceptPause keeps a box without free descriptors from spinning.
	acceptPause = 50 * time.Millisecond
	// lingerTime bounds a refused client's time to read the reason.
	lingerTime = time.Second
	// sniffBytes bounds the bytes read to recognise the protocol; the parsers read the rest.
	sniffBytes = 4096
)

type proxy struct {
	policy  policy
	mu      sync.Mutex
	clients map[*net.TCPConn]bool // connections that the web server has not taken over
	pool    *pool
	lookup  *lookup
	ledger  *accessLog
	origin  *connowner.Finder
	web     *httpProxy
	warn    func(string)

	// Replaced in tests, which have no redirecting kernel.
	original  func(*net.TCPConn) (netip.AddrPort, error)
	ownRanges func() []netip.Prefix
	never     func(netip.Addr, []netip.Prefix) string
	reach     func(ctx context.Context, targets []netip.Addr, port uint16) (*net.TCPConn, error)

	open   atomic.Int64
	warned atomic.Bool
}

type client struct {
	*net.TCPConn
	dst  netip.AddrPort // original destination
	name string         // the destination's name, "" for a bare address
	read []byte         // bytes read to recognise the protocol
}

func (p *proxy) serve(ctx context.Context, l net.Listener) {
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		t, ok := c.(*net.TCPConn)
		if err != nil || !ok {
			time.Sleep(acceptPause)
			continue
		}
		if p.open.Add(1) > maxConns {
			p.open.Add(-1)
			if p.warned.CompareAndSwap(false, true) {
				p.warn("the egress proxy has too many connections and refuses further ones")
			}
			reset(t)
			continue
		}
		go func() {
			if !p.handle(ctx, t) {
				p.open.Add(-1)
			}
		}()
	}
}

func (p *proxy) keep(t *net.TCPConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.clients == nil {
		p.clients = map[*net.TCPConn]bool{}
	}
	p.clients[t] = true
}

func (p *proxy) forget(t *net.TCPConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.clients, t)
}

// closeClients ends all connections through the proxy, except those that the web server has taken over.
func (p *proxy) closeClients() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for t := range p.clients {
		t.Close()
	}
}

// handle serves a connection; kept means that the web server has taken it over and will do the accounting at its end.
func (p *proxy) handle(ctx context.Context, t *net.TCPConn) (kept bool) {
	p.keep(t)
	defer func() {
		p.forget(t)
		if !kept {
			t.Close()
		}
	}()
	dst, err := p.original(t)
	if local, _ := netip.ParseAddrPort(t.LocalAddr().String()); err != nil || dst == netip.AddrPortFrom(local.Addr().Unmap(), local.Port()) {
		reset(t) // the connection was not redirected
		return false
	}
	c := &client{TCPConn: t, dst: dst, name: p.nameOf(dst)}
	host := c.host()
	v := p.policy.judge(host, dst.Port())
	switch {
	case synthetic().Contains(dst.Addr()) && c.name == "":
		p.refuse(c, attempt{host: host, reason: "no name has this address: resolve the name in the sandbox"})
		return false
	case v == allowed && c.name == "":
		// A rule for an address allows all protocols there.
		p.connect(ctx, c, host, v, false)
		return false
	case v != refused && c.name != "" && !isWeb(dst.Port()):
		return p.either(ctx, c, v)
	}
	return p.decide(ctx, c, v, c.listen(p.patience(c)))
}

func (c *client) host() string {
	if c.name != "" {
		return c.name
	}
	return c.dst.Addr().Unmap().String()
}

func (p *proxy) by(c *client) func() string {
	if p.origin == nil {
		return nil
	}
	local, err := netip.ParseAddrPort(c.RemoteAddr().String())
	if err != nil {
		return nil
	}
	return func() string { return p.origin.TCP(local, c.dst) }
}

func isWeb(port uint16) bool { return port == 80 || port == 443 }

// nameOf returns the name of a destination, by the resolver or by /etc/hosts if a rule allows the name there.
func (p *proxy) nameOf(dst netip.AddrPort) string {
	if n, ok := p.pool.name(dst.Addr()); ok {
		return n
	}
	for _, n := range p.lookup.hosts.names(dst.Addr()) {
		if p.policy.judge(n, dst.Port()) == allowed {
			return n
		}
	}
	return ""
}

// connect splices a client to an allowed host. raw means that the protocol is neither TLS nor HTTP/1.
func (p *proxy) connect(ctx context.Context, c *client, host string, v verdict, raw bool) {
	up := p.reached(ctx, c, host, v, raw)
	if up == nil {
		return
	}
	_ = c.SetDeadline(time.Time{})
	if _, err := up.Write(c.read); err != nil {
		reset(up)
		reset(c.TCPConn)
		return
	}
	splice(c.TCPConn, up)
}

// reached connects to the host and records it. After a failure it returns nil, and the client has the reason.
func (p *proxy) reached(ctx context.Context, c *client, host string, v verdict, raw bool) *net.TCPConn {
	up, to, err := p.dial(ctx, host, c.dst.Port())
	if forbidden, ok := errors.AsType[errForbidden](err); ok {
		p.refuse(c, attempt{host: host, reason: forbidden.why, rule: p.forbiddenFix(forbidden, host, c.dst.Port())})
		return nil
	}
	if to == insideNoRule {
		v = learned
	}
	a := attempt{host: host, port: c.dst.Port(), protocol: "tcp", verdict: v, by: p.by(c)}
	if v == learned {
		a.reason, a.rule = noRule, fix(host, c.dst.Port())
		if raw {
			a.rule = explicitFix(host, c.dst.Port())
		}
	}
	if to != public {
		a.rule = p.policy.insideFix(host, c.dst.Port(), raw)
	}
	if err != nil {
		p.ledger.note(a)
		reset(c.TCPConn)
		return nil
	}
	go p.ledger.note(a)
	return up
}

// forbiddenFix returns the rule that would allow it; empty if no rule can.
func (p *proxy) forbiddenFix(e errForbidden, host string, port uint16) string {
	if !e.inside {
		return ""
	}
	return p.policy.insideFix(host, port, false)
}

// refuse ends a connection with a refusal in the client's protocol.
func (p *proxy) refuse(c *client, a attempt) {
	a.port, a.protocol, a.verdict, a.by = c.dst.Port(), "tcp", refused, p.by(c)
	p.ledger.note(a)
	if len(c.read) == 0 || c.read[0] != workorder.TLSHandshake {
		reset(c.TCPConn)
		return
	}
	_ = c.SetDeadline(time.Now().Add(lingerTime))
	_, _ = c.Write([]byte{21, 3, 1, 0, 2, 2, 49}) // the TLS alert access_denied
	_ = c.CloseWrite()
	_, _ = io.Copy(io.Discard, io.LimitReader(c.TCPConn, workorder.MaxClientHello)) // closing with unread bytes would drop the alert
	c.Close()
}

// firstTime is how long the proxy waits for a client's first bytes before it connects, on ports where the server may
// speak first.
const firstTime = 20 * time.Millisecond

// either serves a port on which client or server may speak first. TLS and HTTP must not ask for another host there.
func (p *proxy) either(ctx context.Context, c *client, v verdict) (kept bool) {
	if spoken := c.listen(firstTime); spoken != clientSilent {
		return p.decide(ctx, c, v, spoken)
	}
	up := p.reached(ctx, c, c.host(), v, false)
	if up == nil {
		return false
	}
	_ = c.SetDeadline(time.Time{})
	s := serverSide{c: c.TCPConn, up: up, done: make(chan struct{})}
	go s.run()
	buf := make([]byte, sniffBytes)
	n, err := c.Read(buf)
	c.read = buf[:n]
	if n > 0 && !s.spoke.Load() {
		spoken := recognise(c.read)
		if spoken == clientUnclear {
			spoken = c.listen(helloTime)
			_ = c.SetDeadline(time.Time{})
		}
		switch spoken {
		case clientHTTP:
			s.drop()
			p.web.take(c)
			return true
		case clientTLS:
			if _, _, no := p.hello(c, v); no != nil {
				s.drop()
				p.refuse(c, *no)
				return false
			}
			_ = c.SetDeadline(time.Time{})
		}
	}
	if _, werr := up.Write(c.read); werr != nil {
		err = werr
	}
	if err == nil {
		_, err = io.Copy(up, c.TCPConn)
	}
	if err != nil && err != io.EOF { //nolint:errorlint // as returned by Read
		reset(up)
		reset(c.TCPConn)
	}
	_ = up.CloseWrite()
	<-s.done
	up.Close()
	return false
}

// serverSide copies the server's bytes to its client.
type serverSide struct {
	c, up *net.TCPConn
	// spoke means that the server spoke first, so the client's bytes do not request a host.
	spoke, dropped atomic.Bool
	done           chan struct{}
}

func (s *serverSide) run() {
	defer close(s.done)
	first := make([]byte, sniffBytes)
	n, err := s.up.Read(first)
	if s.dropped.Load() {
		return
	}
	s.spoke.Store(n > 0)
	if _, werr := s.c.Write(first[:n]); werr != nil {
		err = werr
	}
	if err == nil {
		_, err = io.Copy(s.c, s.up)
	}
	if err != nil && err != io.EOF { //nolint:errorlint // as returned by Read
		reset(s.c)
		reset(s.up)
		return
	}
	_ = s.c.CloseWrite()
}

// drop ends the connection to the server; the client has received nothing from it.
func (s *serverSide) drop() {
	s.dropped.Store(true)
	reset(s.up)
	<-s.done
}
