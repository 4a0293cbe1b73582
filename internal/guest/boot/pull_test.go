package boot

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

type fakeForge struct {
	pr   *workorder.PR
	why  string
	err  error
	seen *workorder.Result
}

func (f *fakeForge) Open(_ context.Context, r *workorder.Result) (*workorder.PR, string, []string, error) {
	f.seen = r
	return f.pr, f.why, []string{"a label is missing"}, f.err
}

// The outcome of the pull request is reported, with how to open it later, and never changes the run's status.
func TestPullRequest(t *testing.T) {
	t.Parallel()
	pr := &workorder.PR{Number: 7, URL: "https://forge.example/7", State: "open"}
	const later = "sandbox-agent pr open T-A1B2C3D4"
	for name, c := range map[string]struct {
		forge  fakeForge
		status workorder.StepStatus
		says   string
	}{
		"opened":              {fakeForge{pr: pr}, workorder.StepDone, ""},
		"opened, not dressed": {fakeForge{pr: pr, err: errors.New("labels: 502")}, workorder.StepFailed, "502"},
		"no token":            {fakeForge{why: "there is no token"}, workorder.StepSkipped, later},
		"the forge is away":   {fakeForge{err: errors.New("503")}, workorder.StepFailed, "503; " + later},
	} {
		f := c.forge
		r := playBox(t, &fake{}, order(), func(b *Runner) { b.Forge = &f })
		step := r.result.Steps[len(r.result.Steps)-1]
		if r.code != workorder.ExitOK || r.result.Status != workorder.StatusSuccess || step.Name != workorder.StepPR ||
			step.Status != c.status ||
			!strings.Contains(step.Error, c.says) {
			t.Errorf("%s: code %d, %s, %+v", name, r.code, r.result.Status, step)
		}
		if (r.result.PR != nil) != (c.forge.pr != nil) || len(r.result.Warnings) != 1 {
			t.Errorf("%s: %+v, %q", name, r.result.PR, r.result.Warnings)
		}
		// The body is made of the whole run, the verdict included.
		if f.seen.Status != workorder.StatusSuccess || f.seen.HeadSHA != "h1" || f.seen.Network == nil {
			t.Errorf("%s: the forge received %+v", name, f.seen)
		}
	}
}

// A rebase with nothing to do calls the forge, too: it then knows the branch's pull request, and no hint to
// open another is given.
func TestPullRequestOfNothing(t *testing.T) {
	t.Parallel()
	for name, rebaser := range map[string]*fakeRebaser{
		"nothing to do": {begun: Rebasing{SkipReason: "it is on main already"}},
		"refused":       {err: errors.New("somebody else pushed")},
	} {
		f := &fake{cloned: rebasedTask()}
		f.cloned.State.Added = []string{"and more"}
		rebaser.f = f
		forge := &fakeForge{pr: &workorder.PR{Number: 7}}
		r := playBox(t, f, rebaseOrder(), func(b *Runner) { b.Forge, b.Rebaser = forge, rebaser })
		if forge.seen == nil || forge.seen.Restored == nil || forge.seen.HeadSHA != "h0" || forge.seen.HeadSHA != forge.seen.Restored.Head {
			t.Fatalf("%s: the forge received %+v", name, forge.seen)
		}
		if r.result.PR == nil || r.result.PR.Number != 7 || strings.Contains(r.result.NextCommand, "pr open") {
			t.Errorf("%s: %+v, next: %s", name, r.result.PR, r.result.NextCommand)
		}
		if a := r.result.TaskText; a == nil || a.Task != "do it" || len(a.Added) != 1 {
			t.Errorf("%s: asked for %+v", name, a)
		}
	}
}
