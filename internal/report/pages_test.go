package report

import (
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// The runner's look at the pages is in both forms, from the result alone: pictures in groups, how much differs, and what a browser
// complains about only since the change.
func TestPages(t *testing.T) {
	t.Parallel()
	view := func(side string, console ...string) *workorder.PageView {
		return &workorder.PageView{
			Status: 200, Picture: "evidence/pages/01-" + side + ".png", PictureWidth: 390, PictureHeight: 844,
			Console: console, Failed: []string{"GET /old.png: 404"},
		}
	}
	head := view("head", "error: as before", "error: new\x1b[31m <b>one</b>")
	head.Failed = append(head.Failed, "GET /gone.png: 404")
	share := 0.0312
	none := 0.0
	r := &workorder.Result{
		TaskID: "T-4K9QZ7AB", Status: workorder.StatusSuccess,
		Proof: &workorder.Proof{Pages: []workorder.PageProof{
			{Path: "/", Width: 390, Base: view("base", "error: as before"), Head: head, Diff: "evidence/pages/01-diff.png", Differs: &share},
			{Path: "/", Width: 1280, Base: view("base-wide"), Head: view("head-wide", "error: as before"), Differs: &none},
			{Path: "/new", Width: 390, Head: &workorder.PageView{Error: "net::ERR_ABORTED", Console: []string{}, Failed: []string{}}},
		}},
		Evidence: []workorder.Evidence{
			{Name: "the agent's own: a.png", Path: "evidence/media/a.png", Kind: workorder.EvidenceScreenshot},
			{Name: "/ at 390 px, after", Path: "evidence/pages/01-head.png", Kind: workorder.EvidenceScreenshot},
			{Name: "A walk", Path: "evidence/pages/walk-head.webm", Kind: workorder.EvidenceVideo},
		},
	}
	// An address that somebody gave to a path stays with it.
	d := Data{Result: r, Evidence: []EvidenceLink{{
		Name: "x", Kind: workorder.EvidenceScreenshot, Path: "evidence/pages/01-diff.png",
		URL: "https://forge.example/raw/diff.png",
	}}}
	md := Markdown(d)
	var page strings.Builder
	if err := HTML(d, &page); err != nil {
		t.Fatal(err)
	}
	for what, text := range map[string]string{"Markdown": md, "HTML": page.String()} {
		for _, want := range []string{
			"/ at 390 px", "3.1 % of the pixels differ", "no pixel differs", "Before", "After", "Difference",
			"https://forge.example/raw/diff.png", "own: a.png", "A walk",
		} {
			if !strings.Contains(text, want) {
				t.Errorf("%s: no %q", what, want)
			}
		}
		if strings.Contains(text, "as before") || strings.Contains(text, "old.png") || strings.Contains(text, "<b>one</b>") ||
			strings.Contains(text, "\x1b") {
			t.Errorf("%s has what base has, too, or a page's markup:\n%s", what, text)
		}
		if strings.Count(text, "gone.png") != 1 || !strings.Contains(text, "could not be looked at") {
			t.Errorf("%s: the new complaints are not there once", what)
		}
		if strings.Index(text, "/ at 390 px") > strings.Index(text, "own: a.png") {
			t.Errorf("%s: the agent's pictures come first", what)
		}
	}
}

func TestDiffers(t *testing.T) {
	t.Parallel()
	share := func(f float64) *float64 { return &f }
	v := &workorder.PageView{}
	for want, p := range map[string]workorder.PageProof{
		"":                                     {Base: v, Head: v},
		"only seen after":                      {Head: v},
		"only seen before":                     {Base: v},
		"no pixel differs":                     {Base: v, Head: v, Differs: share(-1)},
		"less than 0.1 % of the pixels differ": {Base: v, Head: v, Differs: share(1e-9)},
		"12.3 % of the pixels differ":          {Base: v, Head: v, Differs: share(0.1234)},
		"100.0 % of the pixels differ":         {Base: v, Head: v, Differs: share(1e300)},
	} {
		if got := differs(p); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// A page that answers with no success says so on whichever side it does, also where there is no picture of it, and where no pixel differs.
func TestPageStatus(t *testing.T) {
	t.Parallel()
	none := 0.0
	view := func(status int, picture string) *workorder.PageView {
		return &workorder.PageView{Status: status, Picture: picture}
	}
	for want, p := range map[string]workorder.PageProof{
		"no pixel differs, HTTP 404 before and after": {Base: view(404, "a.png"), Head: view(404, "b.png"), Differs: &none},
		"HTTP 500 before, HTTP 404 after":             {Base: view(500, ""), Head: view(404, "")},
		"HTTP 404 before":                             {Base: view(404, ""), Head: view(200, "")},
		"only seen after, HTTP 301 after":             {Head: view(301, "b.png")},
	} {
		p.Path, p.Width = "/x", 390
		for form, text := range both(t, Data{Result: &workorder.Result{Proof: &workorder.Proof{Pages: []workorder.PageProof{p}}}}) {
			if !strings.Contains(text, want) {
				t.Errorf("%s: no %q in\n%s", form, want, text)
			}
		}
	}
	if s := answers(workorder.PageProof{Base: view(200, ""), Head: view(204, "")}) + answers(workorder.PageProof{Base: view(0, "")}); s != "" {
		t.Error(s)
	}
}
