//go:build e2e

package e2e

import (
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/git/gittest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// busy is the part of an agent that has committed, left something uncommitted
// and works on until somebody stops it. What it prints shows in the CLI's output.
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

// What agents do to a repository and to the box; none of it ends the script.
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
			status: workorder.StatusFailed, by: workorder.ByAgent, reason: workorder.ReasonAgent,
		},
		{
			// Everybody but itself, as kill(2) has it.
			name: "kills all it can", nightly: true, script: "kill -9 -1", status: workorder.StatusSuccess, by: workorder.ByAgent,
		},
		{
			name: "holds stdout open", nightly: true, status: workorder.StatusSuccess, by: workorder.ByAgent,
			script: "setsid sh -c 'trap \"\" TERM HUP INT; exec sleep 600' &\nsetsid -f sleep 600\nexit 0",
		},
		{
			name: "zombies", status: workorder.StatusSuccess, by: workorder.ByAgent,
			// Children whose parent is gone at once: PID 1 inherits and reaps them.
			head: "validate:\n  reaped: test \"$(cat /proc/[0-9]*/stat 2>/dev/null | grep -c ') Z ')\" -lt 20\n" +
				"  swept: test -z \"$(pgrep -f '[s]leep 600')\"\n",
			script: "for i in $(seq 400); do (sleep 0.2 & setsid -f true); done\nfor i in $(seq 50); do setsid -f sleep 600; done\nsleep 1",
		},
		{
			name: "fork bomb", nightly: true, head: "timeout_minutes: 0.25\nlimits:\n  pids: 200\n", code: workorder.ExitTimeout,
			script: bomb,
			status: workorder.StatusTimeout, by: workorder.ByTimeout, reason: workorder.ReasonTimeout,
		},
		{
			name: "memory", nightly: true, head: "limits:\n  memory: 400m\n", code: workorder.ExitTaskFailed,
			script: "python3 -c 'x = bytearray(2 << 30)'",
			status: workorder.StatusFailed, by: workorder.ByAgent, reason: workorder.ReasonMemory,
		},
		{
			name: "deaf at its time limit", nightly: true, head: "timeout_minutes: 0.25\n", script: deaf, code: workorder.ExitTimeout,
			status: workorder.StatusTimeout, by: workorder.ByTimeout, reason: workorder.ReasonTimeout,
		},
		{
			name: "deaf over budget", nightly: true, head: "max_budget_usd: 1\n", code: workorder.ExitBudget,
			script: `printf '{"type":"agent.usage","usage":{"cost_usd":0.5}}\n{"type":"agent.usage","usage":{"cost_usd":1.25,"input_tokens":10}}\n'` + deaf,
			status: workorder.StatusBudgetExceeded, by: workorder.ByBudget, reason: workorder.ReasonBudget,
		},
		{
			name: "hostile repository", nightly: true, script: hostile, status: workorder.StatusSuccess, by: workorder.ByAgent,
		},
		{
			name: "tampers", nightly: true, script: tampers, status: workorder.StatusSuccess, by: workorder.ByAgent,
		},
		{
			name: "validation beyond the time limit", head: "timeout_minutes: 0.25\nvalidate:\n  long: trap '' TERM; sleep 600; sleep 600\n", script: "true",
			code: workorder.ExitTimeout, status: workorder.StatusTimeout, by: workorder.ByTimeout, reason: workorder.ReasonTimeout,
		},
		{
			name: "locked index", nightly: true, script: locks, status: workorder.StatusSuccess, by: workorder.ByAgent,
		},
		{
			name: "all harm at once", script: hostile + locks + tampers + "kill -9 -1", status: workorder.StatusSuccess, by: workorder.ByAgent,
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
				if !v.Passed && a.by != workorder.ByTimeout {
					t.Errorf("validate %s: exit code %d %s", v.Name, v.ExitCode, v.Tail)
				}
			}
			landed(t, repo, r)
		})
	}
}

// working is a run whose agent has done its work and waits.
type working struct {
	*started
	u    *user
	repo string
	id   string
}

// work starts a run on a local repository and waits until its agent is busy.
// The script goes on from there.
func work(t *testing.T, script string, args ...string) *working {
	t.Helper()
	u := newCarefulUser(t)
	return u.work(script, args...)
}

func (u *user) work(script string, args ...string) *working {
	u.t.Helper()
	return u.workOn(scripted("", busy+script), args...)
}

func (u *user) workOn(yaml string, args ...string) *working {
	u.t.Helper()
	w := &working{u: u, repo: u.repo(map[string]string{"README": "x"})}
	w.started = u.start("", append([]string{"create", "--task", "x", "--repo", w.repo, "-p", u.project(yaml)}, args...)...)
	w.waitFor("agent-is-busy")
	w.id = taskID.FindString(w.out.String() + w.errOut.String())
	return w
}

// end checks how the run ended and returns its result.
func (w *working) end(code int, status workorder.Status, by workorder.EndedBy) *workorder.Result {
	w.t.Helper()
	if c := w.wait(); c.code != code {
		w.t.Errorf("exit code %d, want %d", c.code, code)
	}
	r := w.u.result(w.id)
	if r.Status != status || r.EndedBy != by {
		w.t.Errorf("%s by %s (%s), want %s by %s", r.Status, r.EndedBy, r.Reasons, status, by)
	}
	return r
}

// box is the run's container.
func (w *working) box() string {
	w.t.Helper()
	cs := ours(w.t, w.id)
	if len(cs) != 1 {
		w.t.Fatalf("%d containers of %s", len(cs), w.id)
	}
	return cs[0].ID
}

// boot is the process id of boot on this machine.
func (w *working) boot() int {
	w.t.Helper()
	top, err := eng.ContainerTop(w.t.Context(), w.box(), []string{"-eo", "pid,args"})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, p := range top.Processes {
		if strings.HasSuffix(strings.Join(p[1:], " "), "entrypoint boot") {
			pid, err := strconv.Atoi(p[0])
			if err != nil {
				w.t.Fatal(err)
			}
			return pid
		}
	}
	w.t.Fatalf("no boot among %v", top.Processes)
	return 0
}

func TestStop(t *testing.T) {
	t.Parallel()
	agents := map[string]string{"deaf": deaf}
	if nightly {
		agents["obedient"] = "exec sleep 600"
	}
	for name, script := range agents {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := work(t, script)
			if c := w.u.run("", "stop", w.id); c.code != 0 || !strings.Contains(c.stdout, "interrupted") {
				t.Errorf("stop: exit code %d, %s", c.code, c.stdout)
			}
			landed(t, w.repo, w.end(workorder.ExitInterrupted, workorder.StatusInterrupted, workorder.BySignal))
		})
	}
}

func TestInterruptOnce(t *testing.T) {
	t.Parallel()
	w := work(t, deaf)
	w.Signal(syscall.SIGINT)
	r := w.end(workorder.ExitInterrupted, workorder.StatusInterrupted, workorder.BySignal)
	landed(t, w.repo, r)
	if r.Reasons.Code() != workorder.ReasonByUser || len(r.Reasons) != 1 {
		t.Errorf("reason %q", r.Reasons)
	}
}

// An interruption before there is a box leaves none.
func TestInterruptWhileStarting(t *testing.T) {
	t.Parallel()
	moments := []string{"start: started"}
	if nightly {
		moments = append(moments, "preflight: started", "box ready")
	}
	for _, moment := range moments {
		t.Run(moment, func(t *testing.T) {
			t.Parallel()
			u := newCarefulUser(t)
			repo := u.repo(map[string]string{"README": "x"})
			s := u.start("", "create", "--task", "x", "--repo", repo, "-p", u.project(scripted("", "sleep 600")))
			s.waitFor(moment)
			s.Signal(syscall.SIGINT)
			c := s.wait()
			if r := u.result(c.task(t)); c.code != workorder.ExitInterrupted || r.Status != workorder.StatusInterrupted {
				t.Errorf("exit code %d, %s: %s", c.code, r.Status, r.Reasons)
			}
		})
	}
}

// The box is killed: all that was in it is gone, the run is not.
func TestBoxKilled(t *testing.T) {
	t.Parallel()
	w := work(t, "sleep 600")
	if err := eng.ContainerKill(t.Context(), w.box(), "KILL"); err != nil {
		t.Fatal(err)
	}
	r := w.end(workorder.ExitBox, workorder.StatusLost, workorder.ByHost)
	if !r.Resumable || r.Reasons.Code() != workorder.ReasonVanished || step(t, r, "agent").Status != workorder.StepRunning {
		t.Errorf("the result does not say where it was: %+v", r)
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

// A box that was frozen can be stopped all the same.
func TestStopOfAFrozenBox(t *testing.T) {
	t.Parallel()
	w := work(t, "sleep 600")
	if err := eng.ContainerPause(t.Context(), w.box()); err != nil {
		t.Fatal(err)
	}
	if c := w.u.run("", "stop", w.id); c.code != 0 {
		t.Errorf("stop: exit code %d", c.code)
	}
	c := w.wait()
	if r := w.u.result(w.id); c.code == 0 || c.code != workorder.ExitCode(r.Status, r.EndedBy) {
		t.Errorf("exit code %d, %s by %s: %s", c.code, r.Status, r.EndedBy, r.Reasons)
	}
}

func TestStopAtOnce(t *testing.T) {
	t.Parallel()
	w := work(t, deaf)
	if c := w.u.run("", "stop", "--timeout", "0", w.id); c.code != 0 || !strings.Contains(c.stdout, "interrupted") {
		t.Errorf("stop: exit code %d", c.code)
	}
	r := w.end(workorder.ExitInterrupted, workorder.StatusInterrupted, workorder.BySignal)
	if r.Reasons.Code() != workorder.ReasonKilled {
		t.Errorf("reason %q", r.Reasons)
	}
}

// Boot dies in the middle of the agent's work, which leaves no room for rescue: rescue saves it.
func TestBootKilledUnderAForkBomb(t *testing.T) {
	t.Parallel()
	w := newCarefulUser(t).workOn(scripted("limits:\n  pids: 200\n", busy+"sleep 1\n"+bomb))
	boot := w.boot()
	for range 100 {
		if top, err := eng.ContainerTop(t.Context(), w.box(), nil); err == nil && len(top.Processes) > 150 {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if err := syscall.Kill(boot, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	r := w.end(workorder.ExitBox, workorder.StatusError, workorder.ByBox)
	landed(t, w.repo, r)
	if r.Reasons.Code() != workorder.ReasonBoot {
		t.Errorf("reason %q", r.Reasons)
	}
}

// Boot hangs, and the user wants to stop: PID 1 sees to it.
func TestBootHangsAtStop(t *testing.T) {
	t.Parallel()
	w := work(t, "sleep 600")
	if err := syscall.Kill(w.boot(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if c := w.u.run("", "stop", w.id); c.code != 0 {
		t.Errorf("stop: exit code %d", c.code)
	}
	c := w.wait()
	r := w.u.result(w.id)
	if c.code != workorder.ExitCode(r.Status, r.EndedBy) || c.code == 0 {
		t.Errorf("exit code %d, %s by %s", c.code, r.Status, r.EndedBy)
	}
	landed(t, w.repo, r)
}
