package resolve

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/host/credentials"
	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
	"github.com/sandbox-agent/sandbox-agent/projects"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// TestFromRemote: a repository that is a URL needs no project file either. Its branch is looked at with the credential for it, and nothing
// of it stays on this machine.
func TestFromRemote(t *testing.T) {
	temp, state := t.TempDir(), t.TempDir()
	t.Setenv("TMPDIR", temp)
	t.Chdir(t.TempDir())
	server := gittest.New(t, "token-of-the-server")
	url := server.Create(t, "my-shop.git", map[string]string{"package.json": `{"scripts": {"test": "jest"}}`, "package-lock.json": "{}"})
	bare := filepath.Join(server.Root, "my-shop.git")
	gittest.Git(t, bare, "branch", "empty", gittest.Git(t, bare, "commit-tree", "-m", "none", gittest.Git(t, bare, "mktree", "--missing")))
	withFile := server.Create(t, "file.git", map[string]string{projects.DefaultFile: "name: x\n"})
	find := func(token string, values map[string]string) (*Resolved, error) {
		vars := map[string]string{credentials.GitToken: token, "ANTHROPIC_API_KEY": "k"}
		r := &Resolver{Credentials: credentials.New(func(k string) string { return vars[k] }), StateDir: func() (string, error) { return state, nil }}
		g, err := r.Find(t.Context(), &Flags{Values: values, Sources: map[string]string{"repo": "--repo", "branch": "--branch"}})
		if left, _ := os.ReadDir(temp); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
		return g, err
	}
	g, err := find(server.Token, map[string]string{"repo": url})
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Order(projects.OrderInput{Task: "t"}); err != nil {
		t.Fatal(err)
	}
	o := g.Job.Order
	if g.Found == nil || o.Repo != url || o.Project != "my-shop" || !slices.Contains(o.Setup, "npm ci") || len(o.Validate) != 1 || o.Validate[0].Run != "npm run test" {
		t.Errorf("%+v", o)
	}
	if again, err := find(server.Token, g.request().Overrides); err != nil || again.Found == nil || again.Project.Repo != url {
		t.Errorf("the next attempt: %v", err)
	}
	if g, err := find(server.Token, map[string]string{"repo": url, "branch": "empty"}); err != nil || len(g.Found.Validate) != 0 {
		t.Errorf("of a branch: %v", err)
	}
	for name, c := range map[string]struct {
		token, url, branch string
		code               int
	}{
		"a wrong token":      {"wrong", url, "", workorder.ExitGit},
		"no such branch":     {server.Token, url, "absent", workorder.ExitGit},
		"no branch's name":   {server.Token, url, "-x:y", workorder.ExitUsage},
		"a project file":     {server.Token, withFile, "", workorder.ExitNoProject},
		"no such repository": {server.Token, server.URL + "/none.git", "", workorder.ExitGit},
	} {
		values := map[string]string{"repo": c.url}
		if c.branch != "" {
			values["branch"] = c.branch
		}
		if _, err := find(c.token, values); exiterr.Code(err) != c.code {
			t.Errorf("%s: code %d, want %d: %v", name, exiterr.Code(err), c.code, err)
		}
	}
}
