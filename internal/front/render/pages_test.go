package render

import (
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

func TestSummaryPages(t *testing.T) {
	t.Parallel()
	share := func(f float64) *float64 { return &f }
	v := &workorder.PageView{}
	r := &workorder.Result{
		TaskID: "T-4K9QZ7AB", Status: workorder.StatusSuccess,
		Evidence: []workorder.Evidence{{Name: "/ after", Path: "evidence/pages/01-index-1280-head.png"}, {Name: "the agent's own: a.png", Path: "evidence/media/a.png"}},
		Proof: &workorder.Proof{Pages: []workorder.PageProof{
			{Path: "/\x1b[31m", Width: 1280, Base: v, Head: v, Differs: share(0.0312)},
			{Path: "/\x1b[31m", Width: 390, Base: v, Head: v, Differs: share(0)},
			{Path: "/new", Width: 1280, Head: v},
			{Path: "/old", Width: 1280, Base: v},
			{Path: "/gone", Width: 390, Base: v, Head: &workorder.PageView{Status: 404}, Differs: share(0)},
			{Path: "/dot", Width: 390, Base: v, Head: v, Differs: share(1e-7)},
		}},
	}
	var b strings.Builder
	Summary(&b, r, SummaryOptions{Dir: "/results/T-4K9QZ7AB"})
	got := b.String()
	for _, want := range []string{"differs by 3.1 % at 1280 px, same at 390 px", "/new not compared at 1280 px", "/old not seen", "/gone same (HTTP 404) at 390 px", "less than 0.1 %", "evidence/pages", "the agent's own: a.png"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if strings.Contains(got, "\x1b") || strings.Contains(got, "01-index") {
		t.Errorf("%q", got)
	}
}
