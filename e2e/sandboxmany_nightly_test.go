//go:build e2e && nightly

package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/sandbox"
)

// A thousand commands leave no process and no descriptor, in the sandbox and here.
func TestSandboxManyCommands(t *testing.T) {
	u := newCarefulUser(t)
	name := u.sandbox("many", "--network", "none")
	m, err := sandbox.NewManager(sandbox.Options{StateDir: u.state})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	sb, err := m.Get(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	defer sb.Close()
	run := func(script string) string {
		t.Helper()
		r, err := sb.Run(t.Context(), sandbox.Command{Argv: []string{"sh", "-c", script}, Stdin: strings.NewReader("in")})
		if err != nil || r.ExitCode != 0 {
			t.Fatalf("%+v, %v", r, err)
		}
		return strings.TrimSpace(string(r.Stdout))
	}
	// What there is: processes, descriptors of root's in the sandbox, and of this program. Nothing is started to count them.
	count := func() (n [3]int) {
		t.Helper()
		if _, err := fmt.Sscan(run(`set -- /proc/[0-9]*; p=$#; set -- /proc/[0-9]*/fd/*; echo $p $#`), &n[0], &n[1]); err != nil {
			t.Fatal(err)
		}
		here, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		n[2] = len(here)
		return n
	}
	run("true") // the connection is made
	before := count()
	for range 1000 {
		if got := run("cat; (exit 0) & wait"); got != "in" {
			t.Fatalf("%q", got)
		}
	}
	const slack = 2 // what is just being ended, or pooled
	after := count()
	for until := time.Now().Add(10 * time.Second); time.Now().Before(until) && after[0] > before[0]; time.Sleep(100 * time.Millisecond) {
		after = count()
	}
	if after[0] > before[0] || after[1] > before[1]+slack || after[2] > before[2]+slack {
		t.Errorf("processes and descriptors before: %v; after: %v", before, after)
	}
}
