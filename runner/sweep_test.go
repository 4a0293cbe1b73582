package runner

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// TestSweepSparesServersOfSetup needs root, to run things as somebody else.
func TestSweepSparesServersOfSetup(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root can start processes as another user")
	}
	const uid = 64321 // not the agent's
	// t.TempDir lies in a folder that only we may enter.
	dir, err := os.MkdirTemp("", "sweep") //nolint:usetesting // see above
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	b := newBox(t, `id -u; cat "$SANDBOX_AGENT_PROMPT_FILE" >prompt; [ ! -w "$SANDBOX_AGENT_PROMPT_FILE" ] && echo read-only; grep NoNewPrivs /proc/self/status
		sleep 600 & setsid sh -c 'setsid sleep 600 & exec sleep 600' & setsid sh -c 'echo $$ >agent.pid; exec sleep 600' &
		while ! [ -s agent.pid ]; do sleep 0.01; done`)
	b.Workspace, b.User = dir, &proc.Credential{UID: uid, GID: uid}
	if err := os.Chown(dir, uid, uid); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { proc.Sweep(uid, nil) })

	// A server in the background that starts workers in sessions of their own.
	setup := Shell(t.Context(), b.Config, ShellCommand{Name: "setup", Log: "logs/setup.log", Run: `
		nohup bash -c 'while :; do setsid -w sh -c "echo \$\$ >worker.pid; sleep 0.05" ; done' >/dev/null 2>&1 & echo $! >server.pid`})
	if setup.Err != nil {
		t.Fatal(setup.Err)
	}
	pid := func(name string) int {
		n, err := strconv.Atoi(strings.TrimSpace(b.read(t, filepath.Join(dir, name))))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	got := Agent(t.Context(), b.Config)
	check(t, got, workorder.StatusSuccess, workorder.EndedByAgent, "")
	if out := b.read(t, filepath.Join(b.OutDir, AgentStdout)); out != "64321\nread-only\nNoNewPrivs:\t1\n" {
		t.Errorf("output %q, %v", out, got.Warnings)
	}
	if b.read(t, filepath.Join(dir, "prompt")) != b.Order.Task {
		t.Error("the prompt could not be read")
	}
	waitFor(t, "the end of the agent's last process", func() bool {
		st, err := proc.ReadStat(pid("agent.pid"))
		return err != nil || st.Zombie
	})
	if !alive(pid("server.pid")) {
		t.Error("the server of setup was killed")
	}
	b.Order.Validate = []workorder.Check{{Name: "v", Run: "kill -0 $(cat server.pid); echo $? $(id -u); setsid sleep 600 >/dev/null 2>&1 &"}}
	if v := Validate(t.Context(), b.Config); !v[0].Passed || v[0].Tail != "0 64321\n" {
		t.Errorf("validation %+v", v)
	}
	_ = syscall.Kill(pid("server.pid"), syscall.SIGKILL)
}
