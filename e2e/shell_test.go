//go:build e2e

package e2e

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// heldAs prints how the process is held and what it has: all that tells the agent from another process of its user. Namespaces of control
// groups have other numbers in each thread of PID 1; what they show is in /proc/self/cgroup.
const heldAs = `
grep -E '^(Uid|Gid|Groups|Cap|NoNewPrivs|Seccomp)' /proc/self/status
cat /proc/self/cgroup /proc/self/oom_score_adj
for n in mnt pid ipc net user uts; do readlink /proc/self/ns/$n; done
pwd; umask; ulimit -a
env | grep -vE '^(SANDBOX_AGENT_(NOTICE|PROMPT)_FILE|SHLVL|_|OLDPWD)=' | sort
`

// TestShell: a shell is held exactly as the agent is, is a terminal where the user has one, and ends with the agent.
func TestShell(t *testing.T) {
	t.Parallel()
	u := newUser(t, "A=secret-of-the-agent", "S=secret-of-the-setup")
	w := u.workOn(`
name: e2e
env: {PROJECT: "its own"}
secrets:
  FOR_AGENT: {from: env://A, for: agent}
  FOR_SETUP: {from: env://S, for: setup}
harness:
  name: command
  command: |
    cat >/tmp/held.sh <<'END'` + strings.ReplaceAll(heldAs, "\n", "\n    ") + `
    END
    for i in $(seq 100); do test "$(cat /proc/$$/oom_score_adj)" = 0 || break; sleep 0.1; done # set after the start
    sh /tmp/held.sh >/tmp/held.agent
    echo agent-is-busy
    until test -e go; do sleep 0.1; done
    rm go
validate: {alone: "! pgrep -u sandbox sleep"}
`)
	agent := u.run("", "shell", w.id, "cat", "/tmp/held.agent")
	shell := u.run("", "shell", w.id, "--", "sh", "/tmp/held.sh")
	if agent.code != 0 || shell.code != 0 || !strings.Contains(agent.stdout, "secret-of-the-agent") || strings.Contains(agent.stdout, "secret-of-the-setup") {
		t.Fatalf("exit codes %d and %d", agent.code, shell.code)
	}
	if d := cmp.Diff(agent.stdout, shell.stdout); d != "" {
		t.Errorf("held otherwise than the agent (-agent +shell):\n%s", d)
	}
	for _, want := range []string{"CapEff:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2", workorder.Workspace + "\n"} {
		if !strings.Contains(shell.stdout, want) {
			t.Errorf("no %q", want)
		}
	}
	for _, c := range []struct {
		want int
		argv []string
	}{
		{42, []string{"sh", "-c", "exit 42"}},
		{0, []string{"sh", "-c", "test $(id -un) = sandbox && test $PWD = /workspace && test -e README && echo new >new-file"}},
		{0, []string{"sh", "-c", "! unshare --mount true && ! ls /var/lib/docker && ! ls /dev/shm/sandbox-agent-shell && ! mount -t tmpfs none /mnt"}},
		{127, []string{"absent-program"}},
	} {
		if got := u.run("", slices.Concat([]string{"shell", w.id, "--"}, c.argv)...); got.code != c.want && c.want != 127 || c.want == 127 && got.code == 0 {
			t.Errorf("%q: exit code %d, want %d", c.argv, got.code, c.want)
		}
	}
	// exec does the same, with exec's options.
	if got, code := u.exec(w.id, "in", "--env", "A=b", "--workdir", "/tmp", "--", "sh", "-c", "cat; pwd; echo $A; id -un; echo noise >&2; exit 9"); code != 9 || got.Stdout != "in/tmp\nb\nsandbox\n" || got.Stderr != "noise\n" || got.ExitCode != 9 {
		t.Errorf("exec: %+v, exit code %d", got, code)
	}
	if c := u.run("", "exec", w.id, "--", "sh", "/tmp/held.sh"); c.code != 0 || cmp.Diff(agent.stdout, c.stdout) != "" {
		t.Errorf("exec is held otherwise: exit code %d\n%s", c.code, cmp.Diff(agent.stdout, c.stdout))
	}
	if c := u.run("through a pipe", "shell", w.id, "--", "sh", "-c", "cat; cat /dev/stdin; echo noise >/dev/stderr"); c.stdout != "through a pipe" || c.stderr != "noise\n" {
		t.Errorf("%q, %q", c.stdout, c.stderr)
	}

	seated := *u
	seated.terminal = true
	s := seated.start("", "shell", w.id)
	press := func(keys, seen string) {
		t.Helper()
		if _, err := s.keys.WriteString(keys); err != nil {
			t.Fatal(err)
		}
		s.waitFor(seen)
	}
	press("tty >/dev/tty && echo a-$((40+2))\n", "a-42")
	// The program that is interrupted says itself that it runs: a shell that is forking its child can lose the signal.
	press("sh -c \"echo st''art; exec sleep 1000\"\n", "start")
	press("\x03echo back-$?\n", "back-130")
	if _, err := s.keys.WriteString("exit 5\n"); err != nil {
		t.Fatal(err)
	}
	if c := s.wait(); c.code != 5 {
		t.Errorf("exit code of the terminal's shell: %d", c.code)
	}

	left := u.start("", "shell", w.id, "--", "sh", "-c", "echo wai''ting; exec sleep 1000")
	left.waitFor("waiting")
	if c := u.run("", "shell", w.id, "--", "touch", "go"); c.code != 0 {
		t.Fatalf("exit code %d", c.code)
	}
	if c := left.wait(); c.code != 128+9 {
		t.Errorf("a shell that outlives the agent: exit code %d", c.code)
	}
	r := w.end(0, workorder.StatusSuccess, workorder.EndedByAgent)
	if len(r.Validation) != 1 || !r.Validation[0].Passed {
		t.Errorf("%+v", r.Validation)
	}
	if c := u.run("", "shell", w.id); c.code != workorder.ExitNotFound || !strings.Contains(c.stderr, "\nhint: ") {
		t.Errorf("after the end: exit code %d", c.code)
	}
}
