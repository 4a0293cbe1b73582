package dockerd

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"
)

const (
	// dnsTimeout is what a query over TCP may take to arrive, twice; clients give up after 5 s.
	dnsTimeout = 2 * time.Second
	dnsPacket  = 64 << 10
	// dnsParallel bounds the queries in flight: a flood waits instead of eating memory.
	dnsParallel = 256
	dnsTTL      = 5 // seconds: names come and go with services
)

// resolver answers inner containers: the names of services itself, everything
// else by what the network policy says. Without it containers on the default bridge would
// not know the services, and a box whose resolver is on loopback would silently
// give them a public one.
type resolver struct {
	forward func(ctx context.Context, network string, query []byte) []byte
	udp     net.PacketConn
	tcp     net.Listener
	slots   chan struct{}

	mu    sync.RWMutex
	names map[string]netip.Addr
}

// listenDNS opens the resolver on addr, which need not exist yet: the bridge
// that will carry it is made by the daemon, which wants to know the resolver before.
func listenDNS(ctx context.Context, addr netip.Addr, port uint16, forward func(context.Context, string, []byte) []byte) (*resolver, error) {
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var serr error
		err := c.Control(func(fd uintptr) { serr = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_FREEBIND, 1) })
		return errors.Join(err, serr)
	}}
	r := &resolver{forward: forward, slots: make(chan struct{}, dnsParallel), names: map[string]netip.Addr{}}
	var err error
	if r.udp, err = lc.ListenPacket(ctx, "udp4", netip.AddrPortFrom(addr, port).String()); err != nil {
		return nil, fmt.Errorf("open resolver for inner containers: %w", err)
	}
	if r.tcp, err = lc.Listen(ctx, "tcp4", r.udp.LocalAddr().String()); err != nil {
		r.udp.Close()
		return nil, fmt.Errorf("open resolver for inner containers: %w", err)
	}
	go r.serveUDP(ctx)
	go r.serveTCP(ctx)
	return r, nil
}

func (r *resolver) close() {
	r.udp.Close()
	r.tcp.Close()
}

func (r *resolver) set(names map[string]netip.Addr) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for n, a := range names {
		r.names[strings.ToLower(n)] = a
	}
}

func (r *resolver) serveUDP(ctx context.Context) {
	buf := make([]byte, dnsPacket)
	for {
		n, from, err := r.udp.ReadFrom(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // an ICMP error of an earlier answer
		}
		q := append([]byte(nil), buf[:n]...)
		r.slots <- struct{}{}
		go func() {
			defer func() { <-r.slots }()
			if a := r.answer(ctx, "udp", q); a != nil {
				_, _ = r.udp.WriteTo(a, from) // the client asks again
			}
		}()
	}
}

func (r *resolver) serveTCP(ctx context.Context) {
	for {
		c, err := r.tcp.Accept()
		if err != nil {
			return
		}
		r.slots <- struct{}{}
		go func() {
			defer func() { c.Close(); <-r.slots }()
			_ = c.SetDeadline(time.Now().Add(2 * dnsTimeout))
			for {
				q, err := readFrame(c)
				if err != nil {
					return
				}
				a := r.answer(ctx, "tcp", q)
				if a == nil || writeFrame(c, a) != nil {
					return
				}
			}
		}()
	}
}

// answer is the answer to q, nil when there is none.
func (r *resolver) answer(ctx context.Context, network string, q []byte) []byte {
	if a := r.own(q); a != nil {
		return a
	}
	return r.forward(ctx, network, q)
}

// own answers for the services: A with the address, anything else with nothing.
func (r *resolver) own(q []byte) []byte {
	var p dnsmessage.Parser
	h, err := p.Start(q)
	if err != nil || h.Response {
		return nil
	}
	question, err := p.Question()
	if err != nil {
		return nil
	}
	r.mu.RLock()
	addr, ok := r.names[strings.ToLower(strings.TrimSuffix(question.Name.String(), "."))]
	r.mu.RUnlock()
	if !ok {
		return nil
	}
	b := dnsmessage.NewBuilder(nil, dnsmessage.Header{
		ID: h.ID, Response: true, Authoritative: true, RecursionDesired: h.RecursionDesired, RecursionAvailable: true,
	})
	b.EnableCompression()
	if b.StartQuestions() != nil || b.Question(question) != nil || b.StartAnswers() != nil {
		return nil
	}
	if question.Type == dnsmessage.TypeA {
		rh := dnsmessage.ResourceHeader{Name: question.Name, Class: dnsmessage.ClassINET, TTL: dnsTTL}
		if b.AResource(rh, dnsmessage.AResource{A: addr.As4()}) != nil {
			return nil
		}
	}
	a, err := b.Finish()
	if err != nil {
		return nil
	}
	return a
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
