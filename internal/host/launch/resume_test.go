package launch_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/job"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/outcome"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/host/taskstore"
	"github.com/sandbox-agent/sandbox-agent/internal/test/runtimetest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const sha = "0123456789abcdef0123456789abcdef01234567"

// resume carries out the job once more, as a next attempt.
func (f *fixture) resume(t *testing.T, j *job.Job) (*workorder.Result, error) {
	t.Helper()
	lock, err := f.Store.TryLock(j.Order.TaskID)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Unlock()
	rec, err := f.Store.Load(j.Order.TaskID)
	if err != nil {
		t.Fatal(err)
	}
	j.Order.AttemptID, j.Order.Mode = workorder.NewAttemptID(), workorder.ModeContinue
	return f.Resume(t.Context(), nil, j, rec)
}

// TestResume: the kept box of a former attempt is in nobody's way, and what
// happened is told for each attempt apart.
func TestResume(t *testing.T) {
	t.Parallel()
	n := 0
	f := setup(t, func(b *runtimetest.Box) int {
		g := newGuest(b)
		n++
		g.say(workorder.Event{Type: workorder.EventAgentText, Text: fmt.Sprint("box ", n)})
		if n == 1 {
			return g.end(workorder.StatusTimeout, workorder.EndedByTimeout)
		}
		return g.end(workorder.StatusSuccess, workorder.EndedByAgent)
	})
	j := newJob()
	j.Keep = true
	res, err := f.Run(t.Context(), nil, j)
	if err != nil || res.Attempt != 1 || res.AttemptID != j.Order.AttemptID || !res.Resumable || res.NextCommand != "sandbox-agent continue "+j.Order.TaskID {
		t.Fatalf("%+v, %v", res, err)
	}
	if res, err = f.resume(t, j); err != nil || res.Status != workorder.StatusSuccess || res.Attempt != 2 || res.AttemptID != j.Order.AttemptID {
		t.Fatalf("%+v, %v", res, err)
	}
	rec, _ := onDisk(t, f.Store, j.Order.TaskID)
	if f.fake.Count() != 2 || rec.Box != runtime.BoxName(rec.TaskID, 2) {
		t.Errorf("%d boxes, the last is %s", f.fake.Count(), rec.Box)
	}
	for attempt := 1; attempt <= 2; attempt++ {
		past, err := rec.At(attempt)
		if err != nil {
			t.Fatal(err)
		}
		var said []string
		first := workorder.Event{}
		if err := outcome.Recorded(past, func(e workorder.Event) {
			if first.Type == "" {
				first = e
			}
			if e.Type == workorder.EventAgentText {
				said = append(said, e.Text)
			}
		}); err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprint("box ", attempt); !slices.Equal(said, []string{want}) || first.Type != workorder.EventTask {
			t.Errorf("attempt %d begins with %+v and says %q", attempt, first, said)
		}
	}
	if _, err := f.Discard(t.Context(), rec, false); err != nil || f.fake.Count() != 0 {
		t.Errorf("%d boxes are left, %v", f.fake.Count(), err)
	}
}

// TestResumeBadGround: where nothing can be started there is no attempt, and where
// a box cannot be started there is one of its own.
func TestResumeBadGround(t *testing.T) {
	t.Parallel()
	f := setup(t, func(b *runtimetest.Box) int {
		return newGuest(b).end(workorder.StatusTimeout, workorder.EndedByTimeout)
	})
	j := newJob()
	if _, err := f.Run(t.Context(), nil, j); err != nil {
		t.Fatal(err)
	}
	before, _ := onDisk(t, f.Store, j.Order.TaskID)
	files, err := os.ReadDir(before.Dir)
	if err != nil {
		t.Fatal(err)
	}
	f.Remote = remote{exiterr.New(workorder.ExitGit, errors.New("refused"), "")}
	if _, err := f.resume(t, j); exiterr.Code(err) != workorder.ExitGit {
		t.Errorf("%v", err)
	}
	rec, res := onDisk(t, f.Store, j.Order.TaskID)
	if now, err := os.ReadDir(rec.Dir); err != nil || len(now) != len(files) || rec.Number() != 1 || res.Status != workorder.StatusTimeout {
		t.Errorf("%+v, %+v, %v", rec, now, err)
	}
	f.Remote = remote{}
	f.Images = images{err: exiterr.New(workorder.ExitBox, errors.New("no image"), "")}
	if _, err := f.resume(t, j); exiterr.Code(err) != workorder.ExitBox {
		t.Errorf("%v", err)
	}
	rec, res = onDisk(t, f.Store, j.Order.TaskID)
	if rec.Number() != 2 || res.Status != workorder.StatusError || !rec.Resumable() {
		t.Errorf("%+v, %+v", rec, res)
	}
	past, err := rec.At(1)
	if err != nil {
		t.Fatal(err)
	}
	if res, err := outcome.ReadResult(past); err != nil || res.Status != workorder.StatusTimeout {
		t.Errorf("%+v, %v", res, err)
	}
}

// halfStarted is an engine that goes away when it has started the box.
type halfStarted struct{ *runtimetest.Fake }

func (h halfStarted) Run(ctx context.Context, spec runtime.ContainerSpec, stdin io.Reader) (string, error) {
	id, err := h.Fake.Run(ctx, spec, stdin)
	if err == nil {
		h.SetDown(true)
		err = fmt.Errorf("hand over the work order to %s: %w", id, runtime.ErrUnavailable)
	}
	return "", err
}

// TestMayLive: an attempt whose box may live is not told to be over, so that its
// lease is waited for.
func TestMayLive(t *testing.T) {
	t.Parallel()
	orders, over := make(chan workorder.Order, 3), make(chan struct{})
	f := setup(t, func(b *runtimetest.Box) int {
		g := newGuest(b)
		orders <- g.env.Order
		if g.env.Order.Mode == workorder.ModeCreate {
			<-over
		}
		return g.end(workorder.StatusTimeout, workorder.EndedByTimeout)
	})
	defer close(over)
	j := newJob()
	j.Detach = true
	f.Engine = halfStarted{f.fake}
	if res, err := f.Run(t.Context(), nil, j); !errors.Is(err, runtime.ErrUnavailable) || res.Status != workorder.StatusError {
		t.Fatalf("%+v, %v", res, err)
	}
	<-orders
	f.fake.SetDown(false)
	f.Engine, j.Detach = f.fake, false
	for range 2 {
		if res, err := f.resume(t, j); err != nil || res.Status != workorder.StatusTimeout {
			t.Fatalf("%+v, %v", res, err)
		}
	}
	if second, third := <-orders, <-orders; len(second.Ended) != 0 || !slices.Equal(third.Ended, []string{second.AttemptID}) {
		t.Errorf("told %q and %q", second.Ended, third.Ended)
	}
	rec, _ := onDisk(t, f.Store, j.Order.TaskID)
	if _, err := f.Discard(t.Context(), rec, false); !errors.Is(err, launch.ErrRunning) {
		t.Errorf("discarding: %v", err)
	}
	if left, err := f.Discard(t.Context(), rec, true); err != nil || len(left) > 0 || f.fake.Count() != 0 {
		t.Errorf("%d boxes, left %q, %v", f.fake.Count(), left, err)
	}
}

// TestLostSaid: what is on the remote of a box that vanished, and how much is not.
func TestLostSaid(t *testing.T) {
	t.Parallel()
	// No run has lost more than it has lasted, and a longer one not more than the interval and the save.
	const saved, savedLong, taken, long = `^[^:0-9]* 1 s [^:]*$`, `^[^:0-9]* 61 s [^:]*$`, "the remote takes pushes again", "minutes pass"
	for name, c := range map[string]struct {
		events []string
		want   string // a pattern of what the reason names, in its order; empty: there is no reason of what was lost
	}{
		"saved":                    {[]string{"branch", "checkpoint"}, saved},
		"saved in a long run":      {[]string{long, "branch", "checkpoint"}, savedLong},
		"nothing uncommitted":      {[]string{"branch"}, saved},
		"never":                    {nil, ""},
		"never, for a reason":      {[]string{"push fails"}, "^[^0-9]*: push fails$"},
		"not since":                {[]string{"checkpoint", "push fails", "snapshot fails"}, `^[^0-9]*20\d\d-\S+Z.* 1\d\d s: snapshot fails$`},
		"again":                    {[]string{"checkpoint", "push fails", "checkpoint"}, saved},
		"again, nothing was new":   {[]string{"checkpoint", "push fails", taken}, saved},
		"not by another ref":       {[]string{"checkpoint", "push fails", "kept"}, ` \d+ s: push fails$`},
		"not by the lease's end":   {[]string{"branch", "lease lost"}, `20\d\d-\S+Z.* \d+ s: lease lost$`},
		"nor by a lease that came": {[]string{"push fails", "lease acquired"}, "^[^0-9]*: push fails$"},
	} {
		t.Run(name, func(t *testing.T) {
			begun, passed := time.Now(), atomic.Int64{} // the clock stands still otherwise: seconds are counted
			f := setup(t, func(b *runtimetest.Box) int {
				passed.Store(int64(time.Second / 2))
				g := newGuest(b)
				o := &g.env.Order
				g.say(workorder.Event{Type: workorder.EventStepStarted, Name: "agent"})
				for _, e := range c.events {
					if e == long {
						passed.Store(int64(5 * time.Minute))
						continue
					}
					ev := workorder.Event{Type: workorder.EventPush, Name: workorder.BranchRef(o.TargetBranch), Status: "ok", Text: sha, DurationMS: 20}
					switch e {
					case "branch":
					case "kept":
						ev.Name = workorder.KeptRef(o.TaskID, "x")
					case taken:
						ev.Name, ev.Text = workorder.StateRef(o.TaskID), e
					case "checkpoint", "snapshot fails":
						ev.Type, ev.Name = workorder.EventCheckpoint, workorder.CheckpointRef(o.TaskID)
					case "lease lost", "lease acquired":
						ev = workorder.Event{Type: workorder.EventLease, Status: e[len("lease "):], Text: e}
					}
					if strings.HasSuffix(e, " fails") {
						ev.Status, ev.Text, g.late = "error", e, g.late+time.Minute
					}
					g.say(ev)
				}
				return 137
			})
			f.Now = func() time.Time { return begun.Add(time.Duration(passed.Load())) }
			res, err := f.Run(t.Context(), nil, newJob())
			if err != nil || res.Status != workorder.StatusLost || len(res.Reasons) == 0 {
				t.Fatalf("%+v, %v", res, err)
			}
			first, rest := res.Reasons[0], res.Reasons[1:]
			if first.Code != workorder.ReasonVanished || !strings.Contains(first.Detail, string(workorder.StepAgent)) || !strings.Contains(first.Detail, "137") {
				t.Errorf("%+v", first)
			}
			if len(rest) > 1 || (len(rest) == 1) != (c.want != "") {
				t.Errorf("%+v, want %s", rest, c.want)
			} else if len(rest) == 1 && (rest[0].Code != workorder.ReasonUnsaved || !regexp.MustCompile(c.want).MatchString(rest[0].Detail)) {
				t.Errorf("%+v, want %s", rest, c.want)
			}
		})
	}
}

// TestLostHas: what reached the remote of a box that vanished, and what it cost.
func TestLostHas(t *testing.T) {
	t.Parallel()
	f := setup(t, func(b *runtimetest.Box) int {
		g := newGuest(b)
		g.say(workorder.Event{Type: workorder.EventPush, Name: workorder.BranchRef(g.env.Order.TargetBranch), Status: "ok", Text: sha})
		g.say(workorder.Event{Type: workorder.EventCheckpoint, Name: workorder.CheckpointRef(g.env.Order.TaskID), Status: "ok", Text: sha})
		for _, usd := range []float64{0.5, 1.25} {
			g.say(workorder.Event{Type: workorder.EventAgentUsage, Usage: &workorder.Usage{CostUSD: &usd, OutputTokens: 7}})
		}
		return 137
	})
	j := newJob()
	res, err := f.Run(t.Context(), nil, j)
	if err != nil || !res.Resumable || res.HeadSHA != sha || res.NextCommand != "sandbox-agent continue "+j.Order.TaskID ||
		res.Usage.CostUSD == nil || *res.Usage.CostUSD != 1.25 || res.Usage.OutputTokens != 7 {
		t.Errorf("%+v, %v", res, err)
	}
	if res.Checkpoint == nil || res.Checkpoint.SHA != sha || res.Checkpoint.At.IsZero() {
		t.Errorf("%+v", res.Checkpoint)
	}
}

// TestOtherAttempt: a result that is not of the box that was started is not believed.
func TestOtherAttempt(t *testing.T) {
	t.Parallel()
	f := setup(t, func(b *runtimetest.Box) int {
		g := newGuest(b)
		r := &workorder.Result{TaskID: g.env.Order.TaskID, AttemptID: "ffffffffffffffff", Status: workorder.StatusSuccess, EndedBy: workorder.EndedByAgent}
		line, err := r.Encode()
		if err != nil {
			panic(err)
		}
		b.WriteFile(workorder.OutDir+"/"+workorder.ResultFile, line)
		return 0
	})
	res, err := f.Run(t.Context(), nil, newJob())
	if err != nil || res.Status != workorder.StatusLost || len(res.Warnings) == 0 {
		t.Errorf("%+v, %v", res, err)
	}
}

// TestParkedJudged: a box cannot park a task for a year, nor name commits that are none.
func TestParkedJudged(t *testing.T) {
	t.Parallel()
	soon, far := time.Now().Add(time.Hour), time.Now().Add(365*24*time.Hour)
	for name, c := range map[string]struct {
		said workorder.Result
		want bool
	}{
		"parked":     {workorder.Result{Status: workorder.StatusParked, EndedBy: workorder.EndedByLimit, ResumeAt: &soon}, true},
		"far":        {workorder.Result{Status: workorder.StatusParked, EndedBy: workorder.EndedByLimit, ResumeAt: &far}, false},
		"not parked": {workorder.Result{Status: workorder.StatusTimeout, EndedBy: workorder.EndedByTimeout, ResumeAt: &soon}, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := setup(t, func(b *runtimetest.Box) int {
				g := newGuest(b)
				r := c.said
				r.Checkpoint = &workorder.Checkpoint{SHA: "$(evil)"}
				r.Restored = &workorder.Restored{Head: "--evil", Checkpoint: sha, Tree: "x", Verified: true, Kept: "refs/heads/main"}
				r.TaskID = g.env.Order.TaskID
				g.say(workorder.Event{Type: workorder.EventResult, Result: &r})
				return 11
			})
			j := newJob()
			res, err := f.Run(t.Context(), nil, j)
			if err != nil || (res.ResumeAt != nil) != c.want || strings.HasSuffix(res.NextCommand, " --wait") != c.want || !res.Resumable {
				t.Errorf("%+v, %v", res, err)
			}
			if v := res.Restored; res.Checkpoint != nil || v == nil || v.Head != "" || v.Checkpoint != sha || v.Verified || v.Kept != "" {
				t.Errorf("%+v, %+v", res.Checkpoint, v)
			}
			if rec, _ := onDisk(t, f.Store, j.Order.TaskID); (rec.ResumeAt != nil) != c.want {
				t.Errorf("%+v", rec)
			}
		})
	}
}

// TestWatchPast: who followed an attempt learns how that one ended, though the
// next one has begun.
func TestWatchPast(t *testing.T) {
	t.Parallel()
	f := setup(t, func(b *runtimetest.Box) int {
		return newGuest(b).end(workorder.StatusTimeout, workorder.EndedByTimeout)
	})
	j := newJob()
	if _, err := f.Run(t.Context(), nil, j); err != nil {
		t.Fatal(err)
	}
	was, _ := onDisk(t, f.Store, j.Order.TaskID)
	if err := f.Store.NextAttempt(was, &taskstore.Record{TaskID: was.TaskID, AttemptID: workorder.NewAttemptID()}); err != nil {
		t.Fatal(err)
	}
	lock, err := f.Store.TryLock(was.TaskID)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // while the next one is held, and when it is not
		if res, err := f.Watch(t.Context(), was); err != nil || res.Attempt != 1 || res.Status != workorder.StatusTimeout {
			t.Errorf("%+v, %v", res, err)
		}
		lock.Unlock()
	}
	rec, err := f.Store.Load(was.TaskID)
	if err != nil {
		t.Fatal(err)
	}
	// Its command died before it started a box.
	if res, err := f.Collect(t.Context(), rec); err != nil || res.Status != workorder.StatusLost || res.Attempt != 2 {
		t.Errorf("%+v, %v", res, err)
	}
	if _, err := os.Stat(filepath.Join(rec.Dir, taskstore.AttemptsDir, "1", workorder.ResultFile)); err != nil {
		t.Error(err)
	}
}

// TestBundleGoesAlong: what an attempt could not push is given to every later one,
// until there is a newer bundle.
func TestBundleGoesAlong(t *testing.T) {
	t.Parallel()
	n := 0
	var got []string
	f := setup(t, func(b *runtimetest.Box) int {
		g := newGuest(b)
		n++
		in, there := b.ReadFile(workorder.BundleIn)
		if there != g.env.Order.Bundle {
			t.Errorf("box %d: the order says %v, the file is there: %v", n, g.env.Order.Bundle, there)
		}
		got = append(got, string(in))
		if n != 2 {
			b.WriteFile(workorder.OutDir+"/"+workorder.BundleFile, fmt.Append(nil, "bundle ", n))
		}
		return g.end(workorder.StatusError, workorder.EndedByGit)
	})
	j := newJob()
	if _, err := f.Run(t.Context(), nil, j); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := f.resume(t, j); err != nil {
			t.Fatal(err)
		}
	}
	if want := []string{"", "bundle 1", "bundle 1", "bundle 3"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestBundleOutlived: what a later attempt has pushed counts, not what an earlier
// one could not push.
func TestBundleOutlived(t *testing.T) {
	t.Parallel()
	n := 0
	var got []string
	f := setup(t, func(b *runtimetest.Box) int {
		g := newGuest(b)
		n++
		in, _ := b.ReadFile(workorder.BundleIn)
		got = append(got, string(in))
		if n == 2 {
			return g.endAs(workorder.Result{Status: workorder.StatusTimeout, EndedBy: workorder.EndedByTimeout, Pushed: true, Branch: g.env.Order.TargetBranch})
		}
		if n == 1 || n == 4 {
			b.WriteFile(workorder.OutDir+"/"+workorder.BundleFile, fmt.Append(nil, "bundle ", n))
		}
		return g.end(workorder.StatusError, workorder.EndedByGit)
	})
	j := newJob()
	if _, err := f.Run(t.Context(), nil, j); err != nil {
		t.Fatal(err)
	}
	for range 4 {
		if _, err := f.resume(t, j); err != nil {
			t.Fatal(err)
		}
	}
	if want := []string{"", "bundle 1", "", "", "bundle 4"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestAttemptNumber: the box counts what began, and this machine knows of tries
// that did not, or not of those elsewhere.
func TestAttemptNumber(t *testing.T) {
	t.Parallel()
	for says, want := range map[int]int{0: 3, 2: 2, 5: 5, -1: 3, 1 << 40: 3} {
		f := setup(t, func(b *runtimetest.Box) int {
			return newGuest(b).endAs(workorder.Result{Status: workorder.StatusSuccess, EndedBy: workorder.EndedByAgent, Attempt: says})
		})
		j := newJob()
		j.Attempt = 3
		if res, err := f.Run(t.Context(), nil, j); err != nil || res.Attempt != want {
			t.Errorf("the box says %d: %+v, %v", says, res, err)
		}
	}
}
