package taskrunner

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/test/forgetest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// A box whose attempt left the branch as it was opens no pull request, and keeps the body of one that tells of the branch.
func TestPullOfNothingNew(t *testing.T) {
	t.Parallel()
	f := forgetest.New(forgetest.Options{Owner: "o", Name: "app"})
	f.AddUser("runner", forgetest.User{Permission: "write"})
	f.AddToken("tok", "runner")
	srv := httptest.NewServer(f)
	t.Cleanup(srv.Close)
	const branch = "agent/T-A1B2C3D4-x"
	f.SetBranch(branch, forgetest.SHA("x"))
	p := &Forge{Token: "tok", Log: slog.New(slog.DiscardHandler), Order: &workorder.Order{
		TaskID:   "T-A1B2C3D4",
		Repo:     "https://github.com/o/app",
		PR:       &workorder.PullRequest{APIURL: srv.URL + "/api/v3", Repository: "o/app"},
		Validate: []workorder.Check{{Name: "test", Run: "make test"}},
	}}
	head := strings.Repeat("a1", 20)
	first := workorder.Result{
		Mode: workorder.ModeCreate, Status: workorder.StatusSuccess, Branch: branch, BaseBranch: "main", HeadSHA: head, Pushed: true,
		Commits: []workorder.Commit{{SHA: head, Subject: "Do it"}}, Validation: []workorder.Validation{{Name: "test", Passed: true}},
	}
	rebase := first
	rebase.Mode, rebase.Status, rebase.Reasons, rebase.Validation = workorder.ModeRebase, workorder.StatusError, workorder.Because(
		workorder.ReasonPush,
		"somebody else pushed",
	), nil
	rebase.Restored = &workorder.Restored{Head: head}
	if pr, why, _, err := p.Open(t.Context(), &rebase); pr != nil || why == "" || err != nil || len(f.Pulls()) > 0 {
		t.Fatalf("%+v, %q, %v", pr, why, err)
	}
	if pr, why, _, err := p.Open(t.Context(), &first); pr == nil || why != "" || err != nil {
		t.Fatalf("%+v, %q, %v", pr, why, err)
	}
	pr, why, warnings, err := p.Open(t.Context(), &rebase)
	if i, _ := f.Issue(1); err != nil || pr == nil || why != "" || len(warnings) > 0 || !strings.Contains(i.Body, "`test`") ||
		!strings.Contains(i.Body, "somebody else pushed") {
		t.Errorf("%+v, %q, %q, %v\n%s", pr, why, warnings, err, i.Body)
	}
}

// A GitHub App's token lives an hour, so the box is given the App instead: answers come with a token of their own.
func TestAnswersOfAnApp(t *testing.T) {
	t.Parallel()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	f := forgetest.New(forgetest.Options{Owner: "o", Name: "r", AppID: "123", AppKey: &key.PublicKey})
	f.AddUser("ann", forgetest.User{Permission: "write"})
	web := httptest.NewServer(f)
	t.Cleanup(web.Close)
	o := &workorder.Order{
		TaskID: "T-A1B2C3D4",
		Repo:   "https://git.example/r.git",
		PR:     &workorder.PullRequest{APIURL: web.URL + "/api/v3", Repository: "o/r"},
	}
	f.SetBranch("b", forgetest.SHA("x"))
	n := f.AddPull("ann", "x", "", forgetest.Pull{Head: "b", Base: "main"})
	thread := f.AddThread(n, forgetest.Thread{Path: "a", Line: 1}, "ann", "Why?")
	app := &workorder.ForgeApp{
		ID:         "123",
		PrivateKey: string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})),
	}
	p := &Forge{Order: o, App: app, Log: slog.New(slog.DiscardHandler)}
	r := &workorder.Result{
		Status: workorder.StatusSuccess,
		Review: []workorder.ReviewAnswer{
			{Number: 1, Source: workorder.ReviewFromThread, Thread: thread, Answer: workorder.AnswerReason, Reason: "Because."},
		},
	}
	got, why, err := p.Answer(t.Context(), &workorder.Review{PR: n}, r)
	if err != nil || why != "" || !got[0].Replied || len(f.Threads(n)[0].Comments) != 2 {
		t.Errorf("%+v, %q, %v", got, why, err)
	}
}

// A forge elsewhere that has a token of its own gets that one, and nothing that the App of git's host signs.
func TestAppIsNotForAForgeWithAToken(t *testing.T) {
	t.Parallel()
	var sent []string
	other := httptest.NewServer(
		http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { sent = append(sent, r.Header.Get("Authorization")) }),
	)
	t.Cleanup(other.Close)
	o := &workorder.Order{
		Repo: "https://git.example/o/app.git",
		PR:   &workorder.PullRequest{APIURL: other.URL + "/api/v3", Repository: "o/app"},
	}
	c, err := (&Forge{Order: o, Token: "theirs", App: &workorder.ForgeApp{ID: "123"}, Log: slog.New(slog.DiscardHandler)}).client(o)
	if err != nil {
		t.Fatal(err)
	}
	if tok, err := c.Token(t.Context()); err != nil || tok != "theirs" || len(sent) > 0 {
		t.Errorf("%q, %v, the forge got %q", tok, err, sent)
	}
}

// Each rebase has a separate comment: changing one notifies no subscriber.
func TestEachRebaseHasItsComment(t *testing.T) {
	t.Parallel()
	first, second := rangeDiffKey(
		&workorder.Result{TaskID: "T-A1B2C3D4", Attempt: 2},
	), rangeDiffKey(
		&workorder.Result{TaskID: "T-A1B2C3D4", Attempt: 3},
	)
	if first != "T-A1B2C3D4/range-diff-2" || first == second {
		t.Errorf("%s, %s", first, second)
	}
}
