package forgetest

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/sandbox-agent/sandbox-agent/internal/forge"
)

func (s suite) openThenUpdate(t *testing.T) {
	t.Parallel()
	scene, f := s.open(t, 0)
	scene.AddLabel("agent")
	scene.AddTeam("core")
	spec := wanted()
	spec.Draft, spec.Labels = true, []string{"agent", "good first/issue", "Agent"}
	spec.Reviewers, spec.TeamReviewers = []string{"ann"}, []string{"core"}
	pr, err := f.OpenPR(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	if !pr.Created || pr.Updated || !pr.Draft || pr.State != forge.StateOpen || pr.Head != ConformanceBranch || pr.Base != "main" ||
		pr.HeadSHA != SHA("head") || pr.Fork || pr.URL == "" || pr.Author != "robot" {
		t.Errorf("got %+v", pr)
	}
	got, _ := scene.Issue(pr.Number)
	if !slices.Equal(got.Labels, []string{"agent", "good first/issue"}) || !slices.Equal(got.Pull.Reviewers, []string{"ann"}) ||
		!slices.Equal(got.Pull.Teams, []string{"core"}) {
		t.Errorf("stored %+v %+v", got, got.Pull)
	}
	if !mentions(pr.Warnings, "good first/issue") || len(pr.Warnings) != 1 {
		t.Errorf("warnings %q", pr.Warnings)
	}
	// The same again changes nothing, and no reviewer is asked twice. Labels may be set again, which notifies no user.
	spec.Labels = nil
	writes := scene.Writes()
	again, err := f.OpenPR(t.Context(), spec)
	if err != nil || again.Number != pr.Number || again.Created || again.Updated || scene.Writes() != writes {
		t.Errorf("again: %+v, %v; %d writes", again, err, scene.Writes()-writes)
	}
	scene.SetBranch("next", SHA("next"))
	spec.Title, spec.Body, spec.Base, spec.Draft = "Other", "other", "next", false
	pr, err = f.OpenPR(t.Context(), spec)
	if got, _ := scene.Issue(pr.Number); err != nil || !pr.Updated || pr.Created || got.Title != "Other" || got.Body != "other" ||
		got.Pull.Base != "next" || !mentions(pr.Warnings, `"main"`) {
		t.Errorf("update: %+v, %v; %+v", pr, err, got)
	}
	if n := scene.Pulls(); len(n) != 1 {
		t.Errorf("pull requests %v", n)
	}
	// A reviewer who has answered, and is therefore no longer on the list, is left alone.
	scene.AddUser("bob", User{Permission: "write"})
	scene.AddReview(pr.Number, "bob", "APPROVED", "")
	spec.Reviewers = []string{"ann", "Bob"}
	writes = scene.Writes()
	if _, err := f.OpenPR(t.Context(), spec); err != nil || scene.Writes() != writes {
		t.Errorf("asked again: %v", err)
	}
}

func (s suite) closedAndMerged(t *testing.T) {
	t.Parallel()
	scene, f := s.open(t, 0)
	fork := scene.AddPull("mallory", "same branch name, of a fork", "", Pull{Head: ConformanceBranch, Base: "main", HeadRepo: "mallory/app"})
	first, err := f.OpenPR(t.Context(), wanted())
	if err != nil || first.Number == fork {
		t.Fatalf("%+v, %v", first, err)
	}
	for _, merged := range []bool{false, true} {
		scene.Close(first.Number, merged)
		writes := scene.Writes()
		pr, err := f.OpenPR(t.Context(), wanted())
		want := map[bool]string{false: forge.StateClosed, true: forge.StateMerged}[merged]
		if err != nil || pr.Number != first.Number || pr.State != want || pr.Created || pr.Updated || len(pr.Warnings) != 1 ||
			scene.Writes() != writes {
			t.Errorf("got %+v, %v", pr, err)
		}
	}
	if pr, err := f.PRByNumber(t.Context(), first.Number); err != nil || pr.State != forge.StateMerged || pr.Fork {
		t.Errorf("got %+v, %v", pr, err)
	}
	if pr, err := f.PRByNumber(t.Context(), fork); err != nil || !pr.Fork || pr.HeadRepo != "mallory/app" {
		t.Errorf("got %+v, %v", pr, err)
	}
}

// kept: what the caller keeps of an open one stays, and with NoNew none is opened.
func (s suite) kept(t *testing.T) {
	t.Parallel()
	scene, f := s.open(t, 0)
	spec := wanted()
	spec.NoNew = true
	if pr, err := f.OpenPR(t.Context(), spec); err != nil || pr.Number != 0 || len(scene.Pulls()) != 0 {
		t.Fatalf("opened: %+v, %v", pr, err)
	}
	n := scene.AddPull("ann", "her title", "her words", Pull{Head: ConformanceBranch, Base: "main"})
	spec.Keep = func(body string) (string, bool) { return body + " and ours", true }
	pr, err := f.OpenPR(t.Context(), spec)
	if got, _ := scene.Issue(n); err != nil || pr.Number != n || !pr.Updated || got.Title != "her title" || got.Body != "her words and ours" {
		t.Errorf("%+v, %v; %+v", pr, err, got)
	}
	writes := scene.Writes()
	spec.Keep = func(string) (string, bool) { return "never", false }
	if pr, err := f.OpenPR(t.Context(), spec); err != nil || pr.Number != n || pr.Updated || scene.Writes() != writes {
		t.Errorf("left as it is: %+v, %v", pr, err)
	}
}

// manyPulls: the branch's own one is on a later page.
func (s suite) manyPulls(t *testing.T) {
	t.Parallel()
	scene, f := s.open(t, 2)
	first, err := f.OpenPR(t.Context(), wanted())
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		scene.Close(scene.AddPull("robot", "older", "", Pull{Head: ConformanceBranch, Base: "main"}), true)
	}
	if pr, err := f.OpenPR(t.Context(), wanted()); err != nil || pr.Number != first.Number {
		t.Errorf("got %+v, %v", pr, err)
	}
}

// warnings: the pull request is opened, whatever else is refused.
func (s suite) warnings(t *testing.T) {
	t.Parallel()
	scene, f := s.open(t, 0)
	spec := wanted()
	spec.Reviewers, spec.TeamReviewers = []string{"ann", "nobody", "robot"}, []string{"absent"}
	spec.Labels = []string{strings.Repeat("x", 51), "ok"}
	spec.Body = strings.Repeat("Ä paragraph of the body.\n\n", 4000) + "<details>\n"
	pr, err := f.OpenPR(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	for _, what := range []string{"nobody", "robot", "absent", "xxx", "body"} {
		if !mentions(pr.Warnings, what) {
			t.Errorf("no warning of %q in %q", what, pr.Warnings)
		}
	}
	got, _ := scene.Issue(pr.Number)
	if !slices.Equal(got.Pull.Reviewers, []string{"ann"}) || !slices.Equal(got.Labels, []string{"ok"}) {
		t.Errorf("stored %+v %+v", got.Labels, got.Pull)
	}
	if n := utf8.RuneCountInString(got.Body); n > forge.MaxBody || n < forge.MaxBody/2 {
		t.Errorf("body of %d characters", n)
	}
}

// refusals: what no later try would change.
func (s suite) refusals(t *testing.T) {
	t.Parallel()
	scene, f := s.open(t, 0)
	scene.SetBranch("same", SHA("main"))
	for name, change := range map[string]func(*forge.PRSpec){
		"no such branch":      func(p *forge.PRSpec) { p.Head = "absent" },
		"nothing to review":   func(p *forge.PRSpec) { p.Head = "same" },
		"no such base":        func(p *forge.PRSpec) { p.Base = "absent" },
		"nothing":             func(p *forge.PRSpec) { *p = forge.PRSpec{} },
		"base is the branch":  func(p *forge.PRSpec) { p.Base = p.Head },
		"a branch of a fork":  func(p *forge.PRSpec) { p.Head = "o:" + p.Head },
		"a title of no words": func(p *forge.PRSpec) { p.Title = " \u200b " },
	} {
		spec := wanted()
		change(&spec)
		t.Run(name, func(t *testing.T) {
			_, err := f.OpenPR(t.Context(), spec)
			wantKind(t, f, err, forge.Invalid)
		})
	}
	if n := scene.Pulls(); len(n) != 0 {
		t.Errorf("pull requests %v", n)
	}
}
