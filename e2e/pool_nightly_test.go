//go:build e2e && nightly

package e2e

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
	"github.com/sandbox-agent/sandbox-agent/sandbox/pool"
)

// A thousand leases, one after the other, leave nothing in the container and nothing in the program that has them.
func TestPoolCycles(t *testing.T) {
	m, err := sandbox.NewManager(sandbox.Options{StateDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	p := pool.New(m, pool.Options{Max: 1})
	defer func() {
		if err := p.Close(t.Context()); err != nil {
			t.Error(err)
		}
		_ = m.Close()
	}()
	var name string
	var first []int
	const cycles = 1000
	for i := range cycles {
		l, err := p.Acquire(t.Context(), pool.Spec{Image: plainImage})
		if err != nil {
			t.Fatalf("cycle %d: %v", i, err)
		}
		if name == "" {
			name = l.Sandbox()
		}
		if r, err := l.Run(t.Context(), sandbox.Command{Argv: []string{"sh", "-c", "setsid sleep 997 >/dev/null 2>&1 & echo x >/tmp/x"}}); err != nil || r.ExitCode != 0 || l.Sandbox() != name {
			t.Fatalf("cycle %d in %s: %+v, %v", i, l.Sandbox(), r, err)
		}
		if err := l.Release(t.Context()); err != nil {
			t.Fatalf("cycle %d: %v", i, err)
		}
		if i == 10 {
			first = counts(t, name)
		}
	}
	last := counts(t, name)
	for i, what := range []string{"processes", "mounts", "descriptors of the guest", "descriptors of this program"} {
		const slack = 5 // a thread's, or one that is being closed
		if last[i] > first[i]+slack {
			t.Errorf("%s: %d after 10 cycles, %d after %d", what, first[i], last[i], cycles)
		}
	}
}

// counts are the numbers of what a container's guest and this program have.
func counts(t *testing.T, sandbox string) (all []int) {
	t.Helper()
	out, err := proc.Output(t.Context(), proc.Spec{Argv: []string{
		"docker", "exec", "-u", "0", "sandbox-agent-sandbox-" + sandbox, "sh", "-c", "ls -d /proc/[0-9]* | wc -l; wc -l </proc/1/mounts; ls /proc/1/fd /proc/7/fd 2>/dev/null | wc -l",
	}})
	if err != nil {
		t.Fatal(err)
	}
	for f := range strings.FieldsSeq(string(out)) {
		n, err := strconv.Atoi(f)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, n)
	}
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return append(all, len(fds))
}
