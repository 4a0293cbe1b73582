package boot

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

type fakeAnswerer struct {
	why     string
	err     error
	settled workorder.Status
	posted  *workorder.Result
}

func (f *fakeAnswerer) Answers(context.Context, *workorder.Review, string) ([]workorder.ReviewAnswer, error) {
	return []workorder.ReviewAnswer{{Number: 1, Answer: workorder.AnsweredByCommit}}, nil
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

func (f *fakeAnswerer) Settle(r *workorder.Result) { f.settled = r.Status }

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
		"answered":          {workorder.ModeRevise, fakeAnswerer{}, workorder.StepDone, "", true},
		"taken over":        {workorder.ModeContinue, fakeAnswerer{}, workorder.StepDone, "", true},
		"no token":          {workorder.ModeRevise, fakeAnswerer{why: "there is no token"}, workorder.StepSkipped, "there is no token", false},
		"the forge is away": {workorder.ModeRevise, fakeAnswerer{err: errors.New("503")}, workorder.StepFailed, "503; sandbox-agent pr open T-A1B2C3D4", false},
		"rebase":            {workorder.ModeRebase, fakeAnswerer{}, "", "", false},
	} {
		o := order()
		o.Mode, o.Task = c.mode, "x"
		f := &fake{cloned: &Cloned{Base: "main", BaseSHA: "b0", Head: "h0", Attempt: 2, Restored: &workorder.Restored{}, State: &workorder.State{Task: "x", Review: review}}}
		r := playBox(t, f, o, func(b *Box) { b.Answers = &c.a })
		if r.result.Status != workorder.StatusSuccess || r.steps()[stepAnswers] != c.status {
			t.Errorf("%s: %s, step %q", name, r.result.Status, r.steps()[stepAnswers])
		}
		if c.status == "" {
			continue
		}
		for _, s := range r.result.Steps {
			if s.Name == stepAnswers && !strings.Contains(s.Error, c.says) {
				t.Errorf("%s: %q", name, s.Error)
			}
		}
		if len(r.result.Review) != 1 || r.result.Review[0].Replied != c.replied || c.a.settled != workorder.StatusSuccess {
			t.Errorf("%s: %+v, settled by %q", name, r.result.Review, c.a.settled)
		}
		if p := c.a.posted; p != nil && (p.HeadSHA != "h1" || !p.Pushed || p.Status != workorder.StatusSuccess) {
			t.Errorf("%s: posted of %+v", name, p)
		}
	}
}
