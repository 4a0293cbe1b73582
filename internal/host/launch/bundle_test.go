package launch_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/host/companion"
	"github.com/sandbox-agent/sandbox-agent/internal/test/runtimetest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// TestBundle: what came home by a bundle is on the branch, and only a run in which all but the push went well is a success by that.
func TestBundle(t *testing.T) {
	t.Parallel()
	unpushed := workorder.Because(workorder.ReasonPush, "no route; the commits are kept in work.bundle")
	for name, c := range map[string]struct {
		box  workorder.Result
		want workorder.Status
		exit int
	}{
		"only the push failed": {workorder.Result{Status: workorder.StatusError, EndedBy: workorder.EndedByGit, Reasons: unpushed}, workorder.StatusSuccess, workorder.ExitOK},
		"changes that could not be committed": {workorder.Result{
			Status: workorder.StatusError, EndedBy: workorder.EndedByGit,
			Reasons: append(workorder.Because(workorder.ReasonUncommitted, "some of the agent's changes could not be committed"), unpushed...),
		}, workorder.StatusError, workorder.ExitGit},
		"changes that are lost": {workorder.Result{Status: workorder.StatusError, EndedBy: workorder.EndedByAgent, Reasons: workorder.Because(workorder.ReasonLost, "lost"), Uncommitted: true}, workorder.StatusError, workorder.ExitGeneral},
		"a failed check":        {workorder.Result{Status: workorder.StatusFailed, EndedBy: workorder.EndedByValidation, Reasons: workorder.Because(workorder.ReasonValidation, "test")}, workorder.StatusFailed, workorder.ExitTaskFailed},
		"a box that does not say which": {workorder.Result{
			Status: workorder.StatusError, EndedBy: workorder.EndedByGit, Reasons: workorder.Because("", "no route; the commits are kept in work.bundle"),
		}, workorder.StatusError, workorder.ExitGit},
		"a code for another status": {workorder.Result{Status: workorder.StatusTimeout, EndedBy: workorder.EndedByTimeout, Reasons: append(workorder.Because(workorder.ReasonTimeout, "30 minutes"), unpushed...)}, workorder.StatusTimeout, workorder.ExitTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			res := bundled(t, c.box)
			if res.Status != c.want || workorder.ExitCode(res.Status, res.EndedBy) != c.exit || (len(res.Reasons) == 0) != (c.want == workorder.StatusSuccess) {
				t.Errorf("%s by %s (%s), want %s", res.Status, res.EndedBy, res.Reasons, c.want)
			}
		})
	}
}

// bundled is what the host says of a run in a local repository that left a bundle.
func bundled(t *testing.T, box workorder.Result) *workorder.Result {
	t.Helper()
	return imported(t, func(b *runtimetest.Box) int {
		g := newGuest(b)
		b.WriteFile(workorder.OutDir+"/"+workorder.BundleFile, []byte("bundle"))
		return g.endAs(box)
	})
}

// TestBundleOfALostBox: the box could push nothing and left a bundle, but no result.
func TestBundleOfALostBox(t *testing.T) {
	t.Parallel()
	res := imported(t, func(b *runtimetest.Box) int {
		g := newGuest(b)
		g.say(workorder.Event{Type: workorder.EventPush, Name: "agent/x", Status: "error", Text: "no route"})
		b.WriteFile(workorder.OutDir+"/"+workorder.BundleFile, []byte("bundle"))
		return 137
	})
	if res.Reasons.Code() != workorder.ReasonVanished || res.Reasons.Has(workorder.ReasonUnsaved) {
		t.Errorf("%+v", res.Reasons)
	}
}

// imported is the result of a run in a local repository that left a bundle, which was imported.
func imported(t *testing.T, program runtimetest.Program) *workorder.Result {
	t.Helper()
	f := setup(t, program)
	f.StartCompanion = func(context.Context, companion.Config) (companion.Ready, error) {
		return companion.Ready{PID: 1 << 30, Port: 1, Token: "t"}, nil
	}
	var got []string
	f.ImportBundle = func(_ context.Context, repo, _, _, branch string) (string, error) {
		got = append(got, repo, branch)
		return strings.Repeat("a", 40), nil
	}
	j := newJob()
	j.LocalRepo, j.Order.Repo, j.Order.CloneURL = "/src", "/src", ""
	res, err := f.Run(t.Context(), nil, j)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, []string{"/src", j.Order.TargetBranch}) || res.Branch != j.Order.TargetBranch || !res.Pushed || len(res.Warnings) == 0 || res.HeadSHA == "" {
		t.Errorf("imported %v, result %+v", got, res)
	}
	if rec, err := f.Store.Load(j.Order.TaskID); err != nil || !slices.Equal(rec.Reasons, res.Reasons) {
		t.Errorf("recorded %+v of %+v, %v", rec, res.Reasons, err)
	}
	return res
}
