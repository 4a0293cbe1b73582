package egress

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/connowner"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const (
	maxDNSPacket = 64 << 10
	// dnsParallel bounds the concurrent queries of each socket; more wait in the kernel or are repeated by their clients.
	dnsParallel = 256
	// dnsIdle is a connection's longest wait for its next query.
	dnsIdle = 10 * time.Second
	// dnsLife is how long a connection is served, so that persistent clients leave room for others.
	dnsLife = 2 * time.Minute
)

// packets reads and writes datagrams with the local address of each: an answer must come from the address of the query.
type packets interface {
	read(b []byte) (n int, own net.IP, from net.Addr, err error)
	write(b []byte, own net.IP, to net.Addr) error
}

type packets4 struct{ *ipv4.PacketConn }

func newPackets4(c net.PacketConn) (packets, error) {
	p := ipv4.NewPacketConn(c)
	return packets4{p}, p.SetControlMessage(ipv4.FlagDst, true)
}

func (p packets4) read(b []byte) (int, net.IP, net.Addr, error) {
	n, cm, from, err := p.ReadFrom(b)
	if cm == nil {
		return n, nil, from, err
	}
	return n, cm.Dst, from, err
}

func (p packets4) write(b []byte, own net.IP, to net.Addr) error {
	_, err := p.WriteTo(b, &ipv4.ControlMessage{Src: own}, to)
	return err
}

type packets6 struct{ *ipv6.PacketConn }

func newPackets6(c net.PacketConn) (packets, error) {
	p := ipv6.NewPacketConn(c)
	return packets6{p}, p.SetControlMessage(ipv6.FlagDst, true)
}

func (p packets6) read(b []byte) (int, net.IP, net.Addr, error) {
	n, cm, from, err := p.ReadFrom(b)
	if cm == nil {
		return n, nil, from, err
	}
	return n, cm.Dst, from, err
}

func (p packets6) write(b []byte, own net.IP, to net.Addr) error {
	_, err := p.WriteTo(b, &ipv6.ControlMessage{Src: own}, to)
	return err
}

// ServeDNS opens the resolver at an IPv4 address of an inner network, which need not exist yet, until Close. Containers
// on the default bridge need it to resolve services. In mode full it passes other names upstream.
func (e *Egress) ServeDNS(ctx context.Context, at netip.AddrPort) error {
	e.changes.Lock()
	defer e.changes.Unlock()
	if e.serving == at {
		return nil
	}
	if _, err := e.serveDNS(ctx, at); err != nil {
		return err
	}
	e.serving = at
	return nil
}

func (e *Egress) serveDNS(ctx context.Context, at netip.AddrPort) (net.Addr, error) {
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var serr error
		err := c.Control(func(fd uintptr) { serr = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_FREEBIND, 1) })
		return errors.Join(err, serr)
	}}
	udp, err := lc.ListenPacket(ctx, "udp4", at.String())
	if err != nil {
		return nil, err
	}
	tcp, err := lc.Listen(ctx, "tcp4", udp.LocalAddr().String())
	if err != nil {
		udp.Close()
		return nil, err
	}
	p, err := newPackets4(udp)
	if err != nil {
		udp.Close()
		tcp.Close()
		return nil, err
	}
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	e.closes = append(e.closes, func() { stop(); udp.Close(); tcp.Close() })
	go e.serveUDP(run, p)
	go e.serveTCP(run, tcp)
	return udp.LocalAddr(), nil
}

func (e *Egress) serveUDP(ctx context.Context, p packets) {
	slots := make(chan struct{}, dnsParallel)
	buf := make([]byte, maxDNSPacket)
	for {
		n, own, from, err := p.read(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(acceptPause) // the error may persist
			continue
		}
		q := append([]byte(nil), buf[:n]...)
		slots <- struct{}{}
		go func() {
			defer func() { <-slots }()
			if a := e.resolver.answer(ctx, "udp", q, e.asker("udp", from)); a != nil {
				_ = p.write(a, own, from) // the client repeats the query
			}
		}()
	}
}

func (e *Egress) serveTCP(ctx context.Context, l net.Listener) {
	slots := make(chan struct{}, dnsParallel)
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(acceptPause)
			continue
		}
		slots <- struct{}{}
		go func() {
			defer func() { c.Close(); <-slots }()
			for end := time.Now().Add(dnsLife); time.Now().Before(end); {
				_ = c.SetDeadline(time.Now().Add(dnsIdle))
				q, err := readFrame(c)
				if err != nil {
					return
				}
				a := e.resolver.answer(ctx, "tcp", q, e.asker("tcp", c.RemoteAddr()))
				if a == nil || writeFrame(c, a) != nil {
					return
				}
			}
		}()
	}
}

func (e *Egress) asker(network string, from net.Addr) func() string {
	a, err := netip.ParseAddrPort(from.String())
	if err != nil || e.cfg.Origin == nil {
		return nil
	}
	if network == "tcp" {
		return func() string { return e.cfg.Origin.TCP(a, netip.AddrPort{}) }
	}
	return func() string { return e.cfg.Origin.UDP(a) }
}

func readFrame(c io.Reader) ([]byte, error) {
	var n [2]byte
	if _, err := io.ReadFull(c, n[:]); err != nil {
		return nil, err
	}
	b := make([]byte, binary.BigEndian.Uint16(n[:]))
	_, err := io.ReadFull(c, b)
	return b, err
}

func writeFrame(c io.Writer, b []byte) error {
	_, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(b))), b...))
	return err
}

const (
	// nameTTL is the TTL of synthetic addresses, which never change.
	nameTTL = 60
	// serviceTTL is the TTL of services, whose addresses change.
	serviceTTL = 5
	answerTime = 4 * time.Second
	// optionEDE is the option of an extended error (RFC 8914), edeProhibited the error for a refused name.
	optionEDE, edeProhibited = 15, 18
	// ednsSize is the largest UDP query that the resolver accepts; queries are small.
	ednsSize = 1232
	// plainSize is the largest UDP answer for a client without EDNS.
	plainSize = 512
	// truncatedBit, in the third byte of a message, makes the client use TCP.
	truncatedBit = 0x02
)

type resolver struct {
	policy atomic.Pointer[policy]
	pool   *pool
	lookup *lookup
	ledger *accessLog
	search []string
	local  func(netip.Addr) bool // an address of the box or its inner networks

	mu       sync.RWMutex
	services map[string]netip.Addr
}

func (r *resolver) setNames(names map[string]netip.Addr) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for n, a := range names {
		r.services[workorder.CanonicalHost(n)] = a.Unmap()
	}
}

func (r *resolver) service(name string) (netip.Addr, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	a, ok := r.services[name]
	return a, ok
}

// Reasons to refuse a name. edePrefix marks an extended error as the sandbox's.
const (
	noHostName = "not a host name"
	noNameRule = "no rule of network.allow names it"
	edePrefix  = "sandbox-agent: "
)

type reply struct {
	code  dnsmessage.RCode
	addrs []netip.Addr
	ttl   uint32
	why   string // for an extended error
}

// answer returns the answer to a query; nil if the message is not a query. by identifies the client, or is nil.
func (r *resolver) answer(ctx context.Context, network string, query []byte, by func() string) []byte {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	q, ok := parseQuery(query)
	if !ok {
		return nil
	}
	if q.bad != dnsmessage.RCodeSuccess {
		return q.build(reply{code: q.bad}, network)
	}
	name := workorder.CanonicalHost(q.question.Name.String())
	if a, ok := r.service(name); ok {
		return q.build(reply{addrs: []netip.Addr{a}, ttl: serviceTTL}, network)
	}
	if r.policy.Load().mode == workorder.NetworkFull {
		return r.pass(ctx, network, query)
	}
	return q.build(r.decide(ctx, name, by), network)
}

func (r *resolver) decide(ctx context.Context, name string, by func() string) reply {
	if !workorder.ValidHostName(name) {
		return r.refuse(name, noHostName, "", by)
	}
	hosts := r.lookup.hosts.addresses(name)
	if name == "localhost" || strings.HasSuffix(name, ".localhost") {
		hosts = []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}
	}
	if len(hosts) > 0 &&
		(r.policy.Load().mode == workorder.NetworkNone || !slices.ContainsFunc(hosts, func(a netip.Addr) bool { return !r.local(a) })) {
		return reply{addrs: hosts, ttl: serviceTTL}
	}
	if r.policy.Load().mode == workorder.NetworkNone {
		return r.refuse(name, "network: none", "", by)
	}
	if p := r.policy.Load(); !p.learn && !p.named(name) {
		if r.suffixed(name) {
			return reply{code: dnsmessage.RCodeNameError}
		}
		return r.refuse(name, noNameRule, fix(name, 0), by)
	}
	if r.policy.Load().learn && !r.policy.Load().named(name) && !r.suffixed(name) {
		// Without learning the query alone would be refused.
		r.ledger.note(attempt{host: name, protocol: "dns", verdict: learned, reason: noRule, rule: fix(name, 0), by: by, quiet: true})
	}
	switch _, err := r.lookup.addresses(ctx, name); {
	case errors.Is(err, errNoSuchName):
		return reply{code: dnsmessage.RCodeNameError}
	case err != nil:
		return reply{code: dnsmessage.RCodeServerFailure}
	}
	a := r.pool.address(name)
	if !a.IsValid() {
		return reply{code: dnsmessage.RCodeServerFailure, why: "too many names were queried in this sandbox"}
	}
	return reply{addrs: []netip.Addr{a}, ttl: nameTTL}
}

// suffixed reports whether a client's library appended a search domain. Such names are not reported.
func (r *resolver) suffixed(name string) bool {
	return slices.ContainsFunc(r.search, func(d string) bool { return d != "" && strings.HasSuffix(name, "."+d) })
}

// refuse answers NXDOMAIN: after REFUSED, musl waits for its timeout.
func (r *resolver) refuse(name, reason, rule string, by func() string) reply {
	if !workorder.ValidHostName(name) {
		name = connowner.Clean(name)
	}
	r.ledger.note(attempt{host: name, protocol: "dns", reason: reason, rule: rule, by: by})
	return reply{code: dnsmessage.RCodeNameError, why: edePrefix + reason}
}

// pass forwards the query unchanged to the box's resolvers.
func (r *resolver) pass(ctx context.Context, network string, query []byte) []byte {
	for _, up := range r.lookup.upstream {
		if a, err := exchange(ctx, network, up, query); err == nil {
			return a
		}
	}
	return nil
}

func exchange(ctx context.Context, network string, to netip.AddrPort, q []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTime)
	defer cancel()
	var d net.Dialer
	c, err := d.DialContext(ctx, network, to.String())
	if err != nil {
		return nil, err
	}
	defer c.Close()
	end, _ := ctx.Deadline()
	_ = c.SetDeadline(end)
	if network == "tcp" {
		if err := writeFrame(c, q); err != nil {
			return nil, err
		}
		return readFrame(c)
	}
	if _, err := c.Write(q); err != nil {
		return nil, err
	}
	buf := make([]byte, maxDNSPacket)
	n, err := c.Read(buf)
	return buf[:n], err
}

type query struct {
	header   dnsmessage.Header
	question dnsmessage.Question
	bad      dnsmessage.RCode // the error to answer with
	edns     bool
	size     int // of an answer by UDP
}

// parseQuery reads a query. Responses and malformed messages get no answer.
func parseQuery(b []byte) (query, bool) {
	var p dnsmessage.Parser
	h, err := p.Start(b)
	if err != nil || h.Response {
		return query{}, false
	}
	q := query{header: h, size: plainSize}
	if h.OpCode != 0 {
		q.bad = dnsmessage.RCodeNotImplemented
		return q, true
	}
	all, err := p.AllQuestions()
	if err != nil || len(all) != 1 {
		q.bad = dnsmessage.RCodeFormatError
		return q, true
	}
	q.question = all[0]
	if q.question.Class != dnsmessage.ClassINET {
		q.bad = dnsmessage.RCodeRefused
		return q, true
	}
	if p.SkipAllAnswers() != nil || p.SkipAllAuthorities() != nil {
		return q, true
	}
	for {
		rh, err := p.AdditionalHeader()
		if err != nil {
			return q, true
		}
		if rh.Type == dnsmessage.TypeOPT {
			q.edns = true
			q.size = max(plainSize, min(int(rh.Class), ednsSize))
		}
		if p.SkipAdditional() != nil {
			return q, true
		}
	}
}

// build encodes an answer: addresses for address queries, no records for others.
func (q query) build(r reply, network string) []byte {
	b := dnsmessage.NewBuilder(nil, dnsmessage.Header{
		ID: q.header.ID, Response: true, OpCode: q.header.OpCode, RCode: r.code,
		RecursionDesired: q.header.RecursionDesired, RecursionAvailable: true,
	})
	b.EnableCompression()
	_ = b.StartQuestions()
	if q.question.Name.Length > 0 && b.Question(q.question) != nil {
		return nil
	}
	_ = b.StartAnswers()
	for _, a := range r.addrs {
		h := dnsmessage.ResourceHeader{Name: q.question.Name, Class: dnsmessage.ClassINET, TTL: r.ttl}
		var err error
		switch {
		case a.Is4() && q.question.Type == dnsmessage.TypeA:
			err = b.AResource(h, dnsmessage.AResource{A: a.As4()})
		case a.Is6() && q.question.Type == dnsmessage.TypeAAAA:
			err = b.AAAAResource(h, dnsmessage.AAAAResource{AAAA: a.As16()})
		}
		if err != nil {
			return nil
		}
	}
	if q.edns && q.addOPT(&b, r) != nil {
		return nil
	}
	out, err := b.Finish()
	if err != nil {
		return nil
	}
	if network != "tcp" && len(out) > q.size {
		short := q.build(reply{code: r.code}, network)
		if len(short) > 2 {
			short[2] |= truncatedBit
		}
		return short
	}
	return out
}

func (q query) addOPT(b *dnsmessage.Builder, r reply) error {
	if err := b.StartAdditionals(); err != nil {
		return err
	}
	var h dnsmessage.ResourceHeader
	if err := h.SetEDNS0(ednsSize, r.code, false); err != nil {
		return err
	}
	var opt dnsmessage.OPTResource
	if r.why != "" {
		opt.Options = []dnsmessage.Option{{Code: optionEDE, Data: append([]byte{0, edeProhibited}, r.why...)}}
	}
	return b.OPTResource(h, opt)
}
