package main

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

	"github.com/sandbox-agent/sandbox-agent/internal/forge/forgetest"
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
	p := &pull{token: "tok", log: slog.New(slog.DiscardHandler), order: &workorder.Order{
		TaskID: "T-A1B2C3D4", Repo: "https://github.com/o/app", PR: &workorder.PullRequest{APIURL: srv.URL + "/api/v3", Repository: "o/app"},
		Validate: []workorder.Command{{Name: "test", Run: "make test"}},
	}}
	head := strings.Repeat("a1", 20)
	first := workorder.Result{
		Mode: workorder.ModeCreate, Status: workorder.StatusSuccess, Branch: branch, BaseBranch: "main", HeadSHA: head, Pushed: true,
		Commits: []workorder.Commit{{SHA: head, Subject: "Do it"}}, Validation: []workorder.Validation{{Name: "test", Passed: true}},
	}
	rebase := first
	rebase.Mode, rebase.Status, rebase.Reasons, rebase.Validation = workorder.ModeRebase, workorder.StatusError, workorder.Because(workorder.ReasonPush, "somebody else pushed"), nil
	rebase.Restored = &workorder.Restored{Head: head}
	if pr, why, _, err := p.Open(t.Context(), &rebase); pr != nil || why == "" || err != nil || len(f.Pulls()) > 0 {
		t.Fatalf("%+v, %q, %v", pr, why, err)
	}
	if pr, why, _, err := p.Open(t.Context(), &first); pr == nil || why != "" || err != nil {
		t.Fatalf("%+v, %q, %v", pr, why, err)
	}
	pr, why, warnings, err := p.Open(t.Context(), &rebase)
	if i, _ := f.Issue(1); err != nil || pr == nil || why != "" || len(warnings) > 0 || !strings.Contains(i.Body, "1 check passes") ||
		!strings.Contains(i.Body, "A later attempt (rebase) left the branch as it was: somebody else pushed") {
		t.Errorf("%+v, %q, %q, %v\n%s", pr, why, warnings, err, i.Body)
	}
}

// What a GitHub App signs goes to the host that it was found for: git's to the remote's, and a forge elsewhere that has a
// token of its own gets that one.
func TestAppStaysOnItsHost(t *testing.T) {
	t.Parallel()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	home := httptest.NewServer(forgetest.New(forgetest.Options{Owner: "o", Name: "app", AppID: "123", AppKey: &key.PublicKey}))
	t.Cleanup(home.Close)
	var sent []string
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { sent = append(sent, r.Header.Get("Authorization")) }))
	t.Cleanup(other.Close)
	env := &workorder.Envelope{
		Order: workorder.Order{Repo: home.URL + "/o/app.git", CloneURL: home.URL + "/o/app.git", PR: &workorder.PullRequest{
			APIURL: strings.Replace(other.URL, "127.0.0.1", "localhost", 1) + "/api/v3", Repository: "o/app",
		}},
		Git: &workorder.GitCredential{Token: "ghs_first", Renew: true},
		App: &workorder.GitHubApp{ID: "123", PrivateKey: string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}))},
	}
	auth, err := gitAuth(env, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if tok, err := auth.Renew(t.Context()); err != nil || !strings.HasPrefix(tok, "ghs_") || len(sent) > 0 {
		t.Errorf("%q, %v, the other host got %q", tok, err, sent)
	}
	forge, err := (&pull{order: &env.Order, token: "theirs", app: env.App, log: slog.New(slog.DiscardHandler)}).client()
	if err != nil {
		t.Fatal(err)
	}
	if tok, err := forge.Token(t.Context()); err != nil || tok != "theirs" || len(sent) > 0 {
		t.Errorf("%q, %v, the other host got %q", tok, err, sent)
	}
}
