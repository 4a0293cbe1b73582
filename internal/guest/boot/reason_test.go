package boot

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/tree"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/land"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

func all(codes ...workorder.ReasonCode) []workorder.ReasonCode { return codes }

func codes(reasons workorder.Reasons) (list []workorder.ReasonCode) {
	for _, r := range reasons {
		list = append(list, r.Code)
	}
	return list
}

// TestReasonCode: the host takes a run in which only the push failed for a success once it has the commits. Nothing
// else may look like that.
func TestReasonCode(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	one := []workorder.Commit{{SHA: "h1"}}
	bundled := func(context.Context) land.Result {
		return land.Result{Head: "h1", Commits: one, Bundle: "/out/work.bundle", Err: boom}
	}
	partly := func(context.Context) error { return errors.New("could not commit sub/") }
	failing := func() []workorder.Validation { return []workorder.Validation{{Name: "test", ExitCode: 1}} }
	for name, c := range map[string]struct {
		fake *fake
		want []workorder.ReasonCode
	}{
		"all went well":        {&fake{}, nil},
		"only the push failed": {&fake{land: bundled}, all(workorder.ReasonPush)},
		"and nothing is kept": {
			&fake{land: func(context.Context) land.Result { return land.Result{Head: "h1", Commits: one, Err: boom} }},
			all(workorder.ReasonUncommitted, workorder.ReasonLeft),
		},
		"the push of no commits": {&fake{land: func(context.Context) land.Result {
			return land.Result{Head: "b0", Bundle: "/out/work.bundle", Err: boom}
		}}, all(workorder.ReasonLanding)},
		"uncommitted changes":             {&fake{commit: partly}, all(workorder.ReasonUncommitted)},
		"uncommitted changes and no push": {&fake{commit: partly, land: bundled}, all(workorder.ReasonUncommitted, workorder.ReasonPush)},
		"lost changes and no push":        {&fake{commit: partly, archive: boom, land: bundled}, all(workorder.ReasonLost, workorder.ReasonPush)},
		"files that are too large":        {&fake{commit: partly, archive: tree.ErrTooLarge}, all(workorder.ReasonUncommitted)},
		"a failed check and no push":      {&fake{validate: failing, land: bundled}, all(workorder.ReasonValidation, workorder.ReasonPush)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if r := play(t, c.fake, order(), nil); !slices.Equal(codes(r.result.Reasons), c.want) {
				t.Errorf("%s by %s, %q: want %q", r.result.Status, r.result.EndedBy, codes(r.result.Reasons), c.want)
			}
		})
	}
}
