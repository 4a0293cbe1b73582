package wireclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"sync"
	"time"
)

const (
	// relayTime bounds the connection to a relay. The caller connects to the guest itself after it.
	relayTime = 2 * time.Second
	relayPoll = 5 * time.Second // between two checks that other processes find the relay
	relayPath = "/relay"        // of the relay's document; the guest has no such path
	maxSocket = 90              // bytes of a socket's path, which the kernel limits
)

// Relay serves a client's connection to other processes of this user, over a socket. It needs no cleanup: a relay that was
// killed leaves a socket that refuses connections, and the next relay replaces it.
type Relay struct {
	Path string        // of the socket
	Idle time.Duration // the relay ends after this long without a request
	// Document is what DialRelay returns: it describes the sandbox.
	Document any
}

// RelayPossible reports whether a socket can have this path and no relay serves it.
func RelayPossible(ctx context.Context, path string) bool {
	if len(path) > maxSocket {
		return false
	}
	conn, err := (&net.Dialer{Timeout: relayTime}).DialContext(ctx, "unix", path) // a stopped relay accepts none
	if err != nil {
		return true
	}
	_ = conn.Close() // only the connection was of interest
	return false
}

// DialRelay connects to the guest by the relay at path, and decodes the relay's document.
func DialRelay(ctx context.Context, path string, document any) (*Client, error) {
	short, cancel := context.WithTimeout(ctx, relayTime)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(short, "unix", path)
	if err != nil {
		return nil, err
	}
	c, err := New(short, conn)
	if err == nil {
		if err = c.get(short, relayPath, nil, document); err != nil {
			_ = c.Close() // it is of no use
		}
	}
	if err != nil {
		return nil, fmt.Errorf("connect to the relay: %w", err)
	}
	return c, nil
}

// Serve serves the connection until it ends, ctx ends, nothing has used it for a while, or another relay has its path.
func (r Relay) Serve(ctx context.Context, c *Client) error {
	document, err := json.Marshal(r.Document)
	if err != nil {
		return err
	}
	l, err := r.listen(ctx)
	if err != nil {
		return err
	}
	own, err := os.Lstat(r.Path)
	if err != nil {
		_ = l.Close() // another relay has the path
		return err
	}
	current := func() bool {
		st, err := os.Lstat(r.Path)
		return err == nil && os.SameFile(st, own)
	}
	protocols := &http.Protocols{}
	protocols.SetUnencryptedHTTP2(true)
	u := &usage{last: time.Now()}
	server := &http.Server{
		Protocols: protocols, ReadHeaderTimeout: relayPoll, ErrorLog: log.New(io.Discard, "", 0),
		HTTP2: &http.HTTP2Config{
			MaxReceiveBufferPerConnection: connBuffer, MaxReceiveBufferPerStream: streamBuffer, MaxReadFrameSize: frameSize,
		},
		Handler: u.count(c.proxy(document)),
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	defer func() {
		if current() {
			_ = os.Remove(r.Path) // a socket that stays refuses connections
		}
		_ = server.Close()
	}()
	tick := time.NewTicker(min(relayPoll, max(r.Idle/2, time.Millisecond)))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.over:
			return nil
		case err := <-served:
			return err
		case <-tick.C:
			if u.idle(r.Idle) || !current() && u.idle(0) {
				return nil
			}
		}
	}
}

// listen listens at the path, where another relay may have listened.
func (r Relay) listen(ctx context.Context) (net.Listener, error) {
	first := fmt.Sprintf("%s.%d", r.Path, os.Getpid())
	_ = os.Remove(first) // of a relay that was killed
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", first)
	if err != nil {
		return nil, err
	}
	if u, ok := l.(*net.UnixListener); ok {
		u.SetUnlinkOnClose(false) // the path may be another relay's by then
	}
	if err = errors.Join(os.Chmod(first, 0o600), os.Rename(first, r.Path)); err != nil {
		_, _ = l.Close(), os.Remove(first) // nothing was served
		return nil, err
	}
	return l, nil
}

// proxy passes requests on to the guest, except those for the document.
func (c *Client) proxy(document []byte) http.Handler {
	guest := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host = "http", "guest" },
		Transport:     c.http.Transport,
		FlushInterval: -1, // at once
		ErrorLog:      log.New(io.Discard, "", 0),
		// The caller sees a lost connection, as it would without a relay.
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != relayPath {
			guest.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(document) // the caller sees the lost connection
	})
}

// usage records when requests were last served.
type usage struct {
	mu   sync.Mutex
	now  int
	last time.Time
}

func (u *usage) count(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u.add(1)
		defer u.add(-1)
		h.ServeHTTP(w, r)
	})
}

func (u *usage) add(n int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.now += n
	u.last = time.Now()
}

func (u *usage) idle(limit time.Duration) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.now == 0 && time.Since(u.last) >= limit
}
