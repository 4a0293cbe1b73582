package github_test

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/sandbox-agent/sandbox-agent/internal/forge"
	"github.com/sandbox-agent/sandbox-agent/internal/forge/forgetest"
)

func TestOpenThenUpdate(t *testing.T) {
	t.Parallel()
	f, c, _ := scripted(t, forgetest.Options{})
	f.AddLabel("agent")
	f.AddTeam("core")
	s := spec()
	s.Draft, s.Labels, s.Reviewers, s.TeamReviewers, s.Assignees = true, []string{"agent", "good first/issue", "Agent"}, []string{"ann"}, []string{"core"}, []string{"ann", "eve"}
	pr, err := c.OpenPR(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if pr.Number != 1 || !pr.Created || !pr.Draft || pr.State != forge.StateOpen || pr.Head != branch || pr.Base != "main" || pr.HeadSHA != forgetest.SHA("head") || pr.Fork || pr.URL == "" || pr.Author != "robot" {
		t.Errorf("got %+v", pr)
	}
	got, _ := f.Issue(1)
	if !slices.Equal(got.Labels, []string{"agent", "good first/issue"}) || !slices.Equal(got.Pull.Reviewers, []string{"ann"}) || !slices.Equal(got.Pull.Teams, []string{"core"}) || !slices.Equal(got.Assignees, []string{"ann"}) {
		t.Errorf("stored %+v %+v", got, got.Pull)
	}
	if !anyContains(pr.Warnings, `"good first/issue" was missing`) || !anyContains(pr.Warnings, "eve cannot be assigned") || len(pr.Warnings) != 2 {
		t.Errorf("warnings %q", pr.Warnings)
	}
	// The same again changes nothing, and nobody is asked twice.
	pr, err = c.OpenPR(t.Context(), s)
	if err != nil || pr.Created || pr.Updated || count(f, "pulls/update") != 0 || count(f, "pulls/request-reviewers") != 1 {
		t.Errorf("again: %+v, %v", pr, err)
	}
	f.SetBranch("next", forgetest.SHA("next"))
	s.Title, s.Body, s.Base, s.Draft = "Other", "other", "next", false
	pr, err = c.OpenPR(t.Context(), s)
	if got, _ := f.Issue(1); err != nil || !pr.Updated || pr.Created || got.Title != "Other" || got.Body != "other" || got.Pull.Base != "next" || !anyContains(pr.Warnings, `"main"`) {
		t.Errorf("update: %+v, %v; %+v", pr, err, got)
	}
	if n := f.Pulls(); len(n) != 1 {
		t.Errorf("pull requests %v", n)
	}
	// A reviewer who has answered, and is therefore no longer on the list, is left alone.
	f.AddUser("bob", forgetest.User{Permission: "write"})
	f.AddReview(1, "bob", "APPROVED", "")
	s.Reviewers = []string{"ann", "Bob"}
	if _, err := c.OpenPR(t.Context(), s); err != nil || count(f, "pulls/request-reviewers") != 1 {
		t.Errorf("asked again: %v", err)
	}
}

func TestClosedAndMerged(t *testing.T) {
	t.Parallel()
	f, c, _ := scripted(t, forgetest.Options{})
	f.AddPull("mallory", "same branch name, of a fork", "", forgetest.Pull{Head: branch, Base: "main", HeadRepo: "mallory/app"})
	if _, err := c.OpenPR(t.Context(), spec()); err != nil {
		t.Fatal(err)
	}
	for _, merged := range []bool{false, true} {
		f.Close(2, merged)
		pr, err := c.OpenPR(t.Context(), spec())
		want := map[bool]string{false: forge.StateClosed, true: forge.StateMerged}[merged]
		if err != nil || pr.Number != 2 || pr.State != want || pr.Created || !anyContains(pr.Warnings, "was "+want) {
			t.Errorf("got %+v, %v", pr, err)
		}
	}
	s := spec()
	s.Anew = true
	if pr, err := c.OpenPR(t.Context(), s); err != nil || pr.Number != 3 || !pr.Created {
		t.Errorf("anew: %+v, %v", pr, err)
	}
	if pr, err := c.PRByNumber(t.Context(), 2); err != nil || pr.State != forge.StateMerged || pr.Fork {
		t.Errorf("got %+v, %v", pr, err)
	}
	if pr, err := c.PRByNumber(t.Context(), 1); err != nil || !pr.Fork || pr.HeadRepo != "mallory/app" {
		t.Errorf("got %+v, %v", pr, err)
	}
}

func TestRefusalsThatAreWarnings(t *testing.T) {
	t.Parallel()
	f, c, _ := scripted(t, forgetest.Options{NoDrafts: true})
	s := spec()
	s.Draft, s.Reviewers, s.TeamReviewers = true, []string{"ann", "nobody", "robot"}, []string{"absent"}
	s.Labels = []string{strings.Repeat("x", 51), "ok"}
	s.Body = strings.Repeat("Ä paragraph of the body.\n\n", 4000) + "<details>\n"
	pr, err := c.OpenPR(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range []string{"no drafts", "nobody is not asked", "robot is not asked", "team absent is not asked", "xxx\" is not set", "body was cut"} {
		if !anyContains(pr.Warnings, w) {
			t.Errorf("no warning of %q in %q", w, pr.Warnings)
		}
	}
	got, _ := f.Issue(pr.Number)
	if pr.Draft || !slices.Equal(got.Pull.Reviewers, []string{"ann"}) || !slices.Equal(got.Labels, []string{"ok"}) {
		t.Errorf("stored %+v %+v", got.Labels, got.Pull)
	}
	if n := utf8.RuneCountInString(got.Body); n > forge.MaxBody || n < forge.MaxBody/2 || !strings.Contains(got.Body, "Cut here") {
		t.Errorf("body of %d characters", n)
	}
}

func TestRefusalsThatAreErrors(t *testing.T) {
	t.Parallel()
	f, c, _ := scripted(t, forgetest.Options{})
	s := spec()
	s.Head = "absent"
	_, err := c.OpenPR(t.Context(), s)
	wantKind(t, err, forge.Invalid, "push the branch first")
	f.SetBranch("same", forgetest.SHA("main"))
	s.Head = "same"
	_, err = c.OpenPR(t.Context(), s)
	wantKind(t, err, forge.Invalid, "nothing to review")
	s = spec()
	s.Base = "absent"
	_, err = c.OpenPR(t.Context(), s)
	wantKind(t, err, forge.Invalid, "base branch")
	for _, s := range []forge.PRSpec{{}, {Head: "a", Base: "a", Title: "x"}, {Head: "o:a", Base: "b", Title: "x"}, {Head: "a", Base: "b", Title: " \u200b "}} {
		_, err = c.OpenPR(t.Context(), s)
		wantKind(t, err, forge.Invalid)
	}
	f.AddUser("robot", forgetest.User{Permission: "read"})
	_, err = c.OpenPR(t.Context(), spec())
	wantKind(t, err, forge.Permission, "write access")
	f.RevokeTokens()
	_, err = c.OpenPR(t.Context(), spec())
	wantKind(t, err, forge.Auth, "GH_TOKEN")
	if _, err = c.PRByNumber(t.Context(), 99); forge.KindOf(err) != forge.Auth {
		t.Error(err)
	}
}

// TestManyPulls: the branch's own one is on a later page.
func TestManyPulls(t *testing.T) {
	t.Parallel()
	f, c, _ := scripted(t, forgetest.Options{PageSize: 2})
	first, err := c.OpenPR(t.Context(), spec())
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		n := f.AddPull("robot", "older", "", forgetest.Pull{Head: branch, Base: "main"})
		f.Close(n, true)
	}
	if pr, err := c.OpenPR(t.Context(), spec()); err != nil || pr.Number != first.Number || count(f, "pulls/list") != 1+3 {
		t.Errorf("got %+v, %v; %d pages", pr, err, count(f, "pulls/list"))
	}
}
