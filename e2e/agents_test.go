//go:build e2e

package e2e

import (
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// busy is the part of an agent that has committed, left something uncommitted
// and works on until somebody stops it. Its output shows in the CLI's output.
const busy = `
echo committed >committed && git add committed && git commit -qm "agent's commit"
echo uncommitted >uncommitted
echo agent-is-busy
`

// deaf goes on for ever and does not hear SIGTERM or SIGINT.
const deaf = `
trap "" TERM INT
while :; do sleep 1; done
`

// bomb uses up every process that the box may have.
const bomb = "exec python3 -c 'import os\nwhile True:\n  try: os.fork()\n  except OSError: pass\n'"

// landed checks that what busy made is on the run's branch.
func landed(t *testing.T, repo string, r *workorder.Result) {
	t.Helper()
	if !r.Pushed || r.Branch == "" {
		t.Errorf("the work did not land: pushed %v, branch %q, %s", r.Pushed, r.Branch, r.Reasons)
		return
	}
	if got := gittest.Git(t, repo, "show", r.Branch+":committed"); got != "committed" {
		t.Errorf("committed work: %q", got)
	}
	if got := gittest.Git(t, repo, "show", r.Branch+":uncommitted"); got != "uncommitted" {
		t.Errorf("uncommitted work: %q", got)
	}
	if got := gittest.Git(t, repo, "rev-parse", r.Branch); got != r.HeadSHA {
		t.Errorf("the branch is at %s, the result says %s", got, r.HeadSHA)
	}
}

// peak is the most memory that a process held so far, in bytes; 0 when it is gone.
func peak(pid int) int64 {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "VmHWM:" {
			kb, err := strconv.ParseInt(f[1], 10, 64)
			if err != nil {
				return 0
			}
			return kb << 10
		}
	}
	return 0
}

// Whatever the agent prints, the run ends, the logs stay small and the
// processes on this machine stay small.
func TestFloods(t *testing.T) {
	t.Parallel()
	const (
		memoryLimit = 160 << 20
		outputLimit = 200 << 20 // what is kept of 400 MB of output and its events
	)
	floods := map[string]string{"one line": "head -c 200000000 /dev/zero | tr '\\0' x\necho >&2 the-end"}
	if nightly {
		floods["lines"] = "head -c 200000000 /dev/zero | tr '\\0' x | fold -w 120\necho >&2 the-end"
		floods["events"] = `yes '{"type":"agent.text","text":"` + strings.Repeat("y", 1000) + `"}' | head -c 200000000` + "\necho >&2 the-end"
	}
	for name, script := range floods {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := newCarefulUser(t)
			s := u.start("", "create", "--task", "x", "-p", u.project(scripted("", script)))
			var most int64
			for running := true; running; {
				most = max(most, peak(s.PID()))
				select {
				case <-s.Done():
					running = false
				case <-time.After(20 * time.Millisecond):
				}
			}
			c := s.wait()
			r := u.result(c.task(t))
			if c.code != 0 || r.Status != workorder.StatusSuccess {
				t.Fatalf("exit code %d, %s: %s", c.code, r.Status, r.Reasons)
			}
			if most == 0 || most > memoryLimit {
				t.Errorf("the CLI held %d MB, want at most %d", most>>20, memoryLimit>>20)
			}
			var kept int64
			err := filepath.WalkDir(filepath.Dir(resultPath(t, u, r.TaskID)), func(_ string, d fs.DirEntry, err error) error {
				if err != nil || d.IsDir() {
					return err
				}
				info, err := d.Info()
				if err == nil {
					kept += info.Size()
				}
				return err
			})
			if err != nil || kept > outputLimit {
				t.Errorf("%d MB of output were kept (%v)", kept>>20, err)
			}
			t.Logf("CLI peak %d MB, kept %d MB, printed %d KB", most>>20, kept>>20, (len(c.stdout)+len(c.stderr))>>10)
			if b, err := os.ReadFile(filepath.Join(filepath.Dir(resultPath(t, u, r.TaskID)), "logs/agent.stderr.log")); err != nil || !strings.Contains(string(b), "the-end") {
				t.Errorf("the end of the other stream is lost: %q, %v", b, err)
			}
		})
	}
}

// Things that agents do to a repository and to the box; none of them ends the script.
const (
	hostile = "mkdir -p .git/hooks; for h in pre-commit commit-msg pre-push post-commit reference-transaction; do printf '#!/bin/sh\\nsleep 600\\n' >.git/hooks/$h; chmod +x .git/hooks/$h; done\n" +
		"git config core.fsmonitor 'sleep 600'; git config core.sshCommand false; git config remote.origin.url https://nowhere.invalid/x\n"
	locks   = "touch .git/index.lock .git/HEAD.lock\n"
	tampers = "kill -9 1 2>/dev/null; pkill -9 entrypoint; for d in out state inbox cache git; do\n" +
		"  touch /var/lib/sandbox-agent/$d/x 2>/dev/null && exit 9\n  mv /var/lib/sandbox-agent/$d /tmp/$d 2>/dev/null && exit 9\ndone\n" +
		"grep -c . /proc/1/environ 2>/dev/null && exit 8\ntrue\n"
)

// Agents that behave badly, and how their runs end. All start with busy, so
// that there is work to land. The time limits leave a slow machine enough to come that far.
func TestAgentsThatMisbehave(t *testing.T) {
	t.Parallel()
	for _, a := range []struct {
		name, head, script string
		code               int
		status             workorder.Status
		by                 workorder.EndedBy
		reason             workorder.ReasonCode
		nightly            bool // since another row, TestEndings or TestStarvedBoxLands has one like it
	}{
		{
			name: "crash", nightly: true, script: "kill -SEGV $$", code: workorder.ExitTaskFailed,
			status: workorder.StatusFailed, by: workorder.EndedByAgent, reason: workorder.ReasonAgent,
		},
		{
			// Everybody but itself, as kill(2) has it.
			name: "kills all it can", nightly: true, script: "kill -9 -1", status: workorder.StatusSuccess, by: workorder.EndedByAgent,
		},
		{
			name: "holds stdout open", nightly: true, status: workorder.StatusSuccess, by: workorder.EndedByAgent,
			script: "setsid sh -c 'trap \"\" TERM HUP INT; exec sleep 600' &\nsetsid -f sleep 600\nexit 0",
		},
		{
			name: "zombies", status: workorder.StatusSuccess, by: workorder.EndedByAgent,
			// Children whose parent is gone at once: PID 1 inherits and reaps them.
			head: "validate:\n  reaped: test \"$(cat /proc/[0-9]*/stat 2>/dev/null | grep -c ') Z ')\" -lt 20\n" +
				"  swept: test -z \"$(pgrep -f '[s]leep 600')\"\n",
			script: "for i in $(seq 400); do (sleep 0.2 & setsid -f true); done\nfor i in $(seq 50); do setsid -f sleep 600; done\nsleep 1",
		},
		{
			name: "fork bomb", nightly: true, head: "timeout_minutes: 0.25\nlimits:\n  pids: 200\n", code: workorder.ExitTimeout,
			script: bomb,
			status: workorder.StatusTimeout, by: workorder.EndedByTimeout, reason: workorder.ReasonTimeout,
		},
		{
			name: "memory", nightly: true, head: "limits:\n  memory: 400m\n", code: workorder.ExitTaskFailed,
			script: "python3 -c 'x = bytearray(2 << 30)'",
			status: workorder.StatusFailed, by: workorder.EndedByAgent, reason: workorder.ReasonMemory,
		},
		{
			name: "deaf at its time limit", nightly: true, head: "timeout_minutes: 0.25\n", script: deaf, code: workorder.ExitTimeout,
			status: workorder.StatusTimeout, by: workorder.EndedByTimeout, reason: workorder.ReasonTimeout,
		},
		{
			name: "deaf over budget", nightly: true, head: "max_budget_usd: 1\n", code: workorder.ExitBudget,
			script: `printf '{"type":"agent.usage","usage":{"cost_usd":0.5}}\n{"type":"agent.usage","usage":{"cost_usd":1.25,"input_tokens":10}}\n'` + deaf,
			status: workorder.StatusBudgetExceeded, by: workorder.EndedByBudget, reason: workorder.ReasonBudget,
		},
		{
			name: "hostile repository", nightly: true, script: hostile, status: workorder.StatusSuccess, by: workorder.EndedByAgent,
		},
		{
			name: "tampers", nightly: true, script: tampers, status: workorder.StatusSuccess, by: workorder.EndedByAgent,
		},
		{
			name: "validation beyond the time limit", head: "timeout_minutes: 0.25\nvalidate:\n  long: trap '' TERM; sleep 600; sleep 600\n", script: "true",
			code: workorder.ExitTimeout, status: workorder.StatusTimeout, by: workorder.EndedByTimeout, reason: workorder.ReasonTimeout,
		},
		{
			name: "locked index", nightly: true, script: locks, status: workorder.StatusSuccess, by: workorder.EndedByAgent,
		},
		{
			name: "all harm at once", script: hostile + locks + tampers + "kill -9 -1", status: workorder.StatusSuccess, by: workorder.EndedByAgent,
		},
	} {
		if a.nightly && !nightly {
			continue
		}
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			u := newCarefulUser(t)
			repo := u.repo(map[string]string{"README": "x"})
			c := u.run("", "create", "--task", "x", "--repo", repo, "-p", u.project(scripted(a.head, busy+a.script)))
			r := u.result(c.task(t))
			if c.code != a.code || r.Status != a.status || r.EndedBy != a.by || r.Reasons.Code() != a.reason {
				t.Errorf("exit code %d, %s by %s (%s), want %d, %s by %s with %q", c.code, r.Status, r.EndedBy, r.Reasons, a.code, a.status, a.by, a.reason)
			}
			for _, v := range r.Validation {
				if !v.Passed && a.by != workorder.EndedByTimeout {
					t.Errorf("validate %s: exit code %d %s", v.Name, v.ExitCode, v.Tail)
				}
			}
			landed(t, repo, r)
		})
	}
}

// The agent throws its repository away: there is nothing to land, and the run says so.
func TestRepositoryDeleted(t *testing.T) {
	t.Parallel()
	deletes := map[string]string{"everything": "rm -rf /workspace/* /workspace/.[!.]*"}
	if nightly {
		deletes["history"] = "rm -rf .git"
	}
	for name, script := range deletes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := newCarefulUser(t)
			repo := u.repo(map[string]string{"README": "x"})
			c := u.run("", "create", "--task", "x", "--repo", repo, "-p", u.project(scripted("", busy+script)))
			r := u.result(c.task(t))
			if c.code == 0 || r.Status == workorder.StatusSuccess || len(r.Reasons) == 0 || c.code != workorder.ExitCode(r.Status, r.EndedBy) {
				t.Errorf("exit code %d, %s by %s: %s, pushed %v", c.code, r.Status, r.EndedBy, r.Reasons, r.Pushed)
			}
			if got := gittest.Git(t, repo, "rev-parse", "main"); r.BaseSHA != got {
				t.Errorf("main is at %s", got)
			}
		})
	}
}
