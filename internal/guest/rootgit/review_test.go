package rootgit

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/claim"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/remote"
	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

func reviewed(items ...string) *workorder.Review {
	r := &workorder.Review{PR: 7, Until: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	for i, text := range items {
		r.Items = append(
			r.Items,
			workorder.ReviewItem{
				Number:  i + 1,
				Source:  workorder.ReviewFromThread,
				Command: true,
				Notes:   []workorder.ReviewNote{{Author: "ann", Trusted: true, Text: text}},
			},
		)
	}
	return r
}

// Feedback stays in the task's state until it was answered, whichever attempt continues; only commits that
// came after it count as an answer.
func TestFeedbackOutlivesAnAttempt(t *testing.T) {
	t.Parallel()
	first := newFixture(t, nil)
	first.write(t, "a", "1")
	gittest.Git(t, first.Repos.Workspace, "add", "a")
	gittest.Git(t, first.Repos.Workspace, "commit", "-q", "-m", "Before\n\nAddresses: 1")
	first.land(t)
	if err := first.Lander.Release(t.Context(), workorder.Attempt{Status: workorder.StatusSuccess}); err != nil {
		t.Fatal(err)
	}
	before := first.remote(t, workorder.BranchRef(target))

	revise := newBox(t, first.srv, workorder.ModeRevise)
	revise.Repos.Order.Task, revise.Repos.Order.Review = "", reviewed("Rename it, s3cret", "Why?", "And this")
	revise.Repos.Clean = func(s string) string { return strings.ReplaceAll(s, "s3cret", "***") }
	c, _ := revise.start(t)
	if r := c.State.Review; r == nil || r.Since != before || r.Items[0].Notes[0].Text != "Rename it, ***" ||
		revise.Repos.Order.Review.Items[0].Notes[0].Text != "Rename it, s3cret" {
		t.Fatalf("%+v", c.State.Review)
	}
	revise.write(t, "a", "2")
	gittest.Git(t, revise.Repos.Workspace, "commit", "-qam", "Rename\n\nAddresses: 1\n\nWith love")
	gittest.Git(t, revise.Repos.Workspace, "commit", "-q", "--allow-empty", "-m", "Nothing\n\nAddresses: 2")
	revise.land(t)
	if err := revise.Lander.Release(t.Context(), workorder.Attempt{Status: workorder.StatusInterrupted}); err != nil {
		t.Fatal(err)
	}
	if s := revise.state(t); s.Review == nil || s.Lease != nil || !s.ReviewedUntil.IsZero() {
		t.Fatalf("%+v", s)
	}

	next := newBox(t, first.srv, workorder.ModeContinue)
	next.Repos.Order.Task = ""
	c, _ = next.start(t)
	r := c.State.Feedback(workorder.ModeContinue)
	if r == nil || r.Since != before || len(r.Items) != 3 || c.State.Feedback(workorder.ModeRebase) != nil {
		t.Fatalf("%+v", r)
	}
	next.write(t, "b", "3")
	gittest.Git(t, next.Repos.Workspace, "add", "b")
	gittest.Git(t, next.Repos.Workspace, "commit", "-qm", "Third\n\nAddresses: 3, 1")
	l := next.land(t)
	got, err := next.Feedback.Addressed(t.Context(), r.Since, l.Head, len(r.Items))
	if err != nil {
		t.Fatal(err)
	}
	if want := map[int][]string{1: {l.Commits[2].SHA, l.Commits[0].SHA}, 3: {l.Commits[0].SHA}}; !cmp.Equal(got, want) {
		t.Error(cmp.Diff(want, got))
	}
	// Where the commit is gone, what this attempt found says nothing about the feedback.
	if got, err := next.Feedback.Addressed(
		t.Context(),
		strings.Repeat("0", 40),
		l.Head,
		3,
	); err != nil ||
		!cmp.Equal(got, map[int][]string{1: {l.Commits[0].SHA}, 3: {l.Commits[0].SHA}}) {
		t.Errorf("%v, %v", got, err)
	}
	next.Lander.Answered = true
	if err := next.Lander.Release(t.Context(), workorder.Attempt{Status: workorder.StatusSuccess}); err != nil {
		t.Fatal(err)
	}
	if s := next.state(t); s.Review != nil || !s.ReviewedUntil.Equal(reviewed("x").Until) {
		t.Errorf("%+v", s)
	}
}

// reviseOn is a box that takes feedback on, in a task whose work the remote has.
func reviseOn(t *testing.T, srv *gittest.Server, r *workorder.Review) (*fixture, *claim.Result) {
	t.Helper()
	f := newBox(t, srv, workorder.ModeRevise)
	f.Repos.Order.Task, f.Repos.Order.Review = "", r
	c, _ := f.start(t)
	return f, c
}

func (f *fixture) addresses(t *testing.T, file, subject, numbers string) string {
	t.Helper()
	f.write(t, file, subject)
	gittest.Git(t, f.Repos.Workspace, "add", file)
	gittest.Git(t, f.Repos.Workspace, "commit", "-q", "-m", subject+"\n\nAddresses: "+numbers)
	return gittest.Git(t, f.Repos.Workspace, "rev-parse", "HEAD")
}

func (f *fixture) over(t *testing.T, status workorder.Status) string {
	t.Helper()
	if err := f.Committer.Commit(t.Context(), says("rest")); err != nil {
		t.Fatal(err)
	}
	l := f.Lander.Land(t.Context(), f.base, f.bundle, endedAs(status))
	if l.Err != nil {
		t.Fatal(l.Err)
	}
	return l.Head
}

// A rebase between two attempts gives every commit another id: those from before the feedback address nothing of it
// then, and neither do those of the base; those that an attempt made for it still do.
func TestAddressedAfterARebase(t *testing.T) {
	t.Parallel()
	srv, _ := withTask(t, nil)
	round := newBox(t, srv, workorder.ModeContinue)
	round.Repos.Order.Task = "More"
	round.start(t)
	round.addresses(t, "f", strings.Replace(tenLines, "5\n", "five\n", 1), "1")
	round.over(t, workorder.StatusSuccess)

	cut, _ := reviseOn(t, srv, reviewed("Rename it", "Why?", "And this"))
	cut.addresses(t, "mine", "Why", "2")
	old := cut.over(t, workorder.StatusTimeout)

	onRemote(t, srv, "main", map[string]string{"f": strings.Replace(tenLines, "5\n", "cinq\n", 1)}, "Elsewhere\n\nAddresses: 3")
	f, _, plan, err := rebaseBox(t, srv, workorder.Rebase{})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Lander.HoldBranch(besideRef), f.Rebaser.Run(t.Context(), plan)); err != nil || plan.Conflict == nil {
		t.Fatalf("%v, %+v", err, plan.Conflict)
	}
	// The change is another one then, and the commit the same.
	for i := 0; gittest.Git(t, f.Repos.Workspace, "status", "--porcelain", "--untracked-files=no") != "" && i < 5; i++ {
		f.write(t, "f", strings.Replace(tenLines, "5\n", "5, five and cinq\n", 1))
		gittest.Git(t, f.Repos.Workspace, "add", "f")
		gittest.Git(t, f.Repos.Workspace, "-c", "core.editor=true", "rebase", "--continue")
	}
	head, why, err := f.Rebaser.Unfinished(t.Context(), plan)
	if err != nil || why != "" || head == old {
		t.Fatalf("%s %q %v", head, why, err)
	}
	if err := f.Lander.MoveBranch(
		remote.RebaseResult{Branch: "main", Base: plan.NewBase, Head: head, OldHead: old, Backup: backupRef},
	); err != nil {
		t.Fatal(err)
	}
	if l := f.Lander.Land(t.Context(), plan.NewBase, f.bundle, endedAs(workorder.StatusSuccess)); l.Err != nil || l.Head != head {
		t.Fatalf("%+v", l)
	}

	next := newBox(t, srv, workorder.ModeContinue)
	next.Repos.Order.Task = ""
	c, _ := next.start(t)
	l := next.land(t)
	got, err := next.Feedback.Addressed(t.Context(), c.State.Review.Since, l.Head, 3)
	if err != nil || !cmp.Equal(got, map[int][]string{2: {head}}) {
		t.Errorf("%v, %v; the head is %s", got, err, head)
	}
}

// Commits that the agent merges from the base were not made for the feedback, and reverted ones do not address it.
func TestAddressedIsTheTasksOwn(t *testing.T) {
	t.Parallel()
	srv, _ := withTask(t, nil)
	f, c := reviseOn(t, srv, reviewed("Rename it", "Why?", "And this"))
	other := onRemote(t, srv, "main", map[string]string{"other": "x"}, "Elsewhere\n\nAddresses: 1")
	if err := f.Repos.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	gittest.Git(t, f.Repos.Workspace, "fetch", "-q", f.Repos.Mirror().Dir, "main")
	gittest.Git(t, f.Repos.Workspace, "merge", "-q", "--no-edit", other)
	undone := f.addresses(t, "a", "a", "1")
	gittest.Git(t, f.Repos.Workspace, "revert", "--no-edit", undone)
	again := f.addresses(t, "b", "b", "2")
	gittest.Git(t, f.Repos.Workspace, "revert", "--no-edit", again)
	gittest.Git(t, f.Repos.Workspace, "revert", "--no-edit", "HEAD")
	l := f.land(t)
	got, err := f.Feedback.Addressed(t.Context(), c.State.Review.Since, l.Head, 3)
	if err != nil || !cmp.Equal(got, map[int][]string{2: {again}}) {
		t.Errorf("%v, %v", got, err)
	}
}

// fromFile are items of a file.
func fromFile(texts ...string) (items []workorder.ReviewItem) {
	for _, text := range texts {
		items = append(
			items,
			workorder.ReviewItem{
				Source:  workorder.ReviewFromFile,
				Command: true,
				Notes:   []workorder.ReviewNote{{Author: "you", Trusted: true, Text: text}},
			},
		)
	}
	return items
}

func texts(r *workorder.Review) (list []string) {
	for i, it := range r.Items {
		if it.Number != i+1 {
			list = append(list, "misnumbered")
		}
		list = append(list, it.Source+" "+it.Notes[0].Text)
	}
	return list
}

// Unanswered items stay beside later ones. The forge itself says which it still has.
func TestPendingFeedback(t *testing.T) {
	t.Parallel()
	pending := reviewed("Gone or there again")
	pending.Items = append(pending.Items, fromFile("Of the file", "Said twice")...)
	p := connect(&remote.Repos{Order: &workorder.Order{}, Emit: func(workorder.Event) {}})
	take := func(r *workorder.Review) *workorder.Review {
		s := &workorder.State{Review: pending}
		p.Repos.Order.Review = r
		p.Feedback.AddTo(s, "h1")
		p.Feedback.AddTo(s, "h1") // a push that succeeded without a report
		return s.Review
	}
	now := reviewed("New on the forge")
	now.Items = append(now.Items, fromFile("Said twice")...)
	if got, want := texts(take(now)), []string{"thread New on the forge", "file Said twice", "file Of the file"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	r := take(&workorder.Review{Items: fromFile("Now")})
	if got, want := texts(
		r,
	), []string{
		"file Now",
		"thread Gone or there again",
		"file Of the file",
		"file Said twice",
	}; !slices.Equal(got, want) || r.PR != 7 || !r.Until.Equal(pending.Until) ||
		r.Since != "h1" {
		t.Errorf("%q, want %q; %+v", got, want, r)
	}
	many := make([]string, workorder.MaxReviewItems)
	for i := range many {
		many[i] = strconv.Itoa(i)
	}
	r = take(reviewed(many...))
	if got := texts(
		r,
	); len(got) != workorder.MaxReviewItems || got[97] != "thread 97" || got[98] != "file Of the file" ||
		!r.Until.IsZero() {
		t.Errorf("%q, until %s", got, r.Until)
	}
	// No room for a file's is said.
	said := ""
	p.Repos.Emit = func(e workorder.Event) { said = e.Text }
	if r = take(
		&workorder.Review{Items: fromFile(many...)},
	); len(r.Items) != workorder.MaxReviewItems || !strings.HasPrefix(said, "2 ") ||
		!r.Until.IsZero() {
		t.Errorf("%d items, %q, until %s", len(r.Items), said, r.Until)
	}
}

// Items that an attempt had no room for are the next one's, and the time of the last read does not pass them.
func TestFeedbackForLater(t *testing.T) {
	t.Parallel()
	srv, _ := withTask(t, nil)
	f, _ := reviseOn(t, srv, reviewed("Rename it", "Why?", "And this"))
	f.addresses(t, "a", "a", "1, 2")
	f.Lander.Answered, f.Feedback.Later = true, []int{2}
	head := f.over(t, workorder.StatusSuccess)
	s := f.state(t)
	if s.Review == nil || len(s.Review.Items) != 1 || s.Review.Items[0].Number != 1 || s.Review.Items[0].Notes[0].Text != "Why?" ||
		s.Review.Since != head ||
		!s.ReviewedUntil.IsZero() {
		t.Fatalf("%+v", s)
	}
	next := newBox(t, srv, workorder.ModeContinue)
	next.Repos.Order.Task = "x"
	next.start(t)
	l := next.land(t)
	if got, err := next.Feedback.Addressed(t.Context(), s.Review.Since, l.Head, 1); err != nil || len(got) != 0 {
		t.Errorf("%v, %v", got, err)
	}
	next.Lander.Answered = true
	next.over(t, workorder.StatusSuccess)
	if s := next.state(t); s.Review != nil || !s.ReviewedUntil.IsZero() {
		t.Errorf("%+v", s)
	}
}
