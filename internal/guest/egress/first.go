package egress

import (
	"context"
	"io"
	"net"
	"sync/atomic"
	"time"
)

// firstTime is how long the proxy waits for a client's first bytes before it connects, on ports where the server
// may speak first. A client that speaks first does so at once, since its connection to us is on loopback; one that is
// slower costs its server a connection more.
const firstTime = 20 * time.Millisecond

// either serves a port on which client or server may speak first: by the rule's own port any protocol may be spoken
// there, and still TLS and HTTP must not ask for another host.
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
	if err != nil && err != io.EOF { //nolint:errorlint // as Read gives it
		reset(up)
		reset(c.TCPConn)
	}
	_ = up.CloseWrite()
	<-s.done
	up.Close()
	return false
}

// serverSide copies what a server says to its client.
type serverSide struct {
	c, up *net.TCPConn
	// spoke: the server was first, so what the client says is no request for a host.
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
	if err != nil && err != io.EOF { //nolint:errorlint // as Read gives it
		reset(s.c)
		reset(s.up)
		return
	}
	_ = s.c.CloseWrite()
}

// drop ends the connection to the server, of which the client has seen nothing.
func (s *serverSide) drop() {
	s.dropped.Store(true)
	reset(s.up)
	<-s.done
}
