package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/host/taskstore"
	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
	"github.com/sandbox-agent/sandbox-agent/internal/test/runtimetest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const tid = "T-A1B2C3D4"

// rig is a command line on a fake engine and a real remote. Its boxes keep the
// task's state on the remote as real ones do, and end as they are told.
type rig struct {
	t       *testing.T
	fake    *runtimetest.Fake
	bare    string
	project string
	state   string // state folder
	images  app.Images
	env     map[string]string // variables beside the usual ones, or in their place

	mu     sync.Mutex
	orders []workorder.Order
	ends   []func(*workorder.Result) // of the boxes to come; the last one repeats
	silent bool                      // boxes die before the remote knows of them
	hold   chan struct{}             // boxes end when it is closed
	opened int                       // commands that have asked for the engine: what they know of the task they have read before
	st     workorder.State
}

type fakeImages struct{ app.Images }

func (fakeImages) Ensure(context.Context, string, []string, func(workorder.Event)) (workorder.Image, error) {
	return workorder.Image{ID: "sha256:1", Name: "x"}, nil
}

func (fakeImages) Prepare(_ context.Context, img workorder.Image, _ []string, _ map[string]string, _ func(workorder.Event)) (workorder.Image, error) {
	return img, nil
}

func newRig(t *testing.T, ends ...func(*workorder.Result)) *rig {
	t.Helper()
	srv := gittest.New(t, "tok")
	url := srv.Create(t, "r.git", nil)
	r := &rig{t: t, bare: filepath.Join(srv.Root, "r.git"), ends: ends, state: t.TempDir(), images: fakeImages{}, hold: make(chan struct{})}
	close(r.hold)
	r.project = filepath.Join(t.TempDir(), "p.yaml")
	yaml := "name: shop\nrepo: " + url + "\nharness: {name: command, command: 'true'}\n"
	if err := os.WriteFile(r.project, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	r.fake = runtimetest.NewFake(map[string]runtimetest.Program{"x": r.box})
	return r
}

func ends(s workorder.Status, by workorder.EndedBy) func(*workorder.Result) {
	return func(r *workorder.Result) { r.Status, r.EndedBy = s, by }
}

func parkedUntil(at time.Time) func(*workorder.Result) {
	return func(r *workorder.Result) {
		r.Status, r.EndedBy, r.ResumeAt = workorder.StatusParked, workorder.EndedByLimit, &at
	}
}

// box is the program of all boxes.
func (r *rig) box(b *runtimetest.Box) int {
	env, err := workorder.DecodeEnvelope(b.Stdin)
	if err != nil {
		fmt.Fprintln(b.Stderr, err)
		return 1
	}
	r.mu.Lock()
	r.orders = append(r.orders, env.Order)
	end := r.ends[min(len(r.orders), len(r.ends))-1]
	r.mu.Unlock()
	fmt.Fprintln(b.Stdout, `{"seq":1,"type":"ready","text":"1"}`)
	<-r.hold
	if r.silent {
		fmt.Fprintln(b.Stdout, `{"seq":2,"type":"agent.usage","usage":{"cost_usd":1.25}}`)
		return 137
	}
	res := &workorder.Result{TaskID: tid, AttemptID: env.Order.AttemptID, StartedAt: time.Now()}
	end(res)
	r.note(&env.Order, res)
	line, err := json.Marshal(workorder.Event{Seq: 2, Time: time.Now(), Type: workorder.EventResult, Result: res})
	if err != nil {
		panic(err)
	}
	b.WriteFile(workorder.OutDir+"/"+workorder.ResultFile, must(res.Encode()))
	fmt.Fprintln(b.Stdout, string(line))
	return workorder.ExitCode(res.Status, res.EndedBy)
}

func must(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}

// note keeps the attempt in the state on the remote.
func (r *rig) note(o *workorder.Order, res *workorder.Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &r.st
	s.TaskID, s.TargetBranch, s.BaseBranch, s.Project = o.TaskID, o.TargetBranch, "main", o.Project
	if o.Mode == workorder.ModeCreate {
		s.Task = o.Task
	}
	s.Attempts = append(s.Attempts, workorder.Attempt{
		ID: o.AttemptID, Number: len(s.Attempts) + 1, Status: res.Status, EndedBy: res.EndedBy, ResumeAt: res.ResumeAt, StartedAt: res.StartedAt,
		Usage: res.Usage,
	})
	r.put()
}

func (r *rig) put() {
	work := r.t.TempDir()
	gittest.Git(r.t, work, "init", "-q")
	if err := os.WriteFile(filepath.Join(work, workorder.StateFile), must(r.st.Encode()), 0o600); err != nil {
		panic(err)
	}
	gittest.Git(r.t, work, "add", "-A")
	gittest.Git(r.t, work, "commit", "-q", "-m", "state")
	gittest.Git(r.t, work, "push", "-q", "-f", r.bare, "HEAD:"+workorder.StateRef(tid))
}

// run runs a command line; P stands for the project file.
func (r *rig) run(args ...string) (code int, out, errs string) {
	var stdout, stderr bytes.Buffer
	code = r.runTo(r.t.Context(), &stdout, &stderr, args...)
	return code, stdout.String(), stderr.String()
}

func (r *rig) runTo(ctx context.Context, stdout, stderr io.Writer, args ...string) int {
	for i := range args {
		if args[i] == "P" {
			args[i] = r.project
		}
	}
	return Main(ctx, r.app(strings.NewReader(""), stdout, stderr), args)
}

// want runs a command line that must end with the code and name what is wanted: a value, not the words around it.
func (r *rig) want(code int, said string, args ...string) {
	r.t.Helper()
	got, out, errs := r.run(args...)
	if got != code || !strings.Contains(out+errs, said) {
		r.t.Errorf("%s: exit %d, want %d and %q:\n%s%s", strings.Join(args, " "), got, code, said, out, errs)
	}
}

// without runs a command line that must end with the code and not name what is not wanted.
func (r *rig) without(code int, unsaid string, args ...string) {
	r.t.Helper()
	got, out, errs := r.run(args...)
	if got != code || strings.Contains(out+errs, unsaid) {
		r.t.Errorf("%s: exit %d, want %d and no %q:\n%s%s", strings.Join(args, " "), got, code, unsaid, out, errs)
	}
}

// boxes is how many there have been.
func (r *rig) boxes(want int) {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.orders) != want {
		r.t.Errorf("%d boxes were started, want %d", len(r.orders), want)
	}
}

func (r *rig) order(i int) workorder.Order {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i >= len(r.orders) {
		r.t.Fatalf("there was no box %d", i+1)
	}
	return r.orders[i]
}

func create(more ...string) []string {
	return append([]string{"create", "-p", "P", "--task", "do it", "--task-id", tid}, more...)
}

func ifExists(more ...string) []string {
	return create(append([]string{"--if-exists", "continue"}, more...)...)
}

func TestContinue(t *testing.T) {
	t.Parallel()
	r := newRig(t, ends(workorder.StatusTimeout, workorder.EndedByTimeout), ends(workorder.StatusSuccess, workorder.EndedByAgent))
	out := t.TempDir()
	r.want(workorder.ExitTimeout, "sandbox-agent continue "+tid, create("--out", out, "--timeout-minutes", "7", "--keep")...)
	r.want(workorder.ExitUsage, "`sandbox-agent continue "+tid+"`", create()...)
	r.want(0, "timeout (resumable)", "ps")
	r.want(0, `"resumable": true`, "ps", "--json")
	r.want(0, tid, "__complete", "continue", "a1")
	r.want(workorder.ExitUsage, "--out", "continue", tid, "--out", t.TempDir())
	r.want(workorder.ExitUsage, "--target-branch main", "continue", tid, "--target-branch", "main")
	r.want(workorder.ExitUsage, " "+r.order(0).TargetBranch, "continue", tid, "--target-branch", "agent/"+tid+"-other")
	r.want(0, `"mode": "continue"`, "continue", tid, "--dry-run", "--json")
	r.boxes(1)

	r.want(0, "1 timeout (timeout)", "continue", "a1b2", "--max-budget-usd", "3")
	first, second := r.order(0), r.order(1)
	if second.Mode != workorder.ModeContinue || second.Task != "" || second.TargetBranch != first.TargetBranch || second.TimeoutMinutes != 7 ||
		second.MaxBudgetUSD == nil || second.AttemptID == first.AttemptID || !slices.Equal(second.Ended, []string{first.AttemptID}) {
		t.Errorf("the second box is told %+v", second)
	}
	for path, want := range map[string]string{"result.json": `"attempt": 2`, "attempts/1/result.json": `"attempt": 1`, "attempts/1/workorder.json": `"do it"`, "attempts/1/events.jsonl": first.AttemptID} {
		if b, err := os.ReadFile(filepath.Join(out, tid, path)); err != nil || !strings.Contains(string(b), want) {
			t.Errorf("%s: %v: %s", path, err, b)
		}
	}
	r.want(0, `"status": "timeout"`, "result", tid, "--attempt", "1", "--json")
	r.want(0, "timeout", "logs", tid, "--attempt", "1")
	r.want(workorder.ExitNotFound, " 3", "result", tid, "--attempt", "3")
	if n := r.fake.Count(); n != 1 {
		t.Errorf("%d boxes are there, want the kept one", n)
	}
	r.without(0, "sandbox-agent-", "gc")

	r.want(workorder.ExitGeneral, "(success)", "continue", tid)
	r.want(0, "success", ifExists()...)
	r.want(0, `"type":"result","status":"success"`, ifExists("--json")...)
	r.boxes(2)
	r.want(0, "success", "continue", tid, "--task", "also this")
	if third := r.order(2); third.Task != "also this" || len(third.Ended) != 2 {
		t.Errorf("the third box is told %+v", third)
	}
	r.want(0, tid, "rm", tid)
	if n := r.fake.Count(); n != 0 {
		t.Errorf("%d boxes are left", n)
	}
}

// TestOnce: however many commands ask at the same moment, there is one box.
func TestOnce(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{"continue": {"continue", tid}, "create": ifExists()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, ends(workorder.StatusInterrupted, workorder.EndedBySignal))
			r.want(workorder.ExitInterrupted, "", create()...)
			r.hold = make(chan struct{})
			const n = 6
			asked := func() int {
				r.mu.Lock()
				defer r.mu.Unlock()
				return r.opened
			}
			all := asked() + n
			codes := make(chan int, n)
			for range n {
				go func() {
					code, _, _ := r.run(slices.Clone(args)...)
					codes <- code
				}()
			}
			// They end in one way or another: the losers of continue with an error at
			// once, those of create with the box.
			got := []int{}
			if name == "continue" {
				for range n - 1 {
					got = append(got, <-codes)
				}
			}
			// Who comes when the box has ended does not ask at the same moment.
			for end := time.Now().Add(time.Minute); asked() < all; time.Sleep(time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("%d of %d commands asked for the engine", asked(), all)
				}
			}
			close(r.hold)
			for len(got) < n {
				got = append(got, <-codes)
			}
			slices.Sort(got)
			want := slices.Repeat([]int{workorder.ExitInterrupted}, n)
			if name == "continue" {
				want = append(slices.Repeat([]int{workorder.ExitGeneral}, n-1), workorder.ExitInterrupted)
			}
			if !slices.Equal(got, want) {
				t.Errorf("exit codes %v, want %v", got, want)
			}
			r.boxes(2)
		})
	}
}

// TestCreateOnce: nobody knows the task yet.
func TestCreateOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, ends(workorder.StatusSuccess, workorder.EndedByAgent))
	const n = 4
	codes := make(chan int, n)
	for range n {
		go func() {
			code, out, errs := r.run(ifExists()...)
			if code != 0 {
				t.Log(out, errs)
			}
			codes <- code
		}()
	}
	for range n {
		if code := <-codes; code != 0 {
			t.Errorf("exit %d", code)
		}
	}
	r.boxes(1)
}

// TestIfExistsRuns: a box that runs is followed, whoever started it.
func TestIfExistsRuns(t *testing.T) {
	t.Parallel()
	r := newRig(t, ends(workorder.StatusFailed, workorder.EndedByValidation))
	r.hold = make(chan struct{})
	r.want(0, tid, create("--detach")...)
	r.want(workorder.ExitGeneral, "sandbox-agent logs -f "+tid, "continue", tid)
	r.want(0, tid, ifExists("--detach")...)
	done := make(chan int)
	go func() {
		code, _, _ := r.run(ifExists()...)
		done <- code
	}()
	close(r.hold)
	if code := <-done; code != workorder.ExitTaskFailed {
		t.Errorf("exit %d", code)
	}
	// A failed validation is an answer; a person may want another try.
	r.want(workorder.ExitTaskFailed, "failed", ifExists()...)
	r.boxes(1)
	r.want(workorder.ExitTaskFailed, "failed", "continue", tid)
	r.boxes(2)
}

func TestParked(t *testing.T) {
	t.Parallel()
	soon := func(res *workorder.Result) { parkedUntil(time.Now().Add(3 * time.Second))(res) } // from the box's end on
	r := newRig(t, parkedUntil(time.Now().Add(48*time.Hour)), soon, ends(workorder.StatusSuccess, workorder.EndedByAgent))
	r.want(workorder.ExitParked, "continue "+tid+" --wait", create()...)
	r.want(0, "parked", "ps")
	r.want(workorder.ExitParked, tid, ifExists()...)
	r.want(workorder.ExitParked, `"resume_at":"2`, ifExists("--json")...)
	r.want(workorder.ExitParked, "--now", "continue", tid)
	r.boxes(1)
	if fresh := taskstore.New(r.state); fresh.Locked(tid) {
		t.Error("the lock is held")
	}
	r.want(workorder.ExitParked, "parked", "continue", tid, "--now")
	r.boxes(2)
	r.want(0, "success", "continue", tid, "--wait")
	r.boxes(3)
}

// TestElsewhere: another machine has the id and the remote only.
func TestElsewhere(t *testing.T) {
	t.Parallel()
	r := newRig(t, ends(workorder.StatusBudgetExceeded, workorder.EndedByBudget), ends(workorder.StatusSuccess, workorder.EndedByAgent))
	r.want(workorder.ExitNotFound, tid, "continue", tid, "-p", "P")
	r.want(workorder.ExitNotFound, "zz", "continue", "zz", "-p", "P")
	r.want(workorder.ExitBudget, "", create()...)
	here := r.state
	r.state = t.TempDir()
	r.want(0, `"mode": "continue"`, "continue", tid, "-p", "P", "--dry-run", "--json")
	r.boxes(1)
	r.want(0, "success", "continue", "-p", "P", "--task", "do it", "--task-id", tid, "--target-branch", "agent/"+tid+"-do-it")
	second := r.order(1)
	if second.Mode != workorder.ModeContinue || second.Task != "do it" || second.TargetBranch != "agent/"+tid+"-do-it" || len(second.Ended) > 0 {
		t.Errorf("%+v", second)
	}
	r.want(0, `"attempt": 2`, "result", tid, "--json")
	// Where it was begun it is known that another one has finished it.
	r.state = here
	r.want(0, "success", ifExists()...)
	r.want(workorder.ExitGeneral, "(success)", "continue", tid)
	// And on a third machine too.
	r.state = t.TempDir()
	r.want(0, "success", ifExists()...)
	r.boxes(2)
}

// TestOnlyBranches: a task of which the remote has a branch and no state.
func TestOnlyBranches(t *testing.T) {
	t.Parallel()
	r := newRig(t, ends(workorder.StatusSuccess, workorder.EndedByAgent))
	gittest.Git(t, r.bare, "branch", "agent/"+tid, "main")
	gittest.Git(t, r.bare, "branch", "agent/"+tid+"-x", "main")
	r.want(workorder.ExitUsage, "--target-branch", "continue", tid, "-p", "P")
	r.want(0, "success", "continue", tid, "-p", "P", "--target-branch", "agent/"+tid+"-x")
	if o := r.order(0); o.TargetBranch != "agent/"+tid+"-x" || o.Mode != workorder.ModeContinue {
		t.Errorf("%+v", o)
	}
}

// TestAfresh: a box that died before the remote knew of it left nothing to go on
// from, and a run that never got a box is none.
func TestAfresh(t *testing.T) {
	t.Parallel()
	r := newRig(t, ends(workorder.StatusSuccess, workorder.EndedByAgent))
	r.fake.SetDown(true)
	r.want(workorder.ExitBox, "", ifExists()...)
	r.want(workorder.ExitBox, "", ifExists()...)
	r.want(0, "[]", "ps", "--all", "--json")
	r.fake.SetDown(false)
	r.silent = true
	r.want(workorder.ExitBox, "lost", ifExists()...)
	r.silent = false
	r.want(0, "", "continue", tid)
	if o := r.order(1); o.Mode != workorder.ModeCreate || o.Task != "do it" || o.SpentUSDByAttempt[r.order(0).AttemptID] != 1.25 {
		t.Errorf("%+v", o)
	}
	r.want(0, "1 lost (host)", "result", tid)
}

// TestSpent: what a box that vanished had told to have spent is told to the next
// one, and no more than that: the rest it reads on the remote.
func TestSpent(t *testing.T) {
	t.Parallel()
	cost := 0.5
	r := newRig(t, func(res *workorder.Result) {
		ends(workorder.StatusInterrupted, workorder.EndedBySignal)(res)
		res.Usage.CostUSD = &cost
	})
	r.want(workorder.ExitInterrupted, "", create()...)
	r.silent = true
	r.want(workorder.ExitBox, "lost", "continue", tid)
	r.silent = false
	r.want(workorder.ExitInterrupted, "", "continue", tid)
	if first, second := r.order(0), r.order(1); first.SpentUSDByAttempt != nil || len(second.SpentUSDByAttempt) != 0 {
		t.Errorf("told %v and %v", first.SpentUSDByAttempt, second.SpentUSDByAttempt)
	}
	if got, want := r.order(2).SpentUSDByAttempt, map[string]float64{r.order(1).AttemptID: 1.25}; !maps.Equal(got, want) {
		t.Errorf("told %v, want %v", got, want)
	}
}

// TestCreateKnownElsewhere: a task that only the remote knows is not begun again.
func TestCreateKnownElsewhere(t *testing.T) {
	t.Parallel()
	r := newRig(t, ends(workorder.StatusTimeout, workorder.EndedByTimeout))
	r.want(workorder.ExitTimeout, "", create()...)
	r.state = t.TempDir()
	r.want(workorder.ExitUsage, "\nhint: `sandbox-agent continue "+tid+"`", create()...)
	r.boxes(1)
	r.want(0, "[]\n", "ps", "--json")
	r.want(workorder.ExitTimeout, "", "continue", tid, "-p", "P")
	r.boxes(2)
}

// TestRefused: of two machines that begin the same task at the same moment one is
// refused; its next try goes on from what the other one left.
func TestRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, ends(workorder.StatusError, workorder.EndedByOrder), ends(workorder.StatusSuccess, workorder.EndedByAgent))
	r.want(workorder.ExitInvalid, "", ifExists()...)
	r.want(0, "success", ifExists()...)
	if o := r.order(1); o.Mode != workorder.ModeContinue {
		t.Errorf("%+v", o)
	}
}

// TestUnreadable: a state that cannot be read keeps nobody from going on.
func TestUnreadable(t *testing.T) {
	t.Parallel()
	r := newRig(t, ends(workorder.StatusInterrupted, workorder.EndedBySignal), ends(workorder.StatusSuccess, workorder.EndedByAgent))
	r.want(workorder.ExitInterrupted, "", create()...)
	r.st.TargetBranch = "main"
	r.put()
	r.want(0, `"main"`, "continue", tid)
	r.boxes(2)
}

// TestLeaseIsTold: the box decides, and the user knows why it waits.
func TestLeaseIsTold(t *testing.T) {
	t.Parallel()
	r := newRig(t, ends(workorder.StatusError, workorder.EndedByLease))
	r.st = workorder.State{
		TaskID: tid, TargetBranch: "agent/" + tid, Lease: &workorder.TaskLease{AttemptID: "00000000000000aa", Holder: "far", RenewedAt: time.Now()},
		Attempts: []workorder.Attempt{{ID: "00000000000000aa", Number: 3}},
	}
	r.put()
	r.want(workorder.ExitGit, "far", ifExists()...)
	r.want(0, `"attempt": 4`, "result", tid, "--json")
}
