package portforward_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbox-agent/sandbox-agent/internal/host/portforward"
)

// TestMain is the port forwarder when this program is started as one: of a sandbox whose port n answers with n, and that is
// gone when its directory has a file of that name.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "porter" {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		if err := portforward.Serve(ctx, os.Args[2], echo(os.Args[2])); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

type echo string

func (echo) DialPort(_ context.Context, port int) (net.Conn, error) {
	ours, theirs := net.Pipe()
	go func() {
		_, _ = io.WriteString(ours, strconv.Itoa(port))
		_ = ours.Close()
	}()
	return theirs, nil
}

func (e echo) CheckExists(context.Context) error {
	if _, err := os.Stat(filepath.Join(string(e), "gone")); err == nil {
		return portforward.ErrGone
	}
	return nil
}

func newForwarder(t *testing.T) *portforward.Forwarder {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	t.Cleanup(func() {
		if err := portforward.End(context.WithoutCancel(t.Context()), dir); err != nil {
			t.Error(err)
		}
	})
	return &portforward.Forwarder{Dir: dir, Argv: []string{self, "porter", dir}}
}

// served is what an endpoint answers; "" if nothing serves it.
func served(t *testing.T, p portforward.Port) string {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(p.Local)))
	if err != nil {
		return ""
	}
	defer conn.Close()
	b, err := io.ReadAll(conn)
	if err != nil {
		return ""
	}
	return string(b)
}

// pid is the port forwarder's; 0 if there is none.
func pid(t *testing.T, dir string) (pid int) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "porter.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return 0
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, rest, ok := strings.Cut(string(b), `"pid":`); ok {
		_, _ = fmt.Sscan(strings.FieldsFunc(rest, func(r rune) bool { return r < '0' || r > '9' })[0], &pid)
	}
	return pid
}

func TestEndpoints(t *testing.T) {
	t.Parallel()
	k := newForwarder(t)
	added, err := k.Add(t.Context(), []portforward.Port{{Port: 80}, {Port: 81}})
	if err != nil || len(added) != 2 || added[0].Local == 0 || served(t, added[0]) != "80" || served(t, added[1]) != "81" {
		t.Fatalf("%v, %v", added, err)
	}
	more, err := k.Add(t.Context(), []portforward.Port{{Port: 82}, {Port: 80}})
	if err != nil || served(t, more[0]) != "82" || more[1] != added[0] {
		t.Errorf("%v, %v", more, err)
	}
	// A port forwarder that is killed is restarted by the next command, at the same ports.
	first := pid(t, k.Dir)
	if err := unix.Kill(first, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for until := time.Now().Add(time.Minute); portforward.Alive(k.Dir); time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal("it lives")
		}
	}
	if got := served(t, added[0]); got != "" {
		t.Errorf("not served: %q", got)
	}
	if err := k.Ensure(t.Context()); err != nil || served(t, added[0]) != "80" || served(t, more[0]) != "82" || pid(t, k.Dir) == first {
		t.Errorf("after it was killed: %v", err)
	}
	second := pid(t, k.Dir)
	if err := k.Ensure(t.Context()); err != nil || pid(t, k.Dir) != second {
		t.Errorf("a second one: %v", err)
	}
	// An error changes nothing.
	taken := portforward.Port{Port: 83, Local: added[1].Local}
	if _, err := k.Add(t.Context(), []portforward.Port{{Port: 84}, taken}); !errors.Is(err, portforward.ErrPortUnavailable) {
		t.Errorf("a port that is taken: %v", err)
	}
	if _, err := k.Add(t.Context(), []portforward.Port{{Port: 80, Local: 1}}); !errors.Is(err, portforward.ErrPortUnavailable) {
		t.Errorf("another place for an endpoint: %v", err)
	}
	if err := k.Remove(t.Context(), []int{80, 99}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("remove one that is not there: %v", err)
	}
	if ports, err := k.Ports(); err != nil || len(ports) != 3 || served(t, added[0]) != "80" {
		t.Errorf("%v, %v", ports, err)
	}
	if err := k.Remove(t.Context(), []int{80}); err != nil || served(t, added[0]) != "" || served(t, added[1]) != "81" {
		t.Errorf("%v", err)
	}
	// Without endpoints there is no port forwarder.
	if err := k.Remove(t.Context(), []int{81, 82}); err != nil || portforward.Alive(k.Dir) || pid(t, k.Dir) != 0 {
		t.Errorf("%v", err)
	}
	if err := k.Ensure(t.Context()); err != nil || portforward.Alive(k.Dir) {
		t.Errorf("a port forwarder of nothing: %v", err)
	}
}

// One whose port another program has taken meanwhile is told, and the others are served.
func TestTakenMeanwhile(t *testing.T) {
	t.Parallel()
	k := newForwarder(t)
	added, err := k.Add(t.Context(), []portforward.Port{{Port: 80}, {Port: 81}})
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(pid(t, k.Dir), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	var l net.Listener
	for until := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if l, err = (&net.ListenConfig{}).Listen(t.Context(), "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(added[0].Local))); err == nil {
			break
		}
		if time.Now().After(until) {
			t.Fatal(err)
		}
	}
	if err := k.Ensure(t.Context()); !errors.Is(err, portforward.ErrPortUnavailable) || served(t, added[1]) != "81" {
		t.Errorf("%v", err)
	}
	_ = l.Close()
	if err := k.Ensure(t.Context()); err != nil || served(t, added[0]) != "80" {
		t.Errorf("once it is free: %v", err)
	}
}

// Commands at the same time have one port forwarder; it goes with its sandbox.
func TestTogether(t *testing.T) {
	t.Parallel()
	k := newForwarder(t)
	type result struct {
		p   portforward.Port
		err error
	}
	results := make(chan result)
	const many = 8
	for i := range many {
		go func() {
			p, err := k.Add(t.Context(), []portforward.Port{{Port: 100 + i}})
			if err != nil {
				p = []portforward.Port{{}}
			}
			results <- result{p[0], err}
		}()
	}
	for range many {
		if r := <-results; r.err != nil || served(t, r.p) != strconv.Itoa(r.p.Port) {
			t.Errorf("%+v", r)
		}
	}
	if err := os.WriteFile(filepath.Join(k.Dir, "gone"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for until := time.Now().Add(time.Minute); portforward.Alive(k.Dir); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal("it outlives its sandbox")
		}
	}
	// What was wanted stays, for a sandbox that is made anew; until End.
	if ports, err := k.Ports(); err != nil || len(ports) != many {
		t.Errorf("%v, %v", ports, err)
	}
	if err := os.Remove(filepath.Join(k.Dir, "gone")); err != nil {
		t.Fatal(err)
	}
	if err := portforward.End(t.Context(), k.Dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(k.Dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("something is left: %v", err)
	}
}

// A port forwarder that cannot start is an error with what it said.
func TestDoesNotStart(t *testing.T) {
	t.Parallel()
	k := newForwarder(t)
	k.Argv = []string{"/bin/sh", "-c", "echo why >&2; exit 1"}
	if _, err := k.Add(t.Context(), []portforward.Port{{Port: 80}}); err == nil || !strings.Contains(err.Error(), "why") {
		t.Errorf("%v", err)
	}
	if ports, err := k.Ports(); err != nil || len(ports) != 0 {
		t.Errorf("%v, %v", ports, err)
	}
}
