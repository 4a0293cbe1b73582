package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/netutil"
)

const (
	// refreshEvery is the allowed age of the mirror: one git command asks
	// for the refs once or twice within a moment.
	refreshEvery = 2 * time.Second
	// refreshTime bounds the fetch from the remote.
	refreshTime = 5 * time.Minute
	// headerTime bounds the reading of a request's header.
	headerTime = 10 * time.Second

	prefix = "/origin"
)

// Git serves the mirror of the task's remote on loopback.
type Git struct {
	Remote  string // the remote's URL, as the agent uses it
	Mirror  string // bare repository
	Refresh func(context.Context) error
	Log     *slog.Logger

	bounds gitBounds // zero for the constants
	slots  chan struct{}

	mu      sync.Mutex
	only    string // path served in place of Mirror, without refresh; empty for none
	fetched time.Time
	flight  *flight // nil if no fetch is under way
	box     context.Context
	stop    context.CancelFunc
	srv     *http.Server
}

// flight is one fetch, shared by all requests that wait for it.
type flight struct {
	done chan struct{}
	err  error // valid once done is closed
}

// Start listens on a free loopback port and returns the base URL that replaces
// Remote. Stop must be called.
func (g *Git) Start(ctx context.Context) (string, error) {
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("start git gateway: %w", err)
	}
	g.fetched = time.Now() // the clone has just been made
	g.box, g.stop = context.WithCancel(ctx)
	g.bound()
	g.srv = &http.Server{
		Handler: g, ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, MaxHeaderBytes: maxGitHeader,
		BaseContext: func(net.Listener) context.Context { return g.box },
	}
	limited := netutil.LimitListener(ln, g.bounds.conns)
	go func() {
		if err := g.srv.Serve(limited); !errors.Is(err, http.ErrServerClosed) {
			g.Log.Error("git gateway ended", "error", err)
		}
	}()
	return "http://" + ln.Addr().String() + prefix, nil
}

// Stop ends the gateway and any fetch under way.
func (g *Git) Stop() {
	if g.srv == nil {
		return
	}
	g.stop()
	_ = g.srv.Close()
	g.mu.Lock()
	f := g.flight
	g.mu.Unlock()
	if f == nil {
		return
	}
	t := time.NewTimer(stopTime)
	defer t.Stop()
	select {
	case <-f.done:
	case <-t.C:
	}
}

const pushRefused = "pushes are made by the sandbox, not by the agent: commit your work, and it is pushed to the task's branch for you\n"

func (g *Git) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	rest, ok := strings.CutPrefix(r.URL.Path, prefix)
	if !ok {
		http.NotFound(w, r)
		return
	}
	rest = strings.TrimPrefix(strings.TrimPrefix(rest, ".git"), "/")
	switch {
	case r.URL.Query().Get("service") == "git-receive-pack" || strings.HasSuffix(rest, "git-receive-pack"):
		http.Error(w, pushRefused, http.StatusForbidden)
	case r.Method == http.MethodGet && rest == "info/refs" && r.URL.Query().Get("service") == "git-upload-pack":
		g.refs(w, r)
	case r.Method == http.MethodPost && rest == "git-upload-pack":
		g.uploadPack(w, r)
	case !strings.HasPrefix(r.URL.Path, prefix+"/") && r.Method == http.MethodGet && strings.HasPrefix(g.Remote, "http"):
		// Another repository whose URL has the remote's as a prefix: git's insteadOf
		// matches prefixes. Redirect it to its own server, without a credential.
		http.Redirect(w, r, g.Remote+strings.TrimPrefix(r.URL.RequestURI(), prefix), http.StatusFound)
	default:
		http.Error(w, "only `git fetch` from the task's own remote is possible here\n", http.StatusForbidden)
	}
}

func (g *Git) refs(w http.ResponseWriter, r *http.Request) {
	if err := g.refresh(r.Context()); err != nil {
		if r.Context().Err() != nil {
			return // the client has gone
		}
		g.Log.Warn("fetch for the agent", "error", err)
		http.Error(w, fmt.Sprintf("the sandbox could not fetch from %s: %v\n", g.Remote, err), http.StatusBadGateway)
		return
	}
	g.serve(w, r, func(out *patient) error {
		w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
		w.Header().Set("Cache-Control", "no-cache")
		if !strings.Contains(r.Header.Get("Git-Protocol"), "version=2") {
			_, _ = io.WriteString(out, "001e# service=git-upload-pack\n0000") // an error means that the client has gone
		}
		return g.run(r, nil, out, "--advertise-refs")
	})
}

// protocol returns the client's protocol version if it is a valid one.
func protocol(r *http.Request) string {
	switch v := r.Header.Get("Git-Protocol"); v {
	case "version=1", "version=2":
		return v
	}
	return ""
}

// Only serves another bare repository, without refresh, until back is called. An answer that has begun continues; the caller
// has to end processes that must not see it.
func (g *Git) Only(repository string) (back func()) {
	set := func(to string) {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.only = to
	}
	set(repository)
	return func() { set("") }
}

// repository is the repository that is served now.
func (g *Git) repository() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return cmp.Or(g.only, g.Mirror)
}

// refresh waits until the mirror is fresh. All waiting requests share one fetch. The fetch belongs to the box, so that
// the first client may go away; each request waits as long as its context allows.
func (g *Git) refresh(ctx context.Context) error {
	g.mu.Lock()
	if g.only != "" || g.flight == nil && time.Since(g.fetched) < refreshEvery {
		g.mu.Unlock()
		return nil
	}
	if g.flight == nil {
		g.flight = &flight{done: make(chan struct{})}
		go g.fetch(g.flight)
	}
	f := g.flight
	g.mu.Unlock()
	select {
	case <-f.done:
		return f.err
	case <-ctx.Done():
		return fmt.Errorf("wait for the fetch from %s: %w", g.Remote, ctx.Err())
	}
}

func (g *Git) fetch(f *flight) {
	ctx, cancel := context.WithTimeout(g.box, refreshTime)
	defer cancel()
	f.err = g.Refresh(ctx)
	g.mu.Lock()
	defer g.mu.Unlock()
	if f.err == nil {
		g.fetched = time.Now()
	}
	g.flight = nil
	close(f.done)
}
