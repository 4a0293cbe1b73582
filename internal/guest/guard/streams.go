package guard

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// lingerTime bounds how long a client may keep its side open after the engine has closed its own.
	lingerTime = 5 * time.Second
	// goneEvery is the interval of checks whether a client that has finished sending is gone.
	goneEvery = 500 * time.Millisecond
)

// protocol returns the protocol of the API's stream that r requests, or "". The guard forwards this word, not the client's.
func protocol(r *http.Request) string {
	for _, p := range []string{"tcp", "h2c", "websocket"} {
		if strings.EqualFold(r.Header.Get("Upgrade"), p) {
			return p
		}
	}
	return ""
}

// hijack forwards a request after which the connection is a stream. Later bytes wait until the engine reads no more requests.
func (g *Guard) hijack(w http.ResponseWriter, r *http.Request, req *request) {
	up, err := g.dial(r.Context())
	if err != nil {
		g.unavailable(w, r, err)
		return
	}
	defer up.Close()
	stop := context.AfterFunc(r.Context(), func() { up.Close() })
	defer stop()
	out := req.outgoing(r)
	proto := protocol(r)
	if proto != "" {
		out.Header.Set("Connection", "Upgrade")
		out.Header.Set("Upgrade", proto)
	}
	if err := out.Write(up); err != nil {
		g.unavailable(w, r, err)
		return
	}
	from := bufio.NewReader(up)
	resp, err := http.ReadResponse(from, out)
	if err != nil {
		g.unavailable(w, r, err)
		return
	}
	defer resp.Body.Close()
	if !isStream(resp, proto) {
		for k, v := range resp.Header {
			if k != "Connection" && k != "Upgrade" {
				w.Header()[k] = v
			}
		}
		w.WriteHeader(resp.StatusCode)
		_, _ = io.Copy(w, resp.Body)
		return
	}
	conn, buf, err := http.NewResponseController(w).Hijack()
	if err != nil {
		g.unavailable(w, r, err)
		return
	}
	defer conn.Close()
	if !g.streams.hold(conn, up) {
		return
	}
	defer g.streams.drop(conn, up)
	stop() // the request's context does not apply to a stream
	if conn.SetDeadline(time.Time{}) != nil || writeHead(conn, resp) != nil {
		return
	}
	pump(pair{conn, buf.Reader}, pair{up, from})
}

// isStream reports whether the engine switched protocols, or began an answer that only the connection's end delimits.
func isStream(resp *http.Response, proto string) bool {
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return proto != ""
	}
	return resp.StatusCode == http.StatusOK && proto == "" && resp.ContentLength < 0 && len(resp.TransferEncoding) == 0 &&
		strings.HasPrefix(resp.Header.Get("Content-Type"), "application/vnd.docker.")
}

func writeHead(w io.Writer, resp *http.Response) error {
	b := bufio.NewWriter(w)
	fmt.Fprintf(b, "HTTP/1.1 %s\r\n", resp.Status)
	if err := resp.Header.Write(b); err != nil {
		return err
	}
	if _, err := b.WriteString("\r\n"); err != nil {
		return err
	}
	return b.Flush()
}

// pair is a connection and the reader that may hold some of its bytes already.
type pair struct {
	net.Conn
	from *bufio.Reader
}

// pump copies both ways until both sides have finished, or one is gone.
func pump(client, engine pair) {
	up, down := make(chan error, 1), make(chan error, 1)
	go func() { up <- copyStream(engine, client) }()
	go func() { down <- copyStream(client, engine) }()
	defer func() {
		// Goroutines that still copy end now.
		client.Close()
		engine.Close()
	}()
	var look <-chan time.Time
	for {
		select {
		case err := <-up:
			if err != nil || down == nil || gone(client.Conn) {
				return
			}
			t := time.NewTicker(goneEvery)
			defer t.Stop()
			look, up = t.C, nil
		case <-look:
			if gone(client.Conn) {
				return
			}
		case err := <-down:
			end := time.Now().Add(lingerTime)
			if err != nil || up == nil || client.SetReadDeadline(end) != nil || engine.SetWriteDeadline(end) != nil {
				return
			}
			down = nil
		}
	}
}

func copyStream(to, from pair) error {
	if _, err := io.CopyN(to.Conn, from.from, int64(from.from.Buffered())); err != nil {
		return err
	}
	if _, err := io.Copy(to.Conn, from.Conn); err != nil {
		return err
	}
	if c, ok := to.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return to.Close()
}

type peer struct {
	pid      int32
	uid, gid uint32
}

type peerKey struct{}

func withPeer(ctx context.Context, c net.Conn) context.Context {
	if l, ok := c.(*client); ok {
		return context.WithValue(ctx, peerKey{}, peerOf(l.UnixConn))
	}
	return ctx
}

func peerFrom(ctx context.Context) peer {
	p, ok := ctx.Value(peerKey{}).(peer)
	if !ok {
		return noPeer
	}
	return p
}

// noPeer has no special rights on any file.
var noPeer = peer{uid: 65534, gid: 65534}

func peerOf(c *net.UnixConn) peer {
	p := noPeer
	rc, err := c.SyscallConn()
	if err != nil {
		return p
	}
	_ = rc.Control(func(fd uintptr) {
		if u, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			p = peer{u.Pid, u.Uid, u.Gid}
		}
	})
	return p
}

type limited struct {
	*net.UnixListener
	slots chan struct{}
	done  chan struct{}
	once  sync.Once
}

func (l *limited) Accept() (net.Conn, error) {
	select {
	case l.slots <- struct{}{}:
	case <-l.done:
		return nil, net.ErrClosed
	}
	c, err := l.AcceptUnix()
	if err != nil {
		<-l.slots
		return nil, err
	}
	return &client{UnixConn: c, release: func() { <-l.slots }}, nil
}

func (l *limited) Close() error {
	l.once.Do(func() { close(l.done) })
	return l.UnixListener.Close()
}

type client struct {
	*net.UnixConn
	release func()
	once    sync.Once
}

func (c *client) Close() error {
	err := c.UnixConn.Close()
	c.once.Do(c.release)
	return err
}

// gone reports whether the client has closed both directions, not only finished sending.
func gone(c net.Conn) bool {
	s, ok := c.(syscall.Conn)
	if !ok {
		return false
	}
	rc, err := s.SyscallConn()
	if err != nil {
		return true // closed by ourselves
	}
	hangup := false
	err = rc.Control(func(fd uintptr) {
		p := []unix.PollFd{{Fd: int32(fd)}}
		n, err := unix.Poll(p, 0)
		hangup = err == nil && n > 0 && p[0].Revents&(unix.POLLHUP|unix.POLLERR|unix.POLLNVAL) != 0
	})
	return err != nil || hangup
}

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
