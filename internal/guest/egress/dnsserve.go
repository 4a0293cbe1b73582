package egress

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"
)

const (
	maxDNSPacket = 64 << 10
	// dnsParallel bounds the concurrent queries of each socket; more
	// wait in the kernel or are repeated by their clients.
	dnsParallel = 256
	// dnsIdle is a connection's longest wait for its next query.
	dnsIdle = 10 * time.Second
	// dnsLife is how long a connection is served, so that persistent clients leave room for others.
	dnsLife = 2 * time.Minute
)

// packets reads and writes datagrams together with the box's local address of each:
// the answer has to come from the address that the query went to, or the kernel does not match it with
// a redirected query.
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

// ServeDNS opens the resolver at an IPv4 address of an inner network, which need not
// exist yet, until Close. Containers on the default bridge use it: otherwise they could not resolve
// the services, and in a box whose resolver is on loopback they would silently get a public resolver.
// In mode full it passes names other than services upstream. It does nothing if it already serves.
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

// asker identifies the process that sent a query, on demand.
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
