package app

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/test/forgetest"
	"github.com/sandbox-agent/sandbox-agent/projects"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// A pull request is worked on only where it is open, of this repository and of a task's branch.
func TestTaskPull(t *testing.T) {
	t.Parallel()
	f := forgetest.New(forgetest.Options{Owner: "o", Name: "app"})
	f.AddUser("ann", forgetest.User{Permission: "write"})
	f.AddToken("t0ken-of-ann", "ann")
	f.SetBranch("agent/T-A1B2C3D4-x", forgetest.SHA("x"))
	f.SetBranch("feature", forgetest.SHA("y"))
	good := f.AddPull("ann", "x", "", forgetest.Pull{Head: "agent/T-A1B2C3D4-x", Base: "main"})
	fork := f.AddPull("ann", "x", "", forgetest.Pull{Head: "agent/T-A1B2C3D4-x", Base: "main", HeadRepo: "eve/app"})
	other := f.AddPull("ann", "x", "", forgetest.Pull{Head: "feature", Base: "main"})
	merged := f.AddPull("ann", "x", "", forgetest.Pull{Head: "agent/T-A1B2C3D4-x", Base: "main"})
	f.Close(merged, true)
	srv := httptest.NewServer(f)
	t.Cleanup(srv.Close)
	tasks := &Tasks{Env: &Env{Getenv: func(name string) string { return map[string]string{"SANDBOX_AGENT_GIT_TOKEN": "t0ken-of-ann"}[name] }}}
	p := &projects.Project{Name: "app", Repo: srv.URL + "/x.git", PR: &workorder.PullRequest{APIURL: srv.URL + "/api/v3", Repository: "o/app"}}
	got, err := tasks.findPull(t.Context(), p, good)
	if err != nil || got.task != "T-A1B2C3D4" || got.Base != "main" || got.client.token.Token == "" {
		t.Fatalf("%+v, %v", got, err)
	}
	for n, want := range map[int]string{fork: "eve/app", other: "feature", merged: fmt.Sprintf("#%d", merged), 99: "#99", 0: "0"} {
		if _, err := tasks.findPull(t.Context(), p, n); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("#%d: %v", n, err)
		}
	}
	if _, err := tasks.findPull(t.Context(), &projects.Project{Name: "app"}, good); err == nil || exiterr.Code(err) != workorder.ExitInvalid {
		t.Errorf("no repository: %v", err)
	}
	// A path is on the forge that the project names, and on none by itself.
	path := t.TempDir()
	if _, err := tasks.findPull(t.Context(), &projects.Project{Name: "app", Repo: path, PR: p.PR}, good); err != nil {
		t.Error(err)
	}
	if _, err := tasks.findPull(t.Context(), &projects.Project{Name: "app", Repo: path}, good); err == nil ||
		!strings.Contains(err.Error(), path) || !strings.Contains(exiterr.Hint(err), "pr.api_url") {
		t.Errorf("a path: %v", err)
	}
	// Who gave the wrong token is told, and not where none was looked for.
	wrong := &Env{Getenv: func(name string) string { return map[string]string{"SANDBOX_AGENT_GIT_TOKEN": "wrong"}[name] }}
	if _, err := (&Tasks{Env: wrong}).findPull(t.Context(), p, good); err == nil ||
		!strings.Contains(exiterr.Hint(err), "SANDBOX_AGENT_GIT_TOKEN") || strings.Contains(exiterr.Hint(err), "GH_TOKEN") {
		t.Errorf("a wrong token: %v: %s", err, exiterr.Hint(err))
	}
	for _, v := range f.Violations() {
		t.Error(v)
	}
}
