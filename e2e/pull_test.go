//go:build e2e

package e2e

import (
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/test/forgetest"
	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const forgeToken = "ghp_e2e0123456789abcdefghij"

// onForge is a project whose agent makes a file, in a repository on a git server with a forge beside it.
func onForge(t *testing.T) (f *forgetest.Server, project string) {
	t.Helper()
	f, _, keys := besideForge(t, "draft: true, labels: [agent], reviewers: [ann]")
	return f, keys + `
harness: {name: command, command: "echo made >>made && git add made && git commit -qm 'Make it'"}
validate:
  there: test -f made
`
}

// besideForge is a repository on a git server with a forge beside it; keys are a project's words on both.
func besideForge(t *testing.T, pr string) (f *forgetest.Server, srv *gittest.Server, keys string) {
	t.Helper()
	host := hostAddress(t)
	srv = gittest.NewAt(t, forgeToken, host)
	url := srv.Create(t, "app.git", map[string]string{"README": "x"})
	f = forgetest.New(forgetest.Options{Owner: "o", Name: "app", Branch: func(name string) (string, bool) {
		sha, err := srv.Repo("app.git").Resolve(t.Context(), "refs/heads/"+name)
		return sha, err == nil && sha != ""
	}})
	f.AddUser("runner", forgetest.User{Permission: "write"})
	f.AddUser("ann", forgetest.User{Permission: "write"})
	f.AddToken(forgeToken, "runner")
	f.AddLabel("agent")
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", host+":0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: f, ReadHeaderTimeout: time.Minute}
	t.Cleanup(func() { _ = s.Close() })
	go func() { _ = s.Serve(ln) }()
	t.Cleanup(func() {
		for _, v := range f.Violations() {
			t.Errorf("the forge's description does not know: %s", v)
		}
	})
	return f, srv, `
name: pulled
repo: ` + url + `
branch: main
pr: {api_url: "http://` + ln.Addr().String() + `/api/v3", repository: o/app, ` + pr + `}
`
}

// The box opens the pull request of its branch, a later attempt updates it.
func TestPullRequest(t *testing.T) {
	t.Parallel()
	f, yaml := onForge(t)
	u := newCarefulUser(t, "SANDBOX_AGENT_GIT_TOKEN="+forgeToken)
	project := u.project(yaml)
	c := u.run("", "create", "--task", "Make the thing\n\nas @ann said", "-p", project)
	r := u.plainResult(c.task(t))
	if c.code != 0 || r.PR == nil || r.PR.State != "draft" || !strings.Contains(c.stdout, r.PR.URL) {
		t.Fatalf("exit code %d, %s, pull request %+v, steps %+v", c.code, r.Reasons, r.PR, r.Steps)
	}
	i, ok := f.Issue(r.PR.Number)
	if !ok || i.Title != "Make the thing" || !i.Pull.Draft || i.Pull.Head != r.Branch || i.Pull.Base != "main" || !slices.Equal(i.Labels, []string{"agent"}) || !slices.Equal(i.Pull.Reviewers, []string{"ann"}) {
		t.Errorf("%+v, %+v", i, i.Pull)
	}
	if strings.Contains(i.Body, "@ann") || !strings.Contains(i.Body, "`there`") {
		t.Errorf("the body: %s", i.Body)
	}
	// The log of the check is on a ref of its own, and the body links it at its commit.
	if r.EvidenceSHA == "" || !strings.Contains(i.Body, "/o/app/blob/"+r.EvidenceSHA+"/"+r.Proof.Checks[0].Head.Log) {
		t.Errorf("evidence %q, left %q, the body: %s", r.EvidenceSHA, r.EvidenceLeft, i.Body)
	}
	for file, want := range map[string]string{workorder.ReportHTML: "<!doctype html>", workorder.ReportMarkdown: "Make the thing"} {
		if b, err := os.ReadFile(filepath.Join(u.state, r.TaskID, file)); err != nil || !strings.Contains(strings.ToLower(string(b)), strings.ToLower(want)) {
			t.Errorf("%s: %v", file, err)
		}
	}
	again := u.run("", "continue", r.TaskID, "--task", "and more")
	if r2 := u.plainResult(r.TaskID); again.code != 0 || r2.PR == nil || r2.PR.Number != r.PR.Number || len(f.Pulls()) != 1 {
		t.Errorf("exit code %d, %+v, pull requests %v", again.code, r2.PR, f.Pulls())
	}
	if where := leaks(t, u, c, forgeToken); where != "" {
		t.Errorf("the token is %s", where)
	}
}

// A forge that is down costs the run nothing; the pull request is opened later by hand.
func TestForgeIsDown(t *testing.T) {
	t.Parallel()
	f, yaml := onForge(t)
	u := newCarefulUser(t, "SANDBOX_AGENT_GIT_TOKEN="+forgeToken)
	f.Inject(forgetest.Fault{Times: 1000, Status: http.StatusBadGateway})
	c := u.run("", "create", "--task", "x", "-p", u.project(yaml))
	r := u.plainResult(c.task(t))
	if c.code != 0 || r.Status != workorder.StatusSuccess || !r.Pushed || r.PR != nil || r.NextCommand != "sandbox-agent pr open "+r.TaskID {
		t.Fatalf("exit code %d, %s: %s, pushed %v, %+v, next %q", c.code, r.Status, r.Reasons, r.Pushed, r.PR, r.NextCommand)
	}
	if down := u.run("", "pr", "open", r.TaskID); down.code != workorder.ExitGit {
		t.Errorf("exit code %d: %s", down.code, down.stderr)
	}
	f.ClearFaults()
	open := u.run("", "pr", "open", r.TaskID, "--json")
	if open.code != 0 || len(f.Pulls()) != 1 || u.plainResult(r.TaskID).PR == nil {
		t.Errorf("exit code %d: %s%s", open.code, open.stdout, open.stderr)
	}
}
