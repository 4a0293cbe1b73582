package boot

import (
	"context"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

type fakeAnswerer struct {
	why     string
	err     error
	settled workorder.Status
	known   bool // as it was settled: the forge has the answer
	posted  *workorder.Result
}

func (f *fakeAnswerer) Answers(context.Context, *workorder.Review, string) ([]workorder.ReviewAnswer, error) {
	return []workorder.ReviewAnswer{{Number: 1, Source: workorder.ReviewFromThread, Answer: workorder.AnswerCommit}}, nil
}

func (f *fakeAnswerer) Post(_ context.Context, _ *workorder.Review, r *workorder.Result) ([]workorder.ReviewAnswer, string, error) {
	if f.why != "" {
		return nil, f.why, nil
	}
	f.posted = r
	answers := []workorder.ReviewAnswer{r.Review[0]}
	answers[0].Replied = f.err == nil
	return answers, "", f.err
}

func (f *fakeAnswerer) RemoveAnswered(r *workorder.Result) {
	f.settled, f.known = r.Status, r.Review[0].Replied
}

// A task with feedback gets its answers, whatever the forge does to them, in the modes that address feedback.
func TestAnswers(t *testing.T) {
	t.Parallel()
	review := &workorder.Review{PR: 7, Items: []workorder.ReviewItem{{Number: 1, Notes: []workorder.ReviewNote{{Text: "x"}}}}}
	for name, c := range map[string]struct {
		mode    workorder.Mode
		a       fakeAnswerer
		status  workorder.StepStatus
		says    string
		replied bool
	}{
		"answered":   {workorder.ModeRevise, fakeAnswerer{}, workorder.StepDone, "", true},
		"taken over": {workorder.ModeContinue, fakeAnswerer{}, workorder.StepDone, "", true},
		"no token":   {workorder.ModeRevise, fakeAnswerer{why: "there is no token"}, workorder.StepSkipped, "there is no token", false},
		"the forge is away": {
			workorder.ModeRevise,
			fakeAnswerer{err: errors.New("503")},
			workorder.StepFailed,
			"503; sandbox-agent pr open T-A1B2C3D4", false,
		},
		"rebase": {workorder.ModeRebase, fakeAnswerer{}, "", "", false},
	} {
		o := order()
		o.Mode, o.Task = c.mode, "x"
		f := &fake{
			cloned: &rootgit.CloneResult{
				Result:   claimed("h0", 2, &workorder.State{Task: "x", Review: review}),
				Restored: &workorder.Restored{},
			},
		}
		r := playBox(t, f, o, func(b *Runner) { b.Answers = &c.a })
		if r.result.Status != workorder.StatusSuccess || r.steps()[workorder.StepReply] != c.status {
			t.Errorf("%s: %s, step %q", name, r.result.Status, r.steps()[workorder.StepReply])
		}
		if c.status == "" {
			continue
		}
		for _, s := range r.result.Steps {
			if s.Name == workorder.StepReply && !strings.Contains(s.Error, c.says) {
				t.Errorf("%s: %q", name, s.Error)
			}
		}
		if len(r.result.Review) != 1 || r.result.Review[0].Replied != c.replied || c.a.settled != workorder.StatusSuccess ||
			c.a.known != c.replied {
			t.Errorf("%s: %+v, settled by %q, %v", name, r.result.Review, c.a.settled, c.a.known)
		}
		if next := r.result.NextCommand; (next == "sandbox-agent pr open T-A1B2C3D4") == c.replied {
			t.Errorf("%s: next is %s", name, next)
		}
		if f.recorded != nil || f.released == nil || f.released.Status != workorder.StatusSuccess {
			t.Errorf("%s: the lease is kept until the answers are given: landed as %+v, released as %+v", name, f.recorded, f.released)
		}
		if p := c.a.posted; p != nil && (p.HeadSHA != "h1" || !p.Pushed || p.Status != workorder.StatusSuccess) {
			t.Errorf("%s: posted of %+v", name, p)
		}
	}
}

// A run that is stopped during the proof has not answered: the feedback stays, and the result says what gives the
// answers. A box that lost the task answers nothing, since another one has the feedback now.
func TestNotAnswered(t *testing.T) {
	t.Parallel()
	review := &workorder.Review{PR: 7, Items: []workorder.ReviewItem{{Number: 1, Notes: []workorder.ReviewNote{{Text: "x"}}}}}
	for _, lost := range []bool{false, true} {
		o := order()
		o.Mode, o.Task = workorder.ModeRevise, "x"
		signals := make(chan os.Signal, 1)
		f := &fake{
			lost: make(chan struct{}),
			cloned: &rootgit.CloneResult{
				Result:   claimed("h0", 2, &workorder.State{Task: "x", Review: review}),
				Restored: &workorder.Restored{},
			},
		}
		says, settled := "sandbox-agent pr open T-A1B2C3D4", workorder.StatusSuccess
		if lost {
			says, settled = errLeaseLost.Error(), ""
		}
		a := &fakeAnswerer{}
		r := playBox(t, f, o, func(b *Runner) {
			b.Answers, b.Signals = a, signals
			b.Prover = proverFunc(func(ctx context.Context) {
				if lost {
					close(f.lost)
					return
				}
				signals <- syscall.SIGTERM
				<-ctx.Done()
			})
		})
		if r.result.Status != workorder.StatusSuccess || a.posted != nil || a.settled != settled || a.known {
			t.Errorf("%s, posted %+v, settled by %q, %v", r.result.Status, a.posted, a.settled, a.known)
		}
		for _, s := range r.result.Steps {
			if s.Name == workorder.StepReply && (s.Status != workorder.StepSkipped || !strings.Contains(s.Error, says)) {
				t.Errorf("%s: %q", s.Status, s.Error)
			}
		}
		if (r.result.NextCommand == "sandbox-agent pr open T-A1B2C3D4") == lost {
			t.Errorf("next is %s", r.result.NextCommand)
		}
	}
}

type proverFunc func(ctx context.Context)

func (p proverFunc) Endless(string) []workorder.LeftOut   { return nil }
func (p proverFunc) RecordBaseline(context.Context) error { return nil }

func (p proverFunc) Prove(ctx context.Context, _, _ string) (*workorder.Proof, []workorder.Evidence, error) {
	p(ctx)
	return &workorder.Proof{}, nil, nil
}

func (p proverFunc) Checks(ctx context.Context, base, head string) (*workorder.Proof, error) {
	proof, _, err := p.Prove(ctx, base, head)
	return proof, err
}
