// Package guard serves the box's /var/run/docker.sock: it passes only known requests to the inner Docker engine, encoded again.
//
// A refusal does not connect to the engine, because connecting starts it.
package guard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const (
	// maxClients bounds the connections at one time; a large compose project has about a hundred.
	maxClients = 512
	// maxBody bounds a JSON body: the largest that clients send are environments and labels of some 100 KiB.
	maxBody = 4 << 20
	// maxJudged bounds the bodies in memory at one time.
	maxJudged = 16
	// maxHeader leaves room for X-Registry-Config with the credentials of many registries.
	maxHeader = 256 << 10
	// headerTime bounds reading a request's header, bodyTime reading a JSON body.
	headerTime = 10 * time.Second
	bodyTime   = 20 * time.Second
	// idleTime bounds a connection's wait for the client's next request.
	idleTime = 2 * time.Minute
	// closeTime bounds the wait for streams at the end.
	closeTime = 5 * time.Second
)

// Config describes the guard.
type Config struct {
	// Socket is the path that clients connect to; it belongs to root and GID, 0660.
	Socket string
	GID    int
	// Upstream is the engine's own socket, accessible to root only: a bind of it into a container bypasses its directory.
	Upstream string
	// Binds are the directories whose files may be bound into containers.
	Binds []string
	// Mounts is a root-only directory that the guard creates, for the mount points of binds.
	Mounts string
	// Reserved are further addresses that no network of containers may have, such as the git server's. It may be nil.
	Reserved func() []netip.Prefix
	// Starting is called before a container starts, with its published ports, and started after the answer. It may be nil.
	Starting func(id string, ports []string) (started func())
	// By names a client process; if nil, clients are not named.
	By func(pid int) string
	// Refused is called for the first refusal by each rule; it must be safe for concurrent use. It may be nil.
	Refused func(rule, text, by string)
	Log     *slog.Logger
}

// Guard is the proxy. All methods are safe for concurrent use.
type Guard struct {
	cfg    Config
	srv    *http.Server
	proxy  *httputil.ReverseProxy
	judged chan struct{} // slots of maxJudged
	cancel context.CancelFunc
	binds  *bindMounts
	sweeps *sweeper
	swept  sync.WaitGroup
	// streams outlive their requests.
	streams streams

	// Replaced in tests.
	taken   func() ([]netip.Prefix, error)
	makeDir func(root, dir string, who peer) error

	// places maps the directories for binds to their current paths; nil if they are at their own paths.
	places atomic.Pointer[map[string]string]

	mu       sync.Mutex
	refusals map[string]*workorder.Refusal
}

// New returns a guard that does not listen yet.
func New(cfg Config) *Guard {
	g := &Guard{
		cfg: cfg, judged: make(chan struct{}, maxJudged), makeDir: makeDirAs,
		streams: streams{conns: map[net.Conn]struct{}{}}, refusals: map[string]*workorder.Refusal{},
		binds: &bindMounts{dir: cfg.Mounts, system: mounter{prepareBindMounts, putBindMount, clearBindMount}, all: map[string]*bindMount{}},
	}
	g.sweeps = &sweeper{points: g.binds, ask: g.ask, asked: make(chan struct{}, 1), log: cfg.Log}
	g.taken = func() ([]netip.Prefix, error) {
		taken, err := takenByBox()
		if cfg.Reserved != nil {
			taken = append(taken, cfg.Reserved()...)
		}
		return taken, err
	}
	g.proxy = &httputil.ReverseProxy{
		Rewrite:   func(*httputil.ProxyRequest) {}, // the request is ready, see forward
		Transport: g.transport(),
		// Logs, events and progress arrive as they come.
		FlushInterval:  -1,
		ModifyResponse: g.show,
		ErrorHandler:   g.unavailable,
		ErrorLog:       slog.NewLogLogger(cfg.Log.Handler(), slog.LevelDebug),
	}
	return g
}

// transport makes a connection for each request, so that no client's bytes precede another client's.
func (g *Guard) transport() *http.Transport {
	return &http.Transport{
		DialContext:        func(ctx context.Context, _, _ string) (net.Conn, error) { return g.dial(ctx) },
		DisableKeepAlives:  true,
		DisableCompression: true,
	}
}

func (g *Guard) dial(ctx context.Context) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "unix", g.cfg.Upstream)
}

// Listen creates the socket and serves it until Close. When it returns, clients can connect.
func (g *Guard) Listen(ctx context.Context) error {
	ln, err := listen(ctx, g.cfg.Socket, g.cfg.GID)
	if err != nil {
		return err
	}
	base, cancel := context.WithCancel(context.WithoutCancel(ctx))
	g.srv = &http.Server{
		Handler:           g,
		ReadHeaderTimeout: headerTime,
		IdleTimeout:       idleTime,
		MaxHeaderBytes:    maxHeader,
		BaseContext:       func(net.Listener) context.Context { return base },
		ConnContext:       withPeer,
		ErrorLog:          slog.NewLogLogger(g.cfg.Log.Handler(), slog.LevelDebug),
	}
	g.cancel = cancel
	g.swept.Go(func() { g.sweeps.until(base) })
	go func() {
		if err := g.srv.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			g.cfg.Log.Error("the guard of the docker socket ended", "error", err)
		}
	}()
	return nil
}

// listen creates the socket in a directory that only root can enter, and then moves it to its path.
func listen(ctx context.Context, path string, gid int) (net.Listener, error) {
	dir, err := os.MkdirTemp(filepath.Dir(path), ".guard-")
	if err != nil {
		return nil, fmt.Errorf("create docker socket: %w", err)
	}
	defer os.RemoveAll(dir)
	tmp := filepath.Join(dir, "s")
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", tmp)
	if err != nil {
		return nil, fmt.Errorf("create docker socket: %w", err)
	}
	ul, ok := l.(*net.UnixListener)
	if !ok {
		l.Close()
		return nil, fmt.Errorf("create docker socket: got a %T", l)
	}
	ul.SetUnlinkOnClose(false) // its path changes below
	err = errors.Join(os.Chown(tmp, -1, gid), os.Chmod(tmp, 0o660))
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		l.Close()
		return nil, fmt.Errorf("change the group of the docker socket to %d: %w", gid, err)
	}
	return &limited{UnixListener: ul, slots: make(chan struct{}, maxClients), done: make(chan struct{})}, nil
}

// Refusals counts the refusals by rule, the most frequent first.
func (g *Guard) Refusals() []workorder.Refusal {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := make([]workorder.Refusal, 0, len(g.refusals))
	for _, r := range g.refusals {
		out = append(out, *r)
	}
	slices.SortFunc(out, func(a, b workorder.Refusal) int {
		if a.Count != b.Count {
			return int(min(max(b.Count-a.Count, -1), 1))
		}
		return strings.Compare(a.Rule, b.Rule)
	})
	return out
}

// refused counts a refusal. It logs the first, second, fourth and so on of a rule, so that a loop costs little.
func (g *Guard) refused(r *refusal, who peer) {
	said := r.Error()
	g.mu.Lock()
	c := g.refusals[r.rule]
	if c == nil {
		c = &workorder.Refusal{Rule: r.rule, Text: said}
		g.refusals[r.rule] = c
	}
	c.Count++
	n := c.Count
	g.mu.Unlock()
	if n&(n-1) != 0 {
		return
	}
	by := ""
	if g.cfg.By != nil && who.pid > 0 {
		by = g.cfg.By(int(who.pid))
	}
	g.cfg.Log.Warn("refused a docker request", "rule", r.rule, "text", said, "by", by, "times", n)
	if n > 1 {
		return
	}
	g.mu.Lock()
	c.By = by
	g.mu.Unlock()
	if g.cfg.Refused != nil {
		g.cfg.Refused(r.rule, said, by)
	}
}

// Close stops listening, ends every stream and removes the mount points. Running containers keep their binds.
func (g *Guard) Close() {
	if g.srv == nil {
		return
	}
	g.streams.close()
	_ = g.srv.Close()
	g.cancel()
	_ = os.Remove(g.cfg.Socket)
	if !g.streams.wait(closeTime) {
		g.cfg.Log.Warn("streams of the docker socket did not end", "after", closeTime)
	}
	g.swept.Wait()
	if err := g.binds.remove(); err != nil {
		g.cfg.Log.Warn("remove the mount points of binds; they end with the sandbox", "error", err)
	}
}
