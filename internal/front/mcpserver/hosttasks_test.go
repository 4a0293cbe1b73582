package mcpserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/host/credentials"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// A repository that an agent names gets neither the project of the server's folder nor a token that is for no particular server.
func TestMCPNamedRepo(t *testing.T) {
	var asked atomic.Int32
	remote := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if shown := r.Header.Get("Authorization"); shown != "" {
			t.Errorf("%s was sent", shown)
		}
		w.Header().Set("WWW-Authenticate", "Basic")
		w.WriteHeader(http.StatusUnauthorized)
	}))
	defer remote.Close()
	t.Chdir(t.TempDir())
	if err := os.WriteFile(".sandbox-agent.yaml", []byte("name: [of, the, folder]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	vars := map[string]string{credentials.GitToken: "secret", "SANDBOX_AGENT_PROJECT": "./.sandbox-agent.yaml", "SANDBOX_AGENT_STATE_DIR": t.TempDir(), "HOME": t.TempDir()}
	tasks := NewTasks(&app.Env{Getenv: func(name string) string { return vars[name] }}, slog.New(slog.DiscardHandler))
	_, err := tasks.Create(t.Context(), TaskRequest{Task: "x", Repo: remote.URL + "/o/r"})
	if err == nil || asked.Load() == 0 || strings.Contains(err.Error(), "of, the, folder") {
		t.Errorf("asked %d times, %v", asked.Load(), err)
	}
	_, err = tasks.Create(t.Context(), TaskRequest{Task: "x"})
	if app.ExitCode(err) != workorder.ExitInvalid {
		t.Errorf("without a repository it is the folder's project: %v", err)
	}
}

func TestWrongCall(t *testing.T) {
	t.Parallel()
	for code, wrong := range map[int]bool{workorder.ExitUsage: true, workorder.ExitNotFound: true, workorder.ExitNoProject: true, workorder.ExitInvalid: false, workorder.ExitBox: false, workorder.ExitGit: false} {
		if _, got := errors.AsType[*WrongError](WrongCall(&coded{code})); got != wrong {
			t.Errorf("%d: %v", code, got)
		}
	}
	if WrongCall(nil) != nil {
		t.Error("nothing is wrong")
	}
}

type coded struct{ code int }

func (c *coded) Error() string { return "" }
func (c *coded) ExitCode() int { return c.code }

// A model reads the essentials, however long a result is.
func TestEssentials(t *testing.T) {
	t.Parallel()
	const many = 10000
	r := &workorder.Result{TaskID: "T-A1B2C3D4", Status: workorder.StatusFailed, PR: &workorder.PR{URL: "https://example.invalid/1"}, Proof: &workorder.Proof{}}
	r.Agent.Final = strings.Repeat("\x1b[2Jé", many)
	for n := range many {
		name := fmt.Sprint(n)
		r.Commits = append(r.Commits, workorder.Commit{Subject: strings.Repeat(name, 1000)})
		r.Validation = append(r.Validation, workorder.Validation{Name: name, Passed: n == 0})
		r.Proof.Checks = append(r.Proof.Checks, workorder.CheckProof{Name: name, Transition: "fixed"})
		r.Proof.TestFindings = append(r.Proof.TestFindings, workorder.TestFinding{Kind: workorder.FindingTestDeleted, Path: name})
		r.Evidence = append(r.Evidence, workorder.Evidence{Path: "evidence/" + name})
	}
	s := essentials(r, "/folder")
	b, err := json.Marshal(s)
	if err != nil || len(b) > 20<<10 || strings.Contains(s.Summary, "\x1b") {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	if s.PullRequest != r.PR.URL || !s.Checks[0].Passed || s.Checks[1].Passed || s.Checks[0].Transition != "fixed" || s.Status != "failed" || s.Dir != "/folder" {
		t.Errorf("%.2000s", b)
	}
}
