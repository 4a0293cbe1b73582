package rootgit

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/claim"

	"github.com/sandbox-agent/sandbox-agent/internal/test/forgetest"
	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// attempt is one box's repository without the box: real git.
type attempt struct {
	*Repository
	cloned CloneResult
}

func newAttempt(t *testing.T, o workorder.Order) *attempt {
	t.Helper()
	dir := t.TempDir()
	space := &Workspace{Dir: filepath.Join(dir, "workspace"), Home: t.TempDir(), GitConfig: filepath.Join(dir, "gitconfig")}
	if err := os.Mkdir(space.Dir, 0o755); err != nil {
		t.Fatal(err)
	}
	a := &attempt{
		Repository: New(slog.New(slog.DiscardHandler), &workorder.Envelope{Order: o, Git: &workorder.GitCredential{Token: "tok"}}, Config{
			Out: filepath.Join(dir, "out"), Git: filepath.Join(dir, "git"), SSH: filepath.Join(dir, "ssh"), Space: space,
			Emit: func(workorder.Event) {}, Clean: func(s string) string { return s },
		}),
	}
	t.Cleanup(a.Close)
	var err error
	if a.cloned, err = a.Clone(t.Context()); err != nil {
		t.Fatal(err)
	}
	return a
}

func (a *attempt) commit(t *testing.T, file, subject string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(a.cfg.Space.Dir, file), []byte(subject), 0o600); err != nil {
		t.Fatal(err)
	}
	gittest.Git(t, a.cfg.Space.Dir, "add", "-A")
	gittest.Git(t, a.cfg.Space.Dir, "commit", "-qm", subject)
}

// The certificate of a local repository is alone in its folder: git takes all that lie there.
func TestRemoteIsPinned(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a, err := gitAuth(&workorder.Envelope{
		Order: workorder.Order{CloneURL: "https://host.docker.internal:1/repo.git"},
		Git:   &workorder.GitCredential{Token: "t", KnownHosts: "h", CA: "the certificate"},
	}, dir)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(a.CAFile)
	if err != nil || string(b) != "the certificate" {
		t.Errorf("%q %v", b, err)
	}
	if all, err := os.ReadDir(filepath.Dir(a.CAFile)); err != nil || len(all) != 1 {
		t.Errorf("%v %v", all, err)
	}
}

// The next box with the same order reports the result that a box brought to the remote.
func TestSameOrderIsTold(t *testing.T) {
	t.Parallel()
	srv := gittest.New(t, "tok")
	url := srv.Create(t, "r.git", map[string]string{"README": "x"})
	o := workorder.Order{
		Version:      workorder.Version,
		TaskID:       "T-A1B2C3D4",
		Mode:         workorder.ModeCreate,
		IfExists:     workorder.IfExistsReport,
		Task:         "Make it",
		Repo:         url,
		CloneURL:     url,
		TargetBranch: "agent/T-A1B2C3D4-x",
		AttemptID:    workorder.NewAttemptID(),
		Author:       workorder.Identity{Name: "Agent", Email: "agent@example.org"},
	}
	a := newAttempt(t, o)
	a.commit(t, "f", "work")
	status := workorder.Attempt{Status: workorder.StatusFailed, EndedBy: workorder.EndedByValidation}
	if l := a.Land(
		t.Context(),
		a.cloned.BaseSHA,
		func([]workorder.Commit, string) workorder.Attempt { return status },
	); l.Err != nil ||
		!l.Pushed {
		t.Fatalf("%+v", l)
	}
	b, err := (&workorder.Result{
		TaskID: o.TaskID, AttemptID: o.AttemptID, Status: status.Status, EndedBy: status.EndedBy,
		Reasons: workorder.Because(workorder.ReasonValidation, "the test failed"),
	}).Encode()
	if err == nil {
		err = os.MkdirAll(a.cfg.Out, 0o755)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(a.cfg.Out, workorder.ResultFile), b, 0o600)
	}
	if err == nil {
		_, err = a.Result(t.Context())
	}
	if err == nil {
		err = a.Release(t.Context(), status)
	}
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	again := New(slog.New(slog.DiscardHandler), &workorder.Envelope{Order: o, Git: &workorder.GitCredential{Token: "tok"}}, Config{
		Out: filepath.Join(
			dir,
			"out",
		),
		Git:   filepath.Join(dir, "git"),
		SSH:   filepath.Join(dir, "ssh"),
		Space: a.cfg.Space,
		User:  a.cfg.Space.User,
		Emit:  func(workorder.Event) {},
		Clean: func(s string) string { return s },
	})
	_, err = again.Clone(t.Context())
	if done, ok := errors.AsType[*claim.DoneError](
		err,
	); !ok || done.Attempt.Status != status.Status || done.Result == nil ||
		done.Result.Reasons.Code() != workorder.ReasonValidation {
		t.Errorf("told %+v, %v", done, err)
	}
}

// A GitHub App's token goes to the host that it was found for: git's to the remote's.
func TestAppStaysOnItsHost(t *testing.T) {
	t.Parallel()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	home := httptest.NewServer(forgetest.New(forgetest.Options{Owner: "o", Name: "app", AppID: "123", AppKey: &key.PublicKey}))
	t.Cleanup(home.Close)
	var sent []string
	other := httptest.NewServer(
		http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { sent = append(sent, r.Header.Get("Authorization")) }),
	)
	t.Cleanup(other.Close)
	env := &workorder.Envelope{
		Order: workorder.Order{Repo: home.URL + "/o/app.git", CloneURL: home.URL + "/o/app.git", PR: &workorder.PullRequest{
			APIURL: strings.Replace(other.URL, "127.0.0.1", "localhost", 1) + "/api/v3", Repository: "o/app",
		}},
		Git: &workorder.GitCredential{Token: "ghs_first", Renew: true},
		App: &workorder.ForgeApp{
			ID:         "123",
			PrivateKey: string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})),
		},
	}
	auth, err := gitAuth(env, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if tok, err := auth.Renew(t.Context()); err != nil || !strings.HasPrefix(tok, "ghs_") || len(sent) > 0 {
		t.Errorf("%q, %v, the other host got %q", tok, err, sent)
	}
}

// The subject of the commit for what is left is of the task's words, but for a secret among them: the remote shows it to everybody.
func TestLeftoversNameNoSecret(t *testing.T) {
	t.Parallel()
	const secret = "key-0123456789"
	srv := gittest.New(t, "tok")
	url := srv.Create(t, "r.git", map[string]string{"README": "x"})
	a := newAttempt(t, workorder.Order{
		Version:      workorder.Version,
		TaskID:       "T-A1B2C3D4",
		Mode:         workorder.ModeCreate,
		Task:         secret + " is refused",
		Repo:         url,
		CloneURL:     url,
		TargetBranch: "agent/T-A1B2C3D4-x",
		AttemptID:    workorder.NewAttemptID(),
		Author:       workorder.Identity{Name: "Agent", Email: "agent@example.org"},
	})
	a.Repos.Clean = func(s string) string { return strings.ReplaceAll(s, secret, "a secret") }
	if err := os.WriteFile(filepath.Join(a.cfg.Space.Dir, "left"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := a.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if subject := gittest.Git(t, a.cfg.Space.Dir, "log", "-1", "--format=%s"); subject != "A secret is refused" {
		t.Errorf("%q", subject)
	}
}
