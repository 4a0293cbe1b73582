package egress

import (
	"context"
	"io"
	"net"
	"sync/atomic"
	"time"
)

// firstTime is how long the proxy waits for a client's first bytes before it connects, on ports where the server
// may speak first. A client that speaks first does so at once, because its connection to the proxy is on loopback; a slower
// one costs its server an extra connection.
const firstTime = 20 * time.Millisecond

// either serves a port on which client or server may speak first. A rule with this port allows any protocol
// there, but TLS and HTTP must not ask for another host.
func (p *proxy) either(ctx context.Context, c *client, v verdict) (kept bool) {
	if said := c.listen(firstTime); said != speechSilent {
		return p.decide(ctx, c, v, said)
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
		said := recognise(c.read)
		if said == speechUnclear {
			said = c.listen(helloTime)
			_ = c.SetDeadline(time.Time{})
		}
		switch said {
		case speechHTTP:
			s.drop()
			p.web.take(c)
			return true
		case speechTLS:
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
