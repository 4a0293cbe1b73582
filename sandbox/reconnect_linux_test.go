package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/files"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/supervise"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/wireserver"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "files" {
		if err := files.Main(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if len(os.Args) > 1 && os.Args[1] == "reap" {
		os.Exit(supervise.Main(context.Background()))
	}
	os.Exit(m.Run())
}

// here is an engine whose one sandbox is this machine.
type here struct {
	runtime.SandboxRuntime
	socket string
	mu     sync.Mutex
	open   []net.Conn
	starts int
}

func (h *here) Create(context.Context, runtime.SandboxSpec) (string, error) {
	return "", errors.New("there is one already")
}

func (h *here) Start(context.Context, string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.starts++
	return nil
}

func (h *here) Stream(ctx context.Context, _ string) (io.ReadWriteCloser, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", h.socket)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open = append(h.open, conn)
	return conn, err
}

func (h *here) cut() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.open {
		_ = c.Close()
	}
}

// newHere is a sandbox that is this machine, with its guest.
func newHere(t *testing.T) (*Sandbox, *here) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "s") //nolint:usetesting // a socket's path is short, a test's folder is not
	if err != nil {
		t.Fatal(err)
	}
	h := &here{socket: filepath.Join(dir, "s")}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", h.socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	served := make(chan error, 1)
	go func() {
		served <- wireserver.New(wireserver.Config{
			Dir: dir, Env: os.Environ(), Self: self, Reap: []string{"reap"}, Files: []string{"files"},
			OOMKills: func() int { return 0 },
		}).Serve(ctx, l)
	}()
	sb := &Sandbox{&instance{c: &creator{}, r: h, id: "x", spec: Spec{Name: "here", Lifetime: LifetimeNamed}}}
	t.Cleanup(func() {
		err := sb.Close()
		cancel()
		if err := errors.Join(err, <-served, os.RemoveAll(dir)); err != nil {
			t.Error(err)
		}
	})
	return sb, h
}

// A connection that ended between two commands is made anew, with the second one's input whole; one that ends in the middle is an error.
func TestReconnect(t *testing.T) {
	t.Parallel()
	sb, h := newHere(t)
	for range 3 {
		r, err := sb.Run(t.Context(), Command{Argv: []string{"cat"}, Stdin: strings.NewReader("whole")})
		if err != nil || string(r.Stdout) != "whole" {
			t.Errorf("%q, %v", r.Stdout, err)
		}
		h.cut()
	}
	if h.starts != 3 {
		t.Errorf("%d starts, want one for each connection", h.starts)
	}
	p, err := sb.Start(t.Context(), Command{Argv: []string{"sh", "-c", "echo begun; sleep 60"}})
	if err != nil {
		t.Fatal(err)
	}
	r, w := io.Pipe()
	go func() {
		_, _ = io.ReadFull(r, make([]byte, len("begun\n")))
		h.cut()
		_, _ = io.Copy(io.Discard, r)
	}()
	if _, err := p.Wait(t.Context(), w, nil); !errors.Is(err, ErrConnectionLost) {
		t.Errorf("cut in the middle: %v", err)
	}
}
