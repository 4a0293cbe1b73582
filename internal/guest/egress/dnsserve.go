package egress

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"time"

	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
)

const (
	maxDNSPacket = 64 << 10
	// dnsParallel bounds the questions that are worked on at one time, for each way in; more
	// wait in the kernel or are asked again.
	dnsParallel = 256
	// dnsIdle is how long a connection may wait for its next question.
	dnsIdle = 10 * time.Second
)

// packets reads and writes datagrams together with the box's own address of each:
// the answer has to leave from the address at which the question arrived, or the kernel does not recognise it as
// the answer to a redirected question.
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

func (e *Egress) serveUDP(ctx context.Context, p packets) {
	slots := make(chan struct{}, dnsParallel)
	buf := make([]byte, maxDNSPacket)
	for {
		n, own, from, err := p.read(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // an ICMP error of an earlier answer
		}
		q := append([]byte(nil), buf[:n]...)
		slots <- struct{}{}
		go func() {
			defer func() { <-slots }()
			if a := e.resolver.answer(ctx, "udp", q, e.asker("udp", from)); a != nil {
				_ = p.write(a, own, from) // the client asks again
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
			for {
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

// asker finds who sent a question, when somebody wants to know.
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
