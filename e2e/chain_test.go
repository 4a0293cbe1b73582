//go:build e2e

package e2e

import (
	"bytes"
	"fmt"
	"image/png"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/test/forgetest"
	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
	"github.com/sandbox-agent/sandbox-agent/projects/demo"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// chainAgent is the demo's agent, and what it would do with a review and with a conflict.
const chainAgent = `
harness:
  name: command
  command: |
    set -e
    case "$SANDBOX_AGENT_MODE" in
    create) exec python3 scripted_agent.py ;;
    revise)
      grep -q 'Greet those who come back' "$SANDBOX_AGENT_PROMPT_FILE"
      sed -i 's|<h1>Welcome</h1>|<h1>Welcome back</h1>|' page.py
      git commit -qam 'Greet those who come back' -m 'Addresses: 1'
      echo '2: Colours are not what this is about.' >"$SANDBOX_AGENT_ANSWERS" ;;
    rebase)
      sed -i -e '/^<<<<<<<\|^=======\|^>>>>>>>/d' -e '/<h1>Welcome back<\/h1>/d' -e 's|<h1>Hello</h1>|<h1>Hello again</h1>|' page.py
      git add page.py
      git -c core.editor=true rebase --continue ;;
    esac
`

// chain is the demo's task on its way through reviews.
type chain struct {
	*user
	f       *forgetest.Server
	srv     *gittest.Server
	bare    string
	project string
	id      string
}

func newChain(t *testing.T) *chain {
	t.Helper()
	f, srv, keys := besideForge(t, "labels: [agent], draft: true")
	c := &chain{user: newCarefulUser(t, "SANDBOX_AGENT_GIT_TOKEN="+forgeToken), f: f, srv: srv, bare: srv.Root + "/app.git"}
	repo, err := demo.Repository()
	if err != nil {
		t.Fatal(err)
	}
	c.push("Count visits", func(dir string) {
		if err := os.CopyFS(filepath.Join(dir, "demo"), repo); err != nil {
			t.Fatal(err)
		}
		entries, err := os.ReadDir(filepath.Join(dir, "demo"))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if err := os.Rename(filepath.Join(dir, "demo", e.Name()), filepath.Join(dir, e.Name())); err != nil {
				t.Fatal(err)
			}
		}
	})
	// The demo's own project, but for the repository and the image of its service.
	yaml, err := demo.Project()
	if err != nil {
		t.Fatal(err)
	}
	own := string(yaml)
	own = own[strings.Index(own, "\nservices:"):strings.Index(own, "\nharness:")]
	c.project = c.user.project(keys + strings.Replace(own, demo.ServiceImage, redisImage, 1) + chainAgent)
	return c
}

// push is a commit of somebody else's to main.
func (c *chain) push(message string, change func(dir string)) {
	c.t.Helper()
	dir := filepath.Join(c.t.TempDir(), "other")
	gittest.Git(c.t, c.t.TempDir(), "clone", "-q", "-b", "main", c.bare, dir)
	change(dir)
	gittest.Git(c.t, dir, "add", "-A")
	gittest.Git(c.t, dir, "commit", "-qm", message)
	gittest.Git(c.t, dir, "push", "-q", "origin", "HEAD:main")
}

// good is the result of a step of the way, with what is the same in all of them.
func (c *chain) good(call call, mode workorder.Mode) *workorder.Result {
	c.t.Helper()
	if c.id == "" {
		c.id = call.task(c.t)
	}
	r := c.plainResult(c.id)
	if call.code != 0 || r.Status != workorder.StatusSuccess || r.Mode != mode || r.PR == nil || r.Proof == nil {
		c.t.Fatalf("exit code %d, %s %s: %s, pull request %+v, proof %+v, steps %+v", call.code, r.Mode, r.Status, r.Reasons, r.PR, r.Proof, r.Steps)
	}
	if head := gittest.Git(c.t, c.bare, "rev-parse", r.Branch); head != r.HeadSHA {
		c.t.Errorf("the branch is at %s, the result says %s", head, r.HeadSHA)
	}
	if len(c.f.Pulls()) != 1 {
		c.t.Errorf("pull requests %v", c.f.Pulls())
	}
	c.artefacts(r)
	return r
}

// artefacts checks what lies in the result's folder and on the remote by content.
func (c *chain) artefacts(r *workorder.Result) {
	c.t.Helper()
	dir := filepath.Join(c.state, r.TaskID)
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(name)))
		if err != nil {
			c.t.Error(err)
		}
		return string(b)
	}
	page, body := read(workorder.ReportHTML), read(workorder.ReportMarkdown)
	for _, want := range []string{"data:image/png;base64,", "data:video/webm;base64,", r.TaskID} {
		if !strings.Contains(page, want) {
			c.t.Errorf("the report lacks %s", want)
		}
	}
	if external := regexp.MustCompile(`(src|href)="(https?:)?//[^"]*\.(js|css|png)"`).FindString(strings.ReplaceAll(page, "/blob/", "")); external != "" {
		c.t.Errorf("the report loads %s", external)
	}
	issue, _ := c.f.Issue(r.PR.Number)
	for _, want := range []string{"visits.py", "sandbox-agent revise --pr " + fmt.Sprint(r.PR.Number), "/o/app/blob/" + r.EvidenceSHA + "/"} {
		if !strings.Contains(issue.Body, want) {
			c.t.Errorf("the pull request's body lacks %q:\n%s", want, issue.Body)
		}
	}
	if !strings.Contains(body, "Pictures") {
		c.t.Errorf("the Markdown lacks the pictures:\n%s", body)
	}
	if r.EvidenceSHA == "" || gittest.Git(c.t, c.bare, "rev-parse", workorder.EvidenceRef(r.TaskID)) != r.EvidenceSHA {
		c.t.Fatalf("evidence %q, warnings %q", r.EvidenceSHA, r.Warnings)
	}
	// Each link of the body has its target, and no evidence is on the branch.
	for _, link := range regexp.MustCompile(`/o/app/blob/([0-9a-f]{40})/([^?"]+)\?raw=true`).FindAllStringSubmatch(issue.Body, -1) {
		if gittest.Git(c.t, c.bare, "cat-file", "-t", link[1]+":"+link[2]) != "blob" {
			c.t.Errorf("%s is not there", link[0])
		}
	}
	if files := gittest.Git(c.t, c.bare, "ls-tree", "-r", "--name-only", r.Branch); strings.Contains(files, "evidence") || strings.Contains(files, ".png") {
		c.t.Errorf("the branch has evidence:\n%s", files)
	}
	for _, p := range r.Proof.Pages {
		for side, v := range map[string]*workorder.PageView{"base": p.Base, "head": p.Head} {
			if v == nil || v.Status != 200 || v.Error != "" || len(v.Failed) > 0 || len(v.Console) > 0 {
				c.t.Errorf("%s at %d on %s: %+v; %s", p.Path, p.Width, side, v, r.Proof.Reasons)
				continue
			}
			img, err := png.Decode(bytes.NewReader([]byte(read(v.Picture))))
			if err != nil || img.Bounds().Dx() != p.Width {
				c.t.Errorf("%s: %v", v.Picture, err)
			}
			if !r.EvidenceKept(v.Picture) {
				c.t.Errorf("%s is not on the remote", v.Picture)
			}
		}
	}
	if len(r.Proof.Pages) != 2 || len(r.Proof.Checks) != 1 {
		c.t.Errorf("%d pages, %d checks: %s", len(r.Proof.Pages), len(r.Proof.Checks), r.Proof.Reasons)
	}
	if _, err := fs.Stat(os.DirFS(dir), workorder.ResultFile); err != nil {
		c.t.Error(err)
	}
}

// picture is the first page of head as the remote has it.
func (c *chain) picture(r *workorder.Result) []byte {
	c.t.Helper()
	b, err := c.srv.Repo("app.git").Output(c.t.Context(), "show", r.EvidenceSHA+":"+r.Proof.Pages[0].Head.Picture)
	if err != nil {
		c.t.Fatal(err)
	}
	return b
}

// The demo with a development server goes the whole way: a task, a review, a base that moves on.
func TestTheWholeWay(t *testing.T) {
	t.Parallel()
	c := newChain(t)
	first := c.good(c.run("", "create", "--task", demo.Task, "-p", c.project), workorder.ModeCreate)
	check := first.Proof.Checks[0]
	if check.Transition != workorder.TransitionFixed || len(first.Proof.TestFindings) != 0 {
		t.Errorf("%+v, flags %+v", check, first.Proof.TestFindings)
	}
	for _, p := range first.Proof.Pages {
		if p.Differs == nil || *p.Differs <= 0 || p.Diff == "" { // the number of the visitor
			t.Errorf("the page at %d: %+v", p.Width, p)
		}
	}
	c.keepPages(t, first)

	c.f.AddThread(first.PR.Number, forgetest.Thread{Path: "page.py", Line: 21}, "ann", "Greet those who come back, please.")
	c.f.AddThread(first.PR.Number, forgetest.Thread{Path: "page.py", Line: 17}, "ann", "Is this the right red?")
	second := c.good(c.run("", "revise", "--pr", fmt.Sprint(first.PR.Number), "-p", c.project), workorder.ModeRevise)
	gittest.Git(t, c.bare, "merge-base", "--is-ancestor", first.HeadSHA, second.HeadSHA)
	threads := c.f.Threads(first.PR.Number)
	if len(threads) != 2 || !threads[0].Resolved || threads[1].Resolved {
		t.Errorf("threads %+v", threads)
	}
	if said := threads[0].Comments[len(threads[0].Comments)-1].Body; !strings.Contains(said, second.HeadSHA[:7]) {
		t.Errorf("the reply names no commit: %s", said)
	}
	if said := threads[1].Comments[len(threads[1].Comments)-1].Body; !strings.Contains(said, "Colours are not what this is about") {
		t.Errorf("the reply gives no reason: %s", said)
	}
	// The pictures are those of this attempt.
	if before, after := c.picture(first), c.picture(second); bytes.Equal(before, after) {
		t.Error("the greeting is not in the picture")
	}

	c.push("Say hello", func(dir string) {
		page := filepath.Join(dir, "page.py")
		b, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		b = bytes.Replace(b, []byte("<h1>Welcome</h1>"), []byte("<h1>Hello</h1>"), 1)
		if err := os.WriteFile(page, b, 0o600); err != nil {
			t.Fatal(err)
		}
	})
	third := c.good(c.run("", "rebase", c.id), workorder.ModeRebase)
	moved := third.Rebased
	if moved == nil || !moved.Pushed || !slices.Equal(moved.Conflicts, []string{"page.py"}) || len(moved.Moved) != 2 {
		t.Fatalf("%+v", moved)
	}
	if how := []string{moved.Moved[0].How, moved.Moved[1].How}; !slices.Contains(how, workorder.RangeSame) || !slices.Contains(how, workorder.RangeChanged) {
		t.Errorf("%+v", moved.Moved)
	}
	gittest.Git(t, c.bare, "merge-base", "--is-ancestor", "main", third.HeadSHA)
	if gittest.Git(t, c.bare, "rev-parse", moved.Backup) != second.HeadSHA {
		t.Errorf("the backup %s is not the old head", moved.Backup)
	}
	if page := gittest.Git(t, c.bare, "show", third.Branch+":page.py"); !strings.Contains(page, "<h1>Hello again</h1>") || strings.Contains(page, "<<<<") {
		t.Errorf("the page:\n%s", page)
	}
	if i := slices.IndexFunc(c.f.Comments(first.PR.Number), func(x forgetest.Text) bool { return strings.Contains(x.Body, c.id+"/range-diff") }); i < 0 {
		t.Error("the pull request has no range-diff")
	}
	// Earlier links still have their targets.
	if gittest.Git(t, c.bare, "merge-base", first.EvidenceSHA, third.EvidenceSHA) != first.EvidenceSHA {
		t.Error("the evidence of the first attempt is gone")
	}
	if leaked := gittest.Git(t, c.bare, "log", "--all", "-p", "--text"); strings.Contains(leaked, forgeToken) {
		t.Error("the token is in the repository")
	}
}
