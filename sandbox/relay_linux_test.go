package sandbox

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/wireclient"
)

// A relay serves commands without the engine, and ends with its sandbox.
func TestRelay(t *testing.T) {
	t.Parallel()
	ctx, f := t.Context(), newFake(t)
	m := f.newManager(filepath.Join(f.dir, "state"))
	sb, err := m.Create(ctx, Spec{Name: "dev", Image: "i"})
	if err != nil {
		t.Fatal(err)
	}
	defer sb.Close()
	socket := m.creator.relay("dev")
	// One that was killed has left its socket.
	if err := os.Mkdir(filepath.Dir(socket), 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	_ = l.Close()
	if m.GetRelayed(ctx, "dev") != nil || !sb.NeedsRelay(ctx) {
		t.Fatal("a relay that was killed serves")
	}
	ended := make(chan error, 1)
	go func() { ended <- m.ServeRelay(ctx, "dev") }()
	var relayed *Sandbox
	for until := time.Now().Add(time.Minute); relayed == nil; time.Sleep(time.Millisecond) {
		if relayed = m.GetRelayed(ctx, "dev"); time.Now().After(until) {
			t.Fatal("no relay")
		}
	}
	defer relayed.Close()
	if st, err := os.Stat(socket); err != nil || st.Mode().Perm() != 0o600 || sb.NeedsRelay(ctx) || m.ServeRelay(ctx, "dev") != nil {
		t.Errorf("the socket: %v, %v", st, err)
	}
	f.mu.Lock() // the engine does not answer
	again := m.GetRelayed(ctx, "dev")
	if again == nil {
		t.Fatal("it asks the engine")
	}
	r, err := again.Run(ctx, Command{
		Argv: []string{"sh", "-c", "cat; pwd; echo $A >&2; exit 3"}, Stdin: strings.NewReader("in "), Env: []string{"A=b"}, Dir: "/",
	})
	f.mu.Unlock()
	_ = again.Close()
	if err != nil || r.ExitCode != 3 || string(r.Stdout) != "in /\n" || string(r.Stderr) != "b\n" {
		t.Errorf("%d, %q, %q, %v", r.ExitCode, r.Stdout, r.Stderr, err)
	}
	// A client that leaves ends its command.
	left := m.GetRelayed(ctx, "dev")
	if _, err := left.Start(ctx, Command{Argv: []string{"sleep", "1000"}}); err != nil {
		t.Fatal(err)
	}
	_ = left.Close()
	for until := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if list, err := relayed.Commands(ctx); err != nil || len(list) == 0 {
			if err != nil {
				t.Error(err)
			}
			break
		}
		if time.Now().After(until) {
			t.Fatal("a command outlives its client")
		}
	}
	// Another engine has another sandbox of that name, or none, and a user without the state directory has neither.
	other := f.newManager(filepath.Join(f.dir, "other"))
	if other.GetRelayed(ctx, "dev") != nil || m.creator.byRelay("other", relayedOf(t, m, "dev")) != nil {
		t.Error("another sandbox")
	}
	d := relayedOf(t, m, "dev")
	d.Host = "unix:///another"
	if m.creator.byRelay("dev", d) != nil {
		t.Error("another engine")
	}
	if err := sb.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(socket); !errors.Is(err, os.ErrNotExist) || m.GetRelayed(ctx, "dev") != nil {
		t.Errorf("the socket outlives the sandbox: %v", err)
	}
	if err := m.ServeRelay(ctx, "dev"); !errors.Is(err, ErrNotFound) {
		t.Errorf("a relay of a stopped sandbox: %v", err)
	}
	// The next use restarts the sandbox, without the relay.
	_ = relayed.Close()
	if r, err := relayed.Run(ctx, Command{Argv: []string{"true"}}); err != nil || r.ExitCode != 0 {
		t.Errorf("%d, %v", r.ExitCode, err)
	}
}

// relayedOf is what the relay of a sandbox says.
func relayedOf(t *testing.T, m *Manager, name string) (d relayed) {
	t.Helper()
	c, err := wireclient.DialRelay(t.Context(), m.creator.relay(name), &d)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	return d
}

// A relay ends that nothing uses, and one whose socket another has replaced.
func TestRelayEnds(t *testing.T) {
	t.Parallel()
	ctx, f := t.Context(), newFake(t)
	m := f.newManager(filepath.Join(f.dir, "state"))
	sb, err := m.Create(ctx, Spec{Name: "dev", Image: "i"})
	if err != nil {
		t.Fatal(err)
	}
	defer sb.Close()
	const replaced = time.Hour
	for name, idle := range map[string]time.Duration{"idle": time.Millisecond, "replaced": replaced} {
		socket := filepath.Join(f.dir, name)
		c, err := sb.in.dial(ctx, false)
		if err != nil {
			t.Fatal(err)
		}
		if idle == replaced {
			go func() {
				for os.Remove(socket) != nil {
					time.Sleep(time.Millisecond)
				}
			}()
		}
		if err := (wireclient.Relay{Path: socket, Idle: idle}).Serve(ctx, c); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		_ = c.Close()
	}
}
