package sshserver

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

// Bounds of what clients can make the gateway hold.
const (
	// maxPending are connections whose client is not known yet. One more ends another: see victim. A process of this
	// machine makes some thousands in a second, so that a client has a tenth of a second for its first line.
	maxPending = 512
	// maxClients are those that are known.
	maxClients = 256
	// maxChannels are the sessions and forwarded connections of one client.
	maxChannels = 128
	// maxTries are keys that one connection can show: as many as OpenSSH's server takes.
	maxTries = 6
	// handshakeTime is for a client on a slow line.
	handshakeTime = 20 * time.Second
	// aliveEvery is how often a quiet client is asked whether it is there, and aliveTime how long it has to answer.
	aliveEvery = 30 * time.Second
	aliveTime  = time.Minute
	// acceptPause is a wait for a machine that has no descriptor left.
	acceptPause = 50 * time.Millisecond
)

// errFull is why a connection of a known client is closed at once.
var errFull = errors.New("there are as many clients as the gateway serves")

// Options are what a Server needs.
type Options struct {
	HostKey ssh.Signer
	// Keys returns the keys that may connect. It is called for each connection, so that a removed key is refused at once.
	Keys      func() ([]ssh.PublicKey, error)
	Sandboxes Sandboxes
	Log       *slog.Logger
}

// Server serves SSH clients.
type Server struct {
	o        Options
	patience time.Duration
	mu       sync.Mutex
	pending  *list.List // of *stranger, the oldest first
	clients  int
}

// New makes a Server.
func New(o Options) *Server { return &Server{o: o, patience: handshakeTime, pending: list.New()} }

// Serve serves all who connect, until ctx ends; then it closes the listener and all connections, and returns when they are done.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	var all sync.WaitGroup
	defer all.Wait()
	for {
		conn, err := l.Accept()
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed):
			return err
		default: // a client that went away, or too many open files
			time.Sleep(acceptPause)
			continue
		}
		pending := s.pend(conn) // in the order in which they came
		all.Go(func() { s.stranger(ctx, conn, pending) })
	}
}

type stranger struct {
	net.Conn
	s       *Server
	peer    string // its address, without the port
	greeted bool   // it has sent something; the lock is the server's
	first   sync.Once
}

// Read notes that the client has sent something.
func (c *stranger) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.first.Do(func() {
			c.s.mu.Lock()
			defer c.s.mu.Unlock()
			c.greeted = true
		})
	}
	return n, err
}

// pend admits a stranger, in place of another one where there are too many.
func (s *Server) pend(conn net.Conn) *list.Element {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pending.Len() >= maxPending {
		v := s.victim()
		_ = s.pending.Remove(v).(*stranger).Close()
	}
	peer, _, err := net.SplitHostPort(conn.RemoteAddr().String())
	if err != nil {
		peer = conn.RemoteAddr().String()
	}
	return s.pending.PushBack(&stranger{Conn: conn, s: s, peer: peer})
}

// victim is the stranger who makes room: one who has sent nothing before one who has, and of these the oldest of the
// peer that has most. The lock is the caller's.
func (s *Server) victim() *list.Element {
	type class struct {
		greeted bool
		peer    string
	}
	sizes, oldest := map[class]int{}, map[class]*list.Element{}
	var worst class
	for e := s.pending.Front(); e != nil; e = e.Next() {
		x := e.Value.(*stranger)
		c := class{x.greeted, x.peer}
		if sizes[c]++; oldest[c] == nil {
			oldest[c] = e
		}
		if sizes[worst] == 0 || worst.greeted && !c.greeted || worst.greeted == c.greeted && sizes[c] > sizes[worst] {
			worst = c
		}
	}
	return oldest[worst]
}

func (s *Server) stranger(ctx context.Context, conn net.Conn, pending *list.Element) {
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	known := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.pending.Remove(pending) // nothing, if it is there no more
	}
	defer known()
	config := s.config()
	config.PublicKeyCallback = s.authorized
	_ = conn.SetDeadline(time.Now().Add(s.patience))
	sc, channels, requests, err := ssh.NewServerConn(pending.Value.(*stranger), config)
	if err != nil {
		s.o.Log.Debug("no client", "from", conn.RemoteAddr().String(), "error", err)
		return
	}
	_ = conn.SetDeadline(time.Time{})
	known()
	if err := s.enter(); err != nil {
		s.o.Log.Warn("client refused", "from", conn.RemoteAddr().String(), "error", err)
		return
	}
	defer s.leave()
	s.o.Log.Info("client", "from", conn.RemoteAddr().String(), "key", sc.Permissions.Extensions[fingerprint])
	s.client(ctx, sc, "", channels, requests)
}

// ServeKnown serves one client that is known by its connection, and to whom all is one sandbox. It returns when the client has gone.
func (s *Server) ServeKnown(ctx context.Context, conn net.Conn, sandbox string) error {
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	config := s.config()
	config.NoClientAuth = true
	sc, channels, requests, err := ssh.NewServerConn(conn, config)
	if err != nil {
		return fmt.Errorf("greet the SSH client: %w", err)
	}
	s.client(ctx, sc, sandbox, channels, requests)
	return nil
}

func (s *Server) config() *ssh.ServerConfig {
	c := &ssh.ServerConfig{MaxAuthTries: maxTries, ServerVersion: "SSH-2.0-sandbox-agent"}
	c.AddHostKey(s.o.HostKey)
	return c
}

func (s *Server) enter() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.clients >= maxClients {
		return errFull
	}
	s.clients++
	return nil
}

func (s *Server) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clients--
}

// client serves a client that is known, until it goes away.
func (s *Server) client(ctx context.Context, sc *ssh.ServerConn, only string, channels <-chan ssh.NewChannel,
	requests <-chan *ssh.Request,
) {
	ctx, cancel := context.WithCancel(ctx)
	c := &client{s: s, only: only, user: sc.User(), used: map[string]Sandbox{}}
	var all sync.WaitGroup
	defer func() {
		cancel()
		all.Wait()
		c.close(context.WithoutCancel(ctx))
	}()
	defer sc.Close()
	all.Go(func() { ssh.DiscardRequests(requests) }) // ports of this machine for the sandbox (ssh -R) among them
	all.Go(func() { stayAlive(ctx, sc) })
	room := make(chan struct{}, maxChannels)
	for n := range channels {
		serve := c.kinds()[n.ChannelType()]
		if serve == nil {
			_ = n.Reject(ssh.UnknownChannelType, "the gateway has sessions and connections to ports")
			continue
		}
		select {
		case room <- struct{}{}:
		default:
			_ = n.Reject(ssh.ResourceShortage, "there are too many channels")
			continue
		}
		all.Go(func() {
			defer func() { <-room }()
			serve(ctx, n)
		})
	}
}

// stayAlive ends the connection of a client that does not answer.
func stayAlive(ctx context.Context, sc *ssh.ServerConn) {
	for range proc.Ticks(ctx.Done(), aliveEvery) {
		late := time.AfterFunc(aliveTime, func() { _ = sc.Close() })
		_, _, err := sc.SendRequest("keepalive@openssh.com", true, nil)
		late.Stop()
		if err != nil {
			return
		}
	}
}
