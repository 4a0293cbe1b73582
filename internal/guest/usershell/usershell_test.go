package usershell

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// TestDoor: a shell is let in while the agent works, and not before, after or where somebody else made the door.
func TestDoor(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "door")
	knock := func(want error) Agent {
		t.Helper()
		a, in, err := ReadEntry(dir)
		if !errors.Is(err, want) {
			t.Fatalf("%v, want %v", err, want)
		}
		if in != nil {
			in.Close()
		}
		return a
	}
	knock(ErrClosed)
	d, err := New(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := New(dir); err == nil {
		t.Error("a door that is there is made again")
	}
	knock(ErrClosed)
	for range 2 { // each round of the agent
		if err := d.Publish(Agent{Env: []string{"A=1"}, Dir: "/workspace", Namespace: "/proc/7/fd/3"}); err != nil {
			t.Fatal(err)
		}
		if a := knock(nil); a.Dir != "/workspace" || a.Namespace != "/proc/7/fd/3" || !slices.Equal(a.Env, []string{"A=1"}) {
			t.Errorf("%+v", a)
		}
		if st, err := os.Stat(filepath.Join(dir, file)); err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("%v, %v", st.Mode(), err)
		}
		if err := d.Withdraw(); err != nil {
			t.Error(err)
		}
		knock(ErrClosed)
	}
	if err := d.Publish(Agent{}); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, _, err := ReadEntry(dir); err == nil {
		t.Error("a door that others may look into is believed")
	}
}

// TestDoorClosesBehindAShell: who closes the door waits for a shell that is on its way in, so that it is ended with the agent.
func TestDoorClosesBehindAShell(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "door")
	d, err := New(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Publish(Agent{}); err != nil {
		t.Fatal(err)
	}
	_, in, err := ReadEntry(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Withdraw(); !errors.Is(err, unix.EWOULDBLOCK) {
		t.Errorf("closed while a shell is on its way in: %v", err)
	}
	in.Close()
	if _, _, err := ReadEntry(dir); !errors.Is(err, ErrClosed) {
		t.Errorf("after it: %v", err)
	}
}

// TestLastOf: of a variable that is set twice the last one counts, as for the agent.
func TestLastOf(t *testing.T) {
	t.Parallel()
	if got := lastOf([]string{"A=1", "B=2", "A=3", "C="}); !slices.Equal(got, []string{"B=2", "A=3", "C="}) {
		t.Errorf("%q", got)
	}
}
