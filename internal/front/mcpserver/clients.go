package mcpserver

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// leaveTime is what the sessions of a client that is gone have to end: what is left then ends without signs of life.
const leaveTime = 10 * time.Second

// errGone is the end of a call whose client has ended its session, or whose server ends.
var errGone = errors.New("the client's session is over")

type client struct {
	id string // "" on standard input and output

	mu    sync.Mutex
	over  bool
	calls map[*int]context.CancelCauseFunc
}

func (s *Server) client(ctx context.Context, ss *mcp.ServerSession) *client {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.clients[ss]; c != nil {
		return c
	}
	c := &client{id: ss.ID(), over: s.over, calls: map[*int]context.CancelCauseFunc{}}
	s.clients[ss] = c
	s.work.Go(func() {
		_ = ss.Wait() // how it went does not matter; its calls have ended
		s.mu.Lock()
		delete(s.clients, ss)
		delete(s.current, c.id)
		s.mu.Unlock()
		if s.o.Runner == nil {
			return
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTime)
		defer cancel()
		s.o.Runner.EndClient(ctx, c.id)
	})
	return c
}

// begin is the context of a call, until done.
func (c *client) begin(ctx context.Context) (_ context.Context, done func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		cancel(errGone)
	}
	call := new(int)
	c.calls[call] = cancel
	return ctx, func() {
		c.mu.Lock()
		delete(c.calls, call)
		c.mu.Unlock()
		cancel(nil)
	}
}

// end ends its calls, and those to come.
func (c *client) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	for _, cancel := range c.calls {
		cancel(errGone)
	}
}

// end ends the calls of all clients: a session ends only when its calls have.
func (s *Server) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	for _, c := range s.clients {
		c.end()
	}
}

// leave ends the calls of the client of an ID.
func (s *Server) leave(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.clients {
		if c.id == id {
			c.end()
		}
	}
}
