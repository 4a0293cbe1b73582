package boot

import (
	"context"
	"errors"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// TestReasonCode: the host takes a run in which only the push failed for a success once it has the commits. Nothing
// else may look like that.
func TestReasonCode(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	one := []workorder.Commit{{SHA: "h1"}}
	bundled := func(context.Context) Landing {
		return Landing{Head: "h1", Commits: one, Bundle: "/out/work.bundle", Err: boom}
	}
	partly := func(context.Context) error { return errors.New("could not commit sub/") }
	failing := func() []workorder.Validation { return []workorder.Validation{{Name: "test", ExitCode: 1}} }
	for name, c := range map[string]struct {
		fake *fake
		want workorder.ReasonCode
	}{
		"all went well":                   {&fake{}, ""},
		"only the push failed":            {&fake{land: bundled}, workorder.ReasonPush},
		"and nothing is kept":             {&fake{land: func(context.Context) Landing { return Landing{Head: "h1", Commits: one, Err: boom} }}, workorder.ReasonLeft},
		"the push of no commits":          {&fake{land: func(context.Context) Landing { return Landing{Head: "b0", Bundle: "/out/work.bundle", Err: boom} }}, ""},
		"uncommitted changes":             {&fake{commit: partly}, workorder.ReasonUncommitted},
		"uncommitted changes and no push": {&fake{commit: partly, land: bundled}, workorder.ReasonUncommitted},
		"lost changes and no push":        {&fake{commit: partly, archive: boom, land: bundled}, ""},
		"files that are too large":        {&fake{commit: partly, archive: ErrLarge}, workorder.ReasonUncommitted},
		"a failed check and no push":      {&fake{validate: failing, land: bundled}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if r := play(t, c.fake, order(), nil); r.result.ReasonCode != c.want {
				t.Errorf("%s by %s, %q: %q, want %q", r.result.Status, r.result.EndedBy, r.result.Reason, r.result.ReasonCode, c.want)
			}
		})
	}
}
