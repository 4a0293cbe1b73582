package gateway

import (
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

// The limits of the git gateway, whatever the agent requests: it runs in boot, and its processes are root's.
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
	// maxGitBody bounds a request's body, in bytes, packed or unpacked: 50 for each ref wanted or had, and a
	// repository with 300,000 refs is among the largest known.
	maxGitBody = 16 << 20
	// gitBodyTime bounds reading the body, over loopback.
	gitBodyTime = time.Minute
	// gitRunTime bounds one answer: a clone of gigabytes takes minutes.
	gitRunTime = 30 * time.Minute
	// gitWriteTime bounds one write to the client.
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
		// git may end before the whole request was read. The rest is then not read, and the server
		// ends the connection.
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

// feed returns a pipe that is fed from body, and a channel for the copy's error. If the child had a plain reader as
// input, waiting for the child would also wait for the client.
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
