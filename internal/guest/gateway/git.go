package gateway

import (
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/net/netutil"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

const (
	// refreshEvery is the allowed age of the mirror: one git command asks for the refs once or twice within a moment.
	refreshEvery = 2 * time.Second
	refreshTime  = 5 * time.Minute
	headerTime   = 10 * time.Second

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

// Start listens on a free loopback port and returns the base URL that replaces Remote. Stop must be called.
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
		// Another repository whose URL has the remote's as a prefix, which git's insteadOf matches: redirect it without
		// a credential.
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

// Only serves another bare repository, without refresh, until back is called. An answer that has begun continues.
func (g *Git) Only(repository string) (back func()) {
	set := func(to string) {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.only = to
	}
	set(repository)
	return func() { set("") }
}

func (g *Git) repository() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return cmp.Or(g.only, g.Mirror)
}

// refresh waits until the mirror is fresh. All waiting requests share one fetch, which survives its first client.
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

// Limits of the git gateway: it runs in boot, and its processes are root's.
const (
	// maxServed bounds the git processes at one time. A clone with submodules and an agent's few worktrees need several.
	maxServed = 8
	// servedWait bounds a request's wait for a process. A refused client may retry after servedAgain.
	servedWait  = 15 * time.Second
	servedAgain = 10 * time.Second
	// maxGitConns bounds the connections at one time; further ones wait in the kernel.
	maxGitConns = 64
	// maxGitHeader bounds a request's header, in bytes: git sends a few hundred.
	maxGitHeader = 32 << 10
	// maxGitBody bounds a request's body, in bytes, packed or unpacked: 50 for each of some 300,000 refs.
	maxGitBody  = 16 << 20
	gitBodyTime = time.Minute
	// gitRunTime bounds one answer: a clone of gigabytes takes minutes.
	gitRunTime   = 30 * time.Minute
	gitWriteTime = 2 * time.Minute
)

// gitBounds are the limits that tests shorten.
type gitBounds struct {
	served, conns          int
	wait, body, run, write time.Duration
}

func (g *Git) bound() {
	if g.bounds == (gitBounds{}) {
		g.bounds = gitBounds{maxServed, maxGitConns, servedWait, gitBodyTime, gitRunTime, gitWriteTime}
	}
	g.slots = make(chan struct{}, g.bounds.served)
}

// slot waits for a free process slot. It returns false if the wait or the context ends first.
func (g *Git) slot(ctx context.Context) bool {
	t := time.NewTimer(g.bounds.wait)
	defer t.Stop()
	select {
	case g.slots <- struct{}{}:
		return true
	case <-t.C:
	case <-ctx.Done():
	}
	return false
}

// serve lets do write the answer, within all limits.
func (g *Git) serve(w http.ResponseWriter, r *http.Request, do func(*patient) error) {
	if !g.slot(r.Context()) {
		w.Header().Set("Retry-After", strconv.Itoa(int(servedAgain.Seconds())))
		http.Error(w, "too many git commands read from the remote at the same time: try again\n", http.StatusServiceUnavailable)
		return
	}
	defer func() { <-g.slots }()
	out := &patient{w: w, conn: http.NewResponseController(w), time: g.bounds.write}
	err := do(out)
	if err == nil {
		return
	}
	_ = out.conn.SetReadDeadline(time.Now()) // do not read the rest of the request
	_, large := errors.AsType[*http.MaxBytesError](err)
	switch {
	case out.wrote: // the client must not take the part it has for the whole answer
		g.Log.Warn("serve git to the agent", "error", err)
		panic(http.ErrAbortHandler)
	case errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, gzip.ErrHeader):
		http.Error(w, "the request is incomplete or malformed\n", http.StatusBadRequest)
	case large:
		http.Error(w, "the request is too large for a git command\n", http.StatusRequestEntityTooLarge)
	default:
		g.Log.Warn("serve git to the agent", "error", err)
		http.Error(w, "the sandbox could not serve this git command\n", http.StatusInternalServerError)
	}
}

func (g *Git) uploadPack(w http.ResponseWriter, r *http.Request) {
	g.serve(w, r, func(out *patient) error {
		body, err := g.body(w, r)
		if err != nil {
			return err
		}
		w.Header().Set("Content-Type", "application/x-git-upload-pack-result")
		// git may end before the whole request was read. The rest is then not read, and the server ends the connection.
		w.Header().Set("Connection", "close")
		w.Header().Set("Cache-Control", "no-cache")
		return g.run(r, body, out)
	})
}

// body returns the request's body, bounded in time and, packed as well as unpacked, in size.
func (g *Git) body(w http.ResponseWriter, r *http.Request) (io.Reader, error) {
	conn := http.NewResponseController(w)
	if err := conn.SetReadDeadline(time.Now().Add(g.bounds.body)); err != nil {
		return nil, err
	}
	// The deadline is lifted at the body's end: a later expiry would look to the server like the client's end.
	var in io.Reader = timed{http.MaxBytesReader(w, r.Body, maxGitBody), conn}
	if r.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(in)
		if err != nil {
			return nil, err
		}
		in = http.MaxBytesReader(w, z, maxGitBody)
	}
	return in, nil
}

// timed lifts the read deadline at the end of the body.
type timed struct {
	io.Reader
	conn *http.ResponseController
}

func (t timed) Read(b []byte) (int, error) {
	n, err := t.Reader.Read(b)
	if errors.Is(err, io.EOF) {
		_ = t.conn.SetReadDeadline(time.Time{})
	}
	return n, err
}

// patient sets a write deadline for each piece of an answer.
type patient struct {
	w     http.ResponseWriter
	conn  *http.ResponseController
	time  time.Duration
	wrote bool
}

func (p *patient) Write(b []byte) (int, error) {
	p.wrote = true
	if err := p.conn.SetWriteDeadline(time.Now().Add(p.time)); err != nil {
		return 0, err
	}
	return p.w.Write(b)
}

func (g *Git) run(r *http.Request, body io.Reader, out *patient, opts ...string) error {
	ctx, cancel := context.WithTimeout(r.Context(), g.bounds.run)
	defer cancel()
	argv := append([]string{"git", "-c", "uploadpack.allowFilter=true", "upload-pack", "--stateless-rpc"}, opts...)
	in, fed, err := feed(body)
	if err != nil {
		return err
	}
	tail := proc.NewTail(1 << 10)
	dir := g.repository()
	err = proc.Run(ctx, proc.Spec{
		Argv: append(argv, dir), Stdin: in, Stdout: out, Stderr: tail, Dir: dir,
		Env: append(git.NoMachine(), "PATH="+os.Getenv("PATH"), "LC_ALL=C.UTF-8", "GIT_PROTOCOL="+protocol(r)),
	})
	_ = in.Close()
	select {
	case e := <-fed:
		if e != nil && !errors.Is(e, syscall.EPIPE) {
			return e // git's own error only says that its input ended
		}
	default:
		_ = out.conn.SetReadDeadline(time.Now()) // git reads no more of the request
		if e := <-fed; e != nil {
			g.Log.Debug("git for the agent", "request", e)
		}
	}
	if err != nil && tail.String() != "" {
		g.Log.Debug("git for the agent", "stderr", tail.String())
	}
	return err
}

// feed returns a pipe that is fed from body, and a channel for the copy's error: with a plain reader as input, waiting
// for the child would also wait for the client.
func feed(body io.Reader) (*os.File, <-chan error, error) {
	fed := make(chan error, 1)
	if body == nil {
		none, err := os.Open(os.DevNull)
		fed <- nil
		return none, fed, err
	}
	in, to, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	go func() {
		_, err := io.Copy(to, body)
		// First, so that the error is there when the end of its input ends the child.
		fed <- err
		_ = to.Close()
	}()
	return in, fed, nil
}
