package statedir

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

func TestDefaultDir(t *testing.T) {
	for _, c := range []struct {
		env  map[string]string
		want string
	}{
		{map[string]string{"SANDBOX_AGENT_STATE_DIR": "/a", "XDG_STATE_HOME": "/b", "HOME": "/c"}, "/a"},
		{map[string]string{"XDG_STATE_HOME": "/b", "HOME": "/c"}, "/b/sandbox-agent"},
		{map[string]string{"XDG_STATE_HOME": "relative", "HOME": "/c"}, "/c/.local/state/sandbox-agent"},
	} {
		if got, err := DefaultDir(func(k string) string { return c.env[k] }); err != nil || got != c.want {
			t.Errorf("%v: %q, %v", c.env, got, err)
		}
	}
	if _, err := DefaultDir(func(string) string { return "" }); err == nil {
		t.Error("no home and no error")
	}
}

func TestProcess(t *testing.T) {
	me := ProcessOf(os.Getpid())
	if !me.Alive() {
		t.Error("this process is not alive")
	}
	old := *me
	old.Boot = ""
	if !old.Alive() {
		t.Error("this process is not alive to a record that does not name the boot")
	}
	reused, rebooted, unknown := *me, *me, *me
	reused.Start += "1"
	rebooted.Boot = "another"
	unknown.Start = ""
	for name, p := range map[string]*Process{"reused": &reused, "rebooted": &rebooted, "unknown": &unknown, "none": nil, "not there": {PID: 1 << 30, Start: me.Start}} {
		if p.Alive() {
			t.Errorf("a process that is not there is alive: %s", name)
		}
	}
}

// TestSignal: only the process that is meant is signalled, and never another with its id.
func TestSignal(t *testing.T) {
	child, err := proc.Start(t.Context(), proc.Spec{Argv: []string{"sleep", "600"}})
	if err != nil {
		t.Fatal(err)
	}
	p := ProcessOf(child.PID())
	stranger, rebooted := *p, *p
	stranger.Start += "1"
	rebooted.Boot = "another"
	for _, p := range []*Process{&stranger, &rebooted, {PID: p.PID}, nil} {
		if err := p.Signal(unix.SIGKILL); !errors.Is(err, os.ErrProcessDone) {
			t.Errorf("%+v: %v", p, err)
		}
	}
	if err := p.Signal(unix.SIGUSR1); err != nil {
		t.Errorf("the process that is meant: %v", err)
	}
	// It ended by the one signal that was for it.
	if err, ok := errors.AsType[*proc.ExitError](child.Wait()); !ok || err.Signal != unix.SIGUSR1 {
		t.Errorf("it ended with %v", err)
	}
	if err := p.Signal(unix.SIGTERM); !errors.Is(err, os.ErrProcessDone) || p.Alive() {
		t.Errorf("one that has ended: %v", err)
	}
}

// TestWriteFileSyncs: a name is on disk only when its directory is synced.
func TestWriteFileSyncs(t *testing.T) {
	dir := t.TempDir()
	var seen []string
	before := syncDir
	t.Cleanup(func() { syncDir = before })
	syncDir = func(dir string) error {
		entries, err := os.ReadDir(dir)
		for _, e := range entries {
			seen = append(seen, e.Name())
		}
		return errors.Join(err, before(dir))
	}
	if err := WriteFile(filepath.Join(dir, "x"), []byte("1"), 0o600); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(seen, []string{"x"}) {
		t.Errorf("the directory had %v when it was synced", seen)
	}
	if err := WriteFile(filepath.Join(dir, "no", "x"), nil, 0o600); err == nil {
		t.Error("written into a directory that does not exist")
	}
}
