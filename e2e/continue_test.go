//go:build e2e

package e2e

import (
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/docker/docker/api/types/container"

	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// twice works until it is stopped in the first box; in the next one it finds
// all of that, and finishes.
const twice = `
if [ "$SANDBOX_AGENT_MODE" = continue ]; then
	test "$(cat committed uncommitted)" = "$(printf 'committed\nuncommitted')" || exit 9
	echo "print restored: $(git status --porcelain)"
	echo finished >finished
	exit 0
fi
` + busy

// finished checks the end of a task that twice finished.
func (k *kept) finished(t *testing.T, r *workorder.Result) {
	t.Helper()
	landed(t, k.bare, r)
	if got := k.show(t, r.Branch, "finished"); got != "finished" {
		t.Errorf("the second box's work: %q", got)
	}
	if k.ref(t, workorder.CheckpointRef(k.id)) != "" {
		t.Error("all is in the branch, and there is still a checkpoint")
	}
}

// The box and all that its machine knew are gone; another machine has the
// project and the task's id.
func TestContinueOnAnotherMachine(t *testing.T) {
	t.Parallel()
	told := map[string]func(k *kept, branch string) []string{
		"id": func(k *kept, _ string) []string { return []string{"--task-id", k.id} },
	}
	if nightly {
		told["whole command line"] = func(k *kept, branch string) []string {
			return []string{"--task", "x", "--task-id", k.id, "--target-branch", branch}
		}
	}
	for name, args := range told {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := newKept(t, nil)
			here, there := k.machine(t), k.machine(t)
			project := k.project(here, "", twice+"sleep 600")
			s := k.begin(here, project)
			k.at(t, "agent's commit")
			k.holds(t, workorder.CheckpointRef(k.id), "uncommitted")
			branch := k.branch(t)
			s.waitFor("push " + branch + ": ok") // what the box did not tell, the lost run's result cannot say
			k.kill(t)
			lost := k.ended(here, s.wait(), workorder.StatusLost, workorder.EndedByHost)
			if !lost.Pushed || lost.Branch != branch || lost.HeadSHA != k.ref(t, workorder.BranchRef(branch)) {
				t.Errorf("the result of the lost run names branch %q at %q, pushed %v", lost.Branch, lost.HeadSHA, lost.Pushed)
			}

			c := there.run("", append([]string{"continue", "--project", project}, args(k, branch)...)...)
			r := k.ended(there, c, workorder.StatusSuccess, workorder.EndedByAgent)
			k.finished(t, r)
			if got := c.printed("print"); !slices.Equal(got, []string{"restored: ?? uncommitted"}) {
				t.Errorf("the second agent saw %q", got)
			}
			if r.Mode != workorder.ModeContinue || r.Attempt != 2 || r.Branch != branch || r.Restored == nil || !r.Restored.Verified {
				t.Errorf("mode %s, attempt %d, branch %s, restored %+v", r.Mode, r.Attempt, r.Branch, r.Restored)
			}
			st := k.state(t)
			if st.Task != "x" || len(st.Added) != 0 || len(st.Attempts) != 2 || st.Attempts[0].Status != workorder.StatusLost {
				t.Errorf("the remote says %+v", st)
			}

			// The first machine asks the remote before it starts anything.
			if c := here.run("", "continue", k.id); c.code != workorder.ExitGeneral {
				t.Errorf("continue of a task that is done: exit code %d", c.code)
			}
			if c := here.run("", k.create(project, "--if-exists", "continue")...); c.code != 0 || !strings.Contains(c.stdout, k.id) {
				t.Errorf("the same command again: exit code %d", c.code)
			}
			k.boxes(t, 2)
		})
	}
}

// Two machines, one task: the second is refused, and the first never notices.
func TestSecondBoxIsRefused(t *testing.T) {
	t.Parallel()
	k := newKept(t, nil)
	here, there := k.machine(t), k.machine(t)
	project := k.project(here, "", twice+await("end"))
	s := k.begin(here, project)
	k.holds(t, workorder.CheckpointRef(k.id), "uncommitted")
	c := there.run("", "continue", "--project", project, "--task-id", k.id)
	r := k.read(there)
	k.valid(there, r)
	if c.code != workorder.ExitGit || r.Status != workorder.StatusError || r.EndedBy != workorder.EndedByLease {
		t.Errorf("exit code %d, %s by %s: %s", c.code, r.Status, r.EndedBy, r.Reasons)
	}
	if r.Pushed || len(c.printed("print")) != 0 || r.Reasons.Code() != workorder.ReasonLease {
		t.Errorf("pushed %v, reason %q", r.Pushed, r.Reasons)
	}
	if st := k.state(t); len(st.Attempts) != 1 || st.Lease == nil || st.Lease.AttemptID != st.Attempts[0].ID {
		t.Errorf("the remote says %+v, lease %+v", st.Attempts, st.Lease)
	}
	k.tell(t, "end")
	first := k.ended(here, s.wait(), workorder.StatusSuccess, workorder.EndedByAgent)
	landed(t, k.bare, first)
	if len(first.Warnings) != 0 {
		t.Errorf("warnings %q", first.Warnings)
	}
}

// A scheduler that knows nothing runs the same command at the same time and
// again: one box, one result, and the same exit code for everybody.
func TestAtLeastOnce(t *testing.T) {
	t.Parallel()
	checks := map[string]string{"fails": "false"}
	if nightly {
		checks["succeeds"] = "true"
	}
	for name, validate := range checks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := newKept(t, nil)
			u := k.machine(t)
			command := k.create(k.project(u, "validate: {check: \""+validate+"\"}\n", busy+"head -c 16 /dev/urandom >random; sleep 2"), "--if-exists", "continue")
			status, by := workorder.StatusSuccess, workorder.EndedByAgent
			if validate == "false" {
				status, by = workorder.StatusUnproven, workorder.EndedByValidation
			}
			var wait sync.WaitGroup
			var runs [3]*started
			for i := range runs {
				runs[i] = u.start("", command...)
			}
			var calls [3]call
			for i, s := range runs {
				wait.Go(func() { calls[i] = s.wait() })
			}
			wait.Wait()
			var head string
			for _, c := range append(calls[:], u.run("", command...)) {
				r := k.ended(u, c, status, by)
				if head == "" {
					head = r.HeadSHA
				}
				if r.HeadSHA != head || r.Attempt != 1 || !strings.Contains(c.stdout, k.id) {
					t.Errorf("attempt %d at %s, want %s", r.Attempt, r.HeadSHA, head)
				}
			}
			k.boxes(t, 1)
		})
	}
}

// The same command from another state folder tells what the first one did, whose result is on the remote.
func TestToldFromAnotherFolder(t *testing.T) {
	t.Parallel()
	k := newKept(t, nil)
	here, there := k.machine(t), k.machine(t)
	head := "validate: {check: \"false\"}\n"
	r := k.ended(here, here.run("", k.create(k.project(here, head, "echo 1 >one"), "--if-exists", "tell")...), workorder.StatusUnproven, workorder.EndedByValidation)
	recorded, err := workorder.DecodeResult([]byte(k.show(t, workorder.ResultRef(k.id), workorder.ResultFile)))
	if err != nil || recorded.AttemptID != r.AttemptID || recorded.Status != r.Status || recorded.HeadSHA != r.HeadSHA {
		t.Errorf("the remote has %+v, %v; want %+v", recorded, err, r)
	}
	if c := there.run("", k.create(k.project(there, head, "echo 1 >one"), "--if-exists", "tell")...); c.code != workorder.ExitUnproven || !strings.Contains(c.stdout, k.id) {
		t.Errorf("told again: exit code %d", c.code)
	}
	k.boxes(t, 1)
}

// A box that is stopped before its agent runs leaves no lease that the next one
// would have to wait for.
func TestStopInEveryStepGivesTheLeaseBack(t *testing.T) {
	t.Parallel()
	slow := "services:\n  slow: {image: " + redisImage + ", command: [sleep, \"600\"], healthcheck: {test: [\"false\"], interval: 1s, retries: 500}, start_timeout: 3m}\n"
	for _, c := range []struct {
		moment, head string
		how          string // with each change; empty: at night only
	}{
		{"clone: started", "", "docker stop"},
		{"services: started", slow, "SIGTERM to the command"},
		{"setup: started", "lifecycle: {setup: [sleep 600]}\n", ""},
		{"agent: started", "", ""},
	} {
		moment, head := c.moment, c.head
		for _, how := range []string{"docker stop", "SIGTERM to the command"} {
			if how != c.how && !nightly {
				continue
			}
			t.Run(moment+" "+how, func(t *testing.T) {
				t.Parallel()
				k := newKept(t, nil)
				here, there := k.machine(t), k.machine(t)
				s := here.start("", k.create(k.project(here, head, "sleep 600"))...)
				s.waitFor(moment)
				if how == "docker stop" {
					if err := eng.ContainerStop(t.Context(), k.box(t), container.StopOptions{}); err != nil {
						t.Fatal(err)
					}
				} else {
					s.Signal(syscall.SIGTERM)
				}
				c := s.wait()
				r := here.result(k.id)
				k.valid(here, r)
				if c.code != workorder.ExitInterrupted || r.Status != workorder.StatusInterrupted || r.EndedBy != workorder.EndedBySignal {
					t.Errorf("exit code %d, %s by %s: %s", c.code, r.Status, r.EndedBy, r.Reasons)
				}
				if k.ref(t, workorder.StateRef(k.id)) != "" {
					if st := k.state(t); st.Lease != nil || st.Last().Status != workorder.StatusInterrupted {
						t.Errorf("the remote says %+v, lease %+v", st.Last(), st.Lease)
					}
				} else if moment != "clone: started" {
					t.Error("the remote does not know the task")
				}
				// A machine that knows nothing of the first box.
				c = there.run("", append(k.create(k.project(there, "", "echo 1 >one")), "--if-exists", "continue", "--json")...)
				k.ended(there, c, workorder.StatusSuccess, workorder.EndedByAgent)
				if strings.Contains(c.stdout, `"status":"waiting"`) {
					t.Error("it had to wait for the lease")
				}
			})
		}
	}
}

// Who interrupts twice kills the box; what was saved before is there, and the
// machine knows that nobody holds the task any more.
func TestContinueAfterTheSecondInterrupt(t *testing.T) {
	t.Parallel()
	k := newKept(t, nil)
	u := k.machine(t)
	u.terminal = true
	s := k.begin(u, k.project(u, "", twice+deaf))
	u.terminal = false
	k.holds(t, workorder.CheckpointRef(k.id), "uncommitted")
	s.insist()
	c := s.wait()
	r := u.result(k.id)
	k.valid(u, r)
	if c.code != workorder.ExitInterrupted || r.Status != workorder.StatusInterrupted || r.EndedBy != workorder.EndedBySignal {
		t.Errorf("exit code %d, %s by %s: %s", c.code, r.Status, r.EndedBy, r.Reasons)
	}
	c = u.run("", "continue", k.id, "--json")
	k.finished(t, k.ended(u, c, workorder.StatusSuccess, workorder.EndedByAgent))
	if strings.Contains(c.stdout, `"status":"waiting"`) {
		t.Error("it had to wait for the lease of a box that this machine killed")
	}
}

// The remote is away when the run lands: the work is in the output, and the
// next box brings it home.
func TestBundleComesHome(t *testing.T) {
	t.Parallel()
	k := newKept(t, nil)
	u := k.machine(t)
	s := k.begin(u, k.project(u, "", strings.Replace(twice, "\necho committed", "\necho agent-is-busy\n"+await("work")+"echo committed", 1)))
	k.remote.Down.Store(true)
	k.tell(t, "work")
	c := s.wait()
	r := u.result(k.id)
	k.valid(u, r)
	if c.code != workorder.ExitGit || r.Status != workorder.StatusError || r.EndedBy != workorder.EndedByGit || r.Pushed || r.Branch != "" {
		t.Errorf("exit code %d, %s by %s, pushed %v: %s", c.code, r.Status, r.EndedBy, r.Pushed, r.Reasons)
	}
	i := slices.IndexFunc(r.Evidence, func(e workorder.Evidence) bool { return e.Kind == "git-bundle" })
	if i < 0 {
		t.Fatalf("no bundle among %+v", r.Evidence)
	}
	bundle := filepath.Join(filepath.Dir(resultPath(t, u, k.id)), r.Evidence[i].Path)
	if heads := gittest.Git(t, k.bare, "bundle", "list-heads", bundle); !strings.Contains(heads, r.HeadSHA) {
		t.Errorf("the bundle has %s, want %s", heads, r.HeadSHA)
	}
	if k.branch(t) != "" {
		t.Fatalf("the remote has %s", k.branch(t))
	}
	// Still away: nothing is begun, and nothing is lost by asking.
	if c := u.run("", "continue", k.id); c.code != workorder.ExitGit {
		t.Errorf("continue without a remote: exit code %d", c.code)
	}
	k.remote.Down.Store(false)
	c = u.run("", "continue", k.id)
	end := k.ended(u, c, workorder.StatusSuccess, workorder.EndedByAgent)
	k.finished(t, end)
	gittest.Git(t, k.bare, "merge-base", "--is-ancestor", r.HeadSHA, end.Branch)
	k.boxes(t, 2)
}
