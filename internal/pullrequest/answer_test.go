package pullrequest

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/forge"
	"github.com/sandbox-agent/sandbox-agent/internal/test/forgetest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// reviewed is a pull request with two threads of ann's, one of eve's and a comment, and a run that dealt with them.
func reviewed(t *testing.T) (*forgetest.Server, forge.Forge, *workorder.Order, *workorder.Result) {
	t.Helper()
	f := forgetest.New(forgetest.Options{Owner: "o", Name: "app"})
	f.AddUser("ann", forgetest.User{Permission: "write"})
	f.AddUser("runner", forgetest.User{Permission: "write"})
	f.AddUser("eve", forgetest.User{})
	f.AddToken("t0ken", "runner")
	const branch = "agent/T-A1B2C3D4-x"
	f.SetBranch(branch, forgetest.SHA("x"))
	n := f.AddPull("runner", "x", "", forgetest.Pull{Head: branch, Base: "main"})
	r := &workorder.Result{
		Status: workorder.StatusSuccess, Attempt: 2, Branch: branch, Pushed: true, HeadSHA: "h1", PR: &workorder.PR{Number: n},
		Commits: []workorder.Commit{{SHA: "h1"}},
		Proof:   &workorder.Proof{Head: "h1", Checks: []workorder.CheckProof{{Name: "test", Head: &workorder.CheckRun{Passed: true}}}},
	}
	for i, who := range []string{"ann", "ann", "eve"} {
		id := f.AddThread(n, forgetest.Thread{Path: "a", Line: 1}, who, "Why?")
		r.Review = append(r.Review, workorder.ReviewAnswer{Number: i + 1, Source: workorder.ReviewFromThread, Thread: id})
	}
	f.AddComment(n, "ann", "And this?")
	sha := strings.Repeat("ab", 20)
	r.Review[0].Answer, r.Review[0].Commits = workorder.AnswerCommit, []string{sha}
	r.Review[1].Answer, r.Review[1].Reason = workorder.AnswerReason, "Not needed, @ann."
	r.Review[2].Answer, r.Review[2].Commits = workorder.AnswerQuoted, []string{sha}
	r.Review = append(r.Review, workorder.ReviewAnswer{
		Number: 4, Source: workorder.ReviewFromComment, Text: "And this?",
		Answer: workorder.AnswerNone,
	}, workorder.ReviewAnswer{
		Number: 5, Source: workorder.ReviewFromFile, Answer: workorder.AnswerReason,
		Reason: "x",
	})
	srv := httptest.NewServer(f)
	t.Cleanup(srv.Close)
	t.Cleanup(func() {
		for _, v := range f.Violations() {
			t.Error(v)
		}
	})
	o := &workorder.Order{
		TaskID: "T-A1B2C3D4", Repo: "https://git.example/x.git",
		PR: &workorder.PullRequest{APIURL: srv.URL + "/api/v3", Repository: "o/app"},
	}
	c, err := Client(o, "t0ken", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return f, c, o, r
}

// texts are the bodies of what was written in the threads and beside them.
func texts(f *forgetest.Server, n int) (threads [][]string, resolved []bool, comments []string) {
	for _, th := range f.Threads(n) {
		var all []string
		for _, c := range th.Comments {
			all = append(all, c.Body)
		}
		threads, resolved = append(threads, all), append(resolved, th.Resolved)
	}
	for _, c := range f.Comments(n) {
		comments = append(comments, c.Body)
	}
	return threads, resolved, comments
}

// Each thread gets one answer, however often it is given; only what commits address and checks prove is resolved, and
// who may not command gets none.
func TestAnswer(t *testing.T) {
	t.Parallel()
	f, c, o, r := reviewed(t)
	n := r.PR.Number
	for range 2 {
		got, err := Answer(t.Context(), c, o, r, n)
		if err != nil {
			t.Fatal(err)
		}
		threads, resolved, comments := texts(f, n)
		if len(threads[0]) != 2 || len(threads[1]) != 2 || len(threads[2]) != 1 || len(comments) != 2 || !resolved[0] || resolved[1] ||
			resolved[2] {
			t.Fatalf("%q, %v, %q", threads, resolved, comments)
		}
		if !strings.Contains(threads[0][1], "/o/app/commit/"+strings.Repeat("ab", 20)+`"><code>abababa</code></a>. Checks that pass`) ||
			!strings.Contains(threads[0][1], "`test`") || !strings.Contains(threads[1][1], "own words:\n\n> Not needed, &#x40;") ||
			!strings.Contains(comments[1], "Not addressed") {
			t.Errorf("%q, %q", threads, comments)
		}
		if a := got; !a[0].Replied || !a[0].Resolved || !a[1].Replied || a[1].Resolved || a[2].Replied || !a[3].Replied || a[4].Replied ||
			r.Review[0].Replied {
			t.Errorf("%+v", a)
		}
	}
}

// Without green evidence nothing is resolved, and the reply says why.
func TestAnswerWithoutEvidence(t *testing.T) {
	t.Parallel()
	f, c, o, r := reviewed(t)
	r.Proof.Checks[0].Head.Passed = false
	r.Status, r.EndedBy = workorder.StatusFailed, workorder.EndedByValidation
	if why := AnswerSkipReason(o, r); why != "" {
		t.Fatal(why)
	}
	got, err := Answer(t.Context(), c, o, r, r.PR.Number)
	threads, resolved, _ := texts(f, r.PR.Number)
	if err != nil || resolved[0] || got[0].Resolved || !strings.Contains(threads[0][1], "do not pass: `test`") {
		t.Errorf("%v, %v, %q", err, resolved, threads)
	}
}

// Answers that an absent forge did not take are given later, each once.
func TestAnswerLater(t *testing.T) {
	t.Parallel()
	f, c, o, r := reviewed(t)
	f.Inject(forgetest.Fault{Op: "issues/create-comment", Status: http.StatusForbidden, Body: `{"message":"no"}`})
	got, err := Answer(t.Context(), c, o, r, r.PR.Number)
	if err == nil || !got[0].Replied || !got[1].Replied || got[3].Replied {
		t.Fatalf("%v, %+v", err, got)
	}
	r.Review = got
	if got, err = Answer(t.Context(), c, o, r, r.PR.Number); err != nil || !got[3].Replied {
		t.Fatalf("%v, %+v", err, got)
	}
	if threads, _, comments := texts(f, r.PR.Number); len(threads[0]) != 2 || len(threads[1]) != 2 || len(comments) != 2 {
		t.Errorf("%q, %q", threads, comments)
	}
}

func TestWhyNotAnswer(t *testing.T) {
	t.Parallel()
	_, _, o, r := reviewed(t)
	for want, change := range map[string]func(*workorder.Result){
		"nothing of the feedback":     func(r *workorder.Result) { r.Review = r.Review[2:3] },
		"continue T-A1B2C3D4":         func(r *workorder.Result) { r.Status = workorder.StatusTimeout },
		"did not come to its end":     func(r *workorder.Result) { r.Status, r.EndedBy = workorder.StatusFailed, workorder.EndedByAgent },
		"branch is not on the remote": func(r *workorder.Result) { r.Pushed = false },
	} {
		x := *r
		change(&x)
		if why := AnswerSkipReason(o, &x); !strings.Contains(why, want) {
			t.Errorf("%q, not %q", why, want)
		}
	}
}
