package boot

import (
	"context"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/land"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// hanging is whatever follows a landing; the step named at hangs until its context ends.
type hanging struct {
	*fake
	at      workorder.StepName
	signals chan os.Signal
	ended   time.Time // of the signal
	why     error     // why the step's context ended
}

// hang sends a stop signal from within a step and waits for the step's end.
func (h *hanging) hang(ctx context.Context, step workorder.StepName) error {
	if h.at != step {
		return nil
	}
	h.signals <- syscall.SIGTERM
	h.ended = time.Now()
	<-ctx.Done()
	h.why = ctx.Err()
	return h.why
}

func (h *hanging) Surface(ctx context.Context, _, _ string) ([]workorder.SurfaceFinding, error) {
	return nil, h.hang(ctx, "survey")
}

func (h *hanging) Evidence(ctx context.Context, _ []string) (sha string, left []string, err error) {
	return "e1", nil, h.hang(ctx, "evidence")
}

func (h *hanging) Release(ctx context.Context, end workorder.Attempt) error {
	_ = h.hang(ctx, "release")
	return h.fake.Release(ctx, end)
}

func (h *hanging) Answers(ctx context.Context, _ *workorder.Review, _ string) ([]workorder.ReviewAnswer, error) {
	return []workorder.ReviewAnswer{{Number: 1}}, h.hang(ctx, "read answers")
}

func (h *hanging) Post(ctx context.Context, _ *workorder.Review, r *workorder.Result) ([]workorder.ReviewAnswer, string, error) {
	return r.Review, "", h.hang(ctx, workorder.StepReply)
}
func (h *hanging) RemoveAnswered(*workorder.Result) {}

func (h *hanging) Open(ctx context.Context, _ *workorder.Result) (*workorder.PR, string, []string, error) {
	return nil, "", nil, h.hang(ctx, workorder.StepPR)
}

// settler is the repository of a hanging one: one has RemoveAnswered, the other StopSaving.
type settler struct{ *hanging }

func (s settler) StopSaving(ctx context.Context) { s.fake.StopSaving(ctx) }

type hangingRebaser struct {
	*fakeRebaser
	h *hanging
}

func (r hangingRebaser) Comment(ctx context.Context, _ *workorder.Result) (string, error) {
	return "", r.h.hang(ctx, workorder.StepRangeDiff)
}

// A stop signal ends whatever follows the landing at once, and the run stays what it was.
func TestStopAfterTheLanding(t *testing.T) {
	t.Parallel()
	review := &workorder.Review{PR: 7, Items: []workorder.ReviewItem{{Number: 1}}}
	for at, says := range map[workorder.StepName]string{
		"survey": "", "evidence": "", "release": "", "read answers": "", workorder.StepReply: "sandbox-agent pr open T-A1B2C3D4",
		workorder.StepPR: "sandbox-agent pr open T-A1B2C3D4", workorder.StepRangeDiff: errStopSignal.Error(),
	} {
		t.Run(string(at), func(t *testing.T) {
			t.Parallel()
			h := &hanging{fake: &fake{}, at: at, signals: make(chan os.Signal)}
			h.validate = func() []workorder.Validation {
				return []workorder.Validation{{Name: "test", Passed: true, Log: "logs/test.log"}}
			}
			o := order()
			o.Mode, o.Task = workorder.ModeRevise, "x"
			h.cloned = &rootgit.CloneResult{
				Result:   claimed("h0", 2, &workorder.State{Task: "x", Review: review}),
				Restored: &workorder.Restored{},
			}
			if at == workorder.StepRangeDiff {
				o, h.cloned = rebaseOrder(), rebasedTask()
				h.land = func(context.Context) land.Result {
					return land.Result{Head: "n1", Commits: []workorder.Commit{{SHA: "n1"}}, Pushed: true}
				}
			}
			r := playWith(t, h.fake, o, h.signals, func(b *Runner) {
				b.Repo, b.Forge, b.Answers = settler{h}, h, h
				if at == workorder.StepRangeDiff {
					b.Rebaser = hangingRebaser{&fakeRebaser{f: h.fake}, h}
				}
			})
			if h.ended.IsZero() {
				t.Fatalf("it was not asked for: %v", h.calls)
			}
			// The limits of the steps themselves are half a minute and more, and say that they were it.
			if took := time.Since(h.ended); !errors.Is(h.why, context.Canceled) || took > sensitiveFilesBudget/2 {
				t.Errorf("it ended %s after the signal: %v", took, h.why)
			}
			if r.code != workorder.ExitOK || r.result.Status != workorder.StatusSuccess || !r.result.Pushed || h.released == nil {
				t.Errorf("code %d, %s: %s, released %v", r.code, r.result.Status, r.result.Reasons, h.released)
			}
			if says == "" {
				return
			}
			for _, s := range r.result.Steps {
				if s.Name == at && (s.Status != workorder.StepSkipped || !strings.Contains(s.Error, says)) {
					t.Errorf("the step is %s: %s", s.Status, s.Error)
				}
			}
		})
	}
}

// The time limit is the agent's: it does not cost the pull request.
func TestTimeoutLeavesWhatFollows(t *testing.T) {
	t.Parallel()
	forge := &fakeForge{}
	o := order()
	o.TimeoutMinutes = 0.05 // the steps before the agent's have to be done by then
	r := playBox(
		t,
		&fake{agent: func(ctx context.Context) AgentEnd { <-ctx.Done(); return AgentEnd{} }},
		o,
		func(b *Runner) { b.Forge = forge },
	)
	if forge.seen == nil || r.steps()[workorder.StepPR] != workorder.StepDone {
		t.Errorf("%v, %+v", r.steps(), forge.seen)
	}
}
