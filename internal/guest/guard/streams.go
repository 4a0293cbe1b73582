package guard

import (
	"net"
	"sync"
	"time"
)

// streams are the connections that carry streams, so that Close can end them. It is safe for concurrent use.
type streams struct {
	mu     sync.Mutex
	closed bool
	conns  map[net.Conn]struct{}
	pumps  sync.WaitGroup
}

// hold keeps connections for close; it reports whether the guard is still open.
func (s *streams) hold(conns ...net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.pumps.Add(1)
	for _, c := range conns {
		s.conns[c] = struct{}{}
	}
	return true
}

func (s *streams) drop(conns ...net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range conns {
		delete(s.conns, c)
	}
	s.pumps.Done()
}

// close ends all streams and takes no more.
func (s *streams) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for c := range s.conns {
		_ = c.Close()
	}
}

// wait reports whether the streams have ended within limit.
func (s *streams) wait(limit time.Duration) bool {
	done := make(chan struct{})
	go func() {
		s.pumps.Wait()
		close(done)
	}()
	select {
	case <-done:
		return true
	case <-time.After(limit):
		return false
	}
}
