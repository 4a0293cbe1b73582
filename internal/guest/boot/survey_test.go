package boot

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/land"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

func (f *fake) Surface(_ context.Context, base, head string) ([]workorder.SurfaceFinding, error) {
	f.did("survey")
	return []workorder.SurfaceFinding{{Kind: "workflow", Path: base + ".." + head}}, f.surfaceErr
}

// The branch's changes to files that run elsewhere are in the result, also when not all are known; a run without
// commits has nothing to look at.
func TestSurvey(t *testing.T) {
	t.Parallel()
	r := play(t, &fake{surfaceErr: errors.New("a file is too large")}, order(), nil)
	if r.code != workorder.ExitOK || len(r.result.Surface) != 1 || !strings.HasSuffix(r.result.Surface[0].Path, "..h1") ||
		len(r.result.Warnings) != 1 ||
		!strings.Contains(r.result.Warnings[0], "too large") {
		t.Errorf("code %d, %+v, %q", r.code, r.result.Surface, r.result.Warnings)
	}
	f := &fake{land: func(context.Context) land.Result { return land.Result{Head: "h0"} }}
	if r := play(t, f, order(), nil); f.called("survey") || len(r.result.Surface) != 0 {
		t.Errorf("%+v", r.result.Surface)
	}
}
