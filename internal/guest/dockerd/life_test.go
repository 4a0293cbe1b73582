package dockerd

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

func newTestEngine(t *testing.T) *Engine {
	t.Helper()
	e, err := New(Config{Socket: filepath.Join(t.TempDir(), "d.sock"), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	return e
}

func TestListen(t *testing.T) {
	e := newTestEngine(t)
	st, err := os.Stat(e.cfg.Socket)
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Fatalf("%v %v", st, err)
	}
	waited := make(chan error, 1)
	go func() { waited <- e.sock.waitClient(t.Context()) }()
	c, err := (&net.Dialer{}).DialContext(t.Context(), "unix", e.cfg.Socket) // no process accepts, but the client is connected
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := <-waited; err != nil {
		t.Fatal(err)
	}
	e.Stop(t.Context())
	if exists(e.cfg.Socket) {
		t.Error("the socket is still there")
	}
}

func TestStopEndsTheWaitForAClient(t *testing.T) {
	e := newTestEngine(t)
	errc := make(chan error, 1)
	go func() { errc <- e.StartOnDemand(t.Context()) }()
	e.Stop(t.Context())
	if err := <-errc; !errors.Is(err, errHalted) {
		t.Errorf("%v", err)
	}
	<-e.Done()
	if err := e.Start(t.Context()); !errors.Is(err, errHalted) {
		t.Errorf("%v", err)
	}
	if e.Err() != nil {
		t.Errorf("an orderly stop has no error: %v", e.Err())
	}
}

// A start that fails must not leave clients waiting.
func TestFailedStartClosesTheSocket(t *testing.T) {
	s, _ := fakeSystem(t, map[string]string{"/proc/self/status": "CapEff:\t0000000000000000\n"})
	e := newTestEngine(t)
	e.sys = s
	if err := e.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "--cap-add") {
		t.Fatalf("%v", err)
	}
	<-e.Done()
	if e.Err() == nil || exists(e.cfg.Socket) {
		t.Errorf("%v", e.Err())
	}
}

// A daemon that dies while it is waited for is reported at once, with its log.
func TestDaemonThatDies(t *testing.T) {
	dir := t.TempDir()
	d, err := spawn(t.Context(), "dockerd", dir, specOf("sh", "-c", "echo cannot open database >&2; exit 3"))
	if err != nil {
		t.Fatal(err)
	}
	err = d.until(t.Context(), time.Hour, func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	})
	if err == nil || !strings.Contains(err.Error(), "cannot open database") || proc.ExitCode(err) != 3 {
		t.Errorf("%v", err)
	}
}

func specOf(argv ...string) proc.Spec { return proc.Spec{Argv: argv} }

// An engine that is gone for good while the run goes on is news, at its end it is not.
func TestGivingUpIsToldOnce(t *testing.T) {
	var told []string
	e := newTestEngine(t)
	e.cfg.Warn = func(text string) { told = append(told, text) }
	gone := errors.New("gone")
	e.giveUp(gone)
	<-e.Done()
	e.Stop(t.Context())
	e.giveUp(errors.New("killed"))
	if len(told) != 1 || !strings.Contains(told[0], gone.Error()) || !errors.Is(e.Err(), gone) {
		t.Errorf("told %q, err %v", told, e.Err())
	}
}
