package rootgit

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/claim"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/land"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/remote"
	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
)

// baseSettings is what the base branch of these tests has.
var baseSettings = map[string]string{
	"README":                    "hello\n",
	".gitignore":                "*.log\n",
	".claude/settings.json":     `{"base":1}`,
	".claude/hooks/lint.sh":     "base",
	".claude/notes.md":          "n",
	".mcp.json":                 "{}",
	"opencode.json":             "o",
	"pkg/.claude/settings.json": "nested",
}

// hostile is what an agent leaves in its branch; hostileLater what it leaves uncommitted.
const (
	hostile = `echo evil >.claude/settings.json; chmod -x .claude/hooks/lint.sh; rm opencode.json; mkdir -p .gemini .codex
echo evil >.gemini/settings.json; echo evil >.codex/config.toml; echo evil >pkg/.claude/settings.json; echo "work" >work; ` +
		`git add -A; git commit -qm evil`
	hostileLater = `echo later >.claude/settings.local.json; echo worse >.mcp.json; echo more >more`
)

var hostilePaths = []string{
	".claude/hooks/lint.sh", ".claude/settings.json", ".claude/settings.local.json", ".codex/config.toml", ".gemini/settings.json",
	".mcp.json", "opencode.json", "pkg/.claude/settings.json",
}

// continued is a box that goes on with a task whose branch and checkpoint two scripts made, and what the next snapshot
// of it is to have.
func continued(t *testing.T, files map[string]string, committed, later string) (n *fixture, c *claim.Result, tree string) {
	t.Helper()
	f := newFixture(t, files)
	if committed != "" {
		f.sh(t, committed)
	}
	if later != "" {
		f.sh(t, later)
	}
	if s := f.Saver.Save(t.Context(), true); s.SnapErr != nil || s.PushErr != nil {
		t.Fatalf("saved %+v", s)
	} else {
		tree = s.Tree
	}
	f.Heartbeat.Stop()
	n, c, r := f.next(t)
	if !r.Verified || r.Tree != tree {
		t.Fatalf("restored %+v, want %s", r, tree)
	}
	return n, c, tree
}

func (f *fixture) neutralized(t *testing.T, c *claim.Result, want ...string) {
	t.Helper()
	got, err := f.Config.Neutralize(t.Context(), c)
	if err != nil || !slices.Equal(got, want) {
		t.Fatalf("neutralized %q: %v, want %q", got, err, want)
	}
}

// snap is the tree that a checkpoint has now.
func (f *fixture) snap(t *testing.T) string {
	t.Helper()
	s := f.Saver.Save(t.Context(), true)
	if s.SnapErr != nil || s.PushErr != nil {
		t.Fatalf("saved %+v", s)
	}
	return s.Tree
}

func (f *fixture) landedTree(t *testing.T, l land.Result) string {
	t.Helper()
	if l.Err != nil {
		t.Fatalf("landed %+v", l)
	}
	return gittest.Git(t, f.srv.Root+"/r.git", "rev-parse", l.Head+"^{tree}")
}

// The agent sees the base's settings, and its git sees nothing of it; snapshots, landings and the rescue have the branch's.
func TestSettingsAreTheBases(t *testing.T) {
	t.Parallel()
	n, c, tree := continued(t, baseSettings, hostile, hostileLater)
	n.neutralized(t, c, hostilePaths...)
	// The fixture's files are executable.
	const look = `cat .claude/settings.json .claude/hooks/lint.sh .mcp.json opencode.json pkg/.claude/settings.json work more
test -x .claude/hooks/lint.sh; ls -A . .claude; git status --porcelain`
	want := n.sh(t, look)
	if strings.Contains(want, "evil") || strings.Contains(want, "worse") || strings.Contains(want, "settings.local.json") ||
		strings.Contains(want, ".codex") ||
		strings.Contains(want, ".gemini") {
		t.Errorf("the agent sees\n%s", want)
	}
	if status := n.sh(t, "git status --porcelain"); status != "?? more\n" {
		t.Errorf("status %q", status)
	}
	if _, err := n.Checkpoints.RecordSetupFiles(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if got := n.snap(t); got != tree {
			t.Fatalf("the checkpoint is %s, want %s:\n%s", got, tree, gittest.Git(t, n.Repos.Workspace, "diff", "--stat", tree, got))
		}
	}
	// The next box can verify it, and has the same done to it.
	n.Heartbeat.Stop()
	m, mc, r := n.next(t)
	if !r.Verified || r.Tree != tree {
		t.Fatalf("restored %+v", r)
	}
	m.neutralized(t, mc, hostilePaths...)
	m.sh(t, `echo mine >own; git add -A; git commit -qam "the agent's"; echo left >left`)
	if files := m.sh(t, "git show --name-only --format="); files != "more\nown\n" {
		t.Errorf("the agent committed %q", files)
	}
	res := m.rescue(t)
	l := res.land(t)
	landed := res.landedTree(t, l)
	if diff := gittest.Git(t, m.Repos.Workspace, "diff-tree", "-r", "--name-only", tree, landed); diff != "left\nown" {
		t.Errorf("beside the agent's own work there changed\n%s", diff)
	}
	// Who comes after the agent sees what landed.
	if got := m.sh(
		t,
		"cat .claude/settings.json .mcp.json .claude/settings.local.json .codex/config.toml; test ! -e opencode.json; git status --porcelain",
	); got != "evil\nworse\nlater\nevil\n" {
		t.Errorf("after the landing there is %q", got)
	}
}

// The agent's own changes of such a file count.
func TestSettingsThatTheAgentChanges(t *testing.T) {
	t.Parallel()
	n, c, _ := continued(t, baseSettings, hostile, hostileLater)
	n.neutralized(t, c, hostilePaths...)
	n.sh(
		t,
		`echo own >.claude/settings.json; rm .claude/hooks/lint.sh; mkdir .codex; echo own >.codex/config.toml; echo own >opencode.json; `+
			`ln -s README .claude/settings.local.json`,
	)
	check := func(commit string) {
		t.Helper()
		got := ""
		for _, path := range []string{
			".claude/settings.json", ".codex/config.toml", "opencode.json", ".gemini/settings.json", ".mcp.json",
			".claude/settings.local.json",
		} {
			got += gittest.Git(t, n.srv.Root+"/r.git", "show", commit+":"+path) + " "
		}
		if got != "own own own evil worse README " {
			t.Errorf("there is %q", got)
		}
		if tree := n.tree(t, commit); strings.Contains(tree, "lint.sh") || !strings.Contains(tree, "120000 .claude/settings.local.json") {
			t.Errorf("there is\n%s", tree)
		}
	}
	n.snap(t)
	check(n.Ledger.Checkpoint.SHA)
	l := n.land(t)
	n.landedTree(t, l)
	check(l.Head)
}

func TestTrustedBranchConfig(t *testing.T) {
	t.Parallel()
	n, c, tree := continued(t, baseSettings, hostile, hostileLater)
	n.Repos.Order.TrustBranchConfig = true
	n.neutralized(t, c)
	if got := n.sh(t, "cat .claude/settings.json .mcp.json"); got != "evil\nworse\n" || n.snap(t) != tree {
		t.Errorf("the agent sees %q", got)
	}
}

// A new task's branch is its base; and what came with a merge of the base branch is the base's.
func TestSettingsOfTheBaseItself(t *testing.T) {
	t.Parallel()
	f := newFixture(t, baseSettings)
	f.neutralized(t, &claim.Result{BaseSHA: f.base, Base: "main"})
	dir := t.TempDir()
	gittest.Git(t, dir, "clone", "-q", f.srv.Root+"/r.git", "c")
	w := filepath.Join(dir, "c")
	if err := os.WriteFile(filepath.Join(w, ".mcp.json"), []byte("new of the base"), 0o644); err != nil {
		t.Fatal(err)
	}
	gittest.Git(t, w, "commit", "-qam", "settings")
	gittest.Git(t, w, "push", "-q", "origin", "HEAD:main")
	f.sh(t, "git fetch -q "+f.srv.Root+"/r.git main; git merge -q FETCH_HEAD; echo w >w; git add w; git commit -qm w")
	f.snap(t)
	f.Heartbeat.Stop()
	n, c, _ := f.next(t)
	n.neutralized(t, c)
	if got := n.sh(t, "cat .mcp.json"); got != "new of the base" {
		t.Errorf("got %q", got)
	}
}

// However the branch hides its settings, the agent finds none but the base's, and nothing is lost.
func TestSettingsThatHide(t *testing.T) {
	t.Parallel()
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.MkdirAll(outside, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(outside, "settings.json"), []byte("outside"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		base   map[string]string
		script string
		paths  []string
		see    string // what .claude/settings.json is for the agent
	}{
		"folder is a link": {
			baseSettings, "mkdir tools; echo evil >tools/settings.json; rm -r .claude; ln -s tools .claude",
			[]string{".claude", ".claude/hooks/lint.sh", ".claude/settings.json"},
			`{"base":1}`,
		},
		"folder is a link to elsewhere": {
			baseSettings, "rm -r .claude; ln -s " + outside + " .claude",
			[]string{".claude", ".claude/hooks/lint.sh", ".claude/settings.json"},
			`{"base":1}`,
		},
		"file is a link": {baseSettings, "echo evil >x; ln -sf ../x .claude/settings.json", []string{".claude/settings.json"}, `{"base":1}`},
		"folder is a file": {baseSettings, "rm -r .claude; echo x >.claude", []string{
			".claude", ".claude/hooks/lint.sh",
			".claude/settings.json",
		}, `{"base":1}`},
		"file is a folder": {
			baseSettings, "rm .claude/settings.json; mkdir .claude/settings.json; echo x >.claude/settings.json/x",
			[]string{".claude/settings.json", ".claude/settings.json/x"},
			`{"base":1}`,
		},
		"forced past ignores": {baseSettings, "echo .claude >.gitignore; echo evil >.claude/settings.local.json; " +
			"git add -f .claude/settings.local.json", []string{".claude/settings.local.json"}, `{"base":1}`},
		"a submodule": {map[string]string{"README": "x"}, "git init -q .claude; cd .claude; git commit -q --allow-empty -m x; " +
			"cd ..; git add .claude; git commit -qm sub; rm -rf .claude; mkdir .claude", []string{".claude"}, "-"},
		"the base has none": {
			map[string]string{"README": "x"},
			"mkdir .claude; echo evil >.claude/settings.json",
			[]string{".claude/settings.json"},
			"-",
		},
		"odd names": {
			map[string]string{"README": "x"},
			"mkdir -p $'a b\\n[x]*\\\\!#/.claude'; echo evil >$'a b\\n[x]*\\\\!#/.claude/settings.json'",
			[]string{"a b\n[x]*\\!#/.claude/settings.json"},
			"-",
		},
		"filters": {
			baseSettings, `echo '*.json filter=x eol=crlf ident' >.gitattributes; echo 'evil $Id$' >.claude/settings.json`,
			[]string{".claude/settings.json"},
			`{"base":1}`,
		},
		"another case":       {baseSettings, "mkdir .Claude; echo other >.Claude/settings.json", nil, `{"base":1}`},
		"a parent is a link": {baseSettings, "git mv pkg real; ln -s real pkg", []string{"real/.claude/settings.json"}, `{"base":1}`},
	} {
		if nightlyOnly(t, name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, c, tree := continued(t, tc.base, "", tc.script)
			n.neutralized(t, c, tc.paths...)
			if got := n.sh(t, "cat .claude/settings.json 2>/dev/null || echo -n -"); got != tc.see {
				t.Errorf("the agent sees %q, want %q", got, tc.see)
			}
			if got := n.snap(t); got != tree {
				t.Errorf("the checkpoint is not as before:\n%s", gittest.Git(t, n.Repos.Workspace, "diff", "--stat", tree, got))
			}
			if got := n.landedTree(t, n.land(t)); got != tree {
				t.Errorf("the landing is not as before:\n%s", gittest.Git(t, n.Repos.Workspace, "diff", "--stat", tree, got))
			}
			if b, err := os.ReadFile(filepath.Join(outside, "settings.json")); err != nil || string(b) != "outside" {
				t.Errorf("what lies outside is %q: %v", b, err)
			}
		})
	}
}

// Where the base's settings are a link, what it leads to is guarded too.
func TestSettingsBehindLinksOfTheBase(t *testing.T) {
	t.Parallel()
	srv := gittest.New(t, token)
	srv.Create(t, "r.git", map[string]string{"README": "x"})
	dir := t.TempDir()
	gittest.Git(t, dir, "clone", "-q", srv.Root+"/r.git", "c")
	w := filepath.Join(dir, "c")
	(&fixture{parts: connect(&remote.Repos{Order: newBox(t, srv, "create").Repos.Order, Workspace: w, Home: dir})}).sh(t, `
mkdir agents cfg; echo base >agents/settings.json; echo free >agents/free; ln -s agents .claude; echo base >cfg/mcp; `+
		`ln -s cfg/link .mcp.json; ln -s mcp cfg/link
git add -A; git commit -qm links; git push -q origin HEAD:main`)
	f := newBox(t, srv, "create")
	f.start(t)
	f.sh(t, "echo evil >agents/settings.json; echo evil >cfg/mcp; echo own >agents/free; git commit -qam evil")
	tree := f.snap(t)
	f.Heartbeat.Stop()
	n, c, _ := f.next(t)
	n.neutralized(t, c, "agents/settings.json", "cfg/mcp")
	if got := n.sh(t, "cat .claude/settings.json .mcp.json .claude/free"); got != "base\nbase\nown\n" || n.snap(t) != tree {
		t.Errorf("the agent sees %q", got)
	}
}

// The usual commands of git do not bring the base's settings into a commit, and lose nothing.
func TestGitBesideForeignSettings(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"add and commit": "echo a >a; git add -A; git commit -qam a; git add .; git commit -q --allow-empty -m b; echo b >a; " +
			"git commit -qa --amend -m c",
		"stash":     "echo a >README; git stash -q; git stash pop -q; git commit -qam a",
		"stash all": "echo a >README; echo u >u; git stash -qu; git stash pop -q; git add u; git commit -qam a",
		"branch and merge": "git checkout -q -b side; echo a >a; git add a; git commit -qm a; git checkout -q -; echo b >b; git add b; " +
			"git commit -qm b; git merge -q side -m m",
		"rebase": "echo a >a; git add a; git commit -qm a; echo b >a; git commit -qam b; " +
			"GIT_SEQUENCE_EDITOR='sed -i 2s/pick/fixup/' git rebase -q -i HEAD~2; git commit -q --allow-empty -m x",
		"cherry-pick": "git checkout -q -b side; echo a >a; git add a; git commit -qm a; git checkout -q -; " +
			"git cherry-pick side >/dev/null; git revert --no-edit HEAD >/dev/null",
		"soft reset": "echo a >a; git add a; git commit -qm a; git reset -q --soft HEAD~1; git commit -qm b; git reset -q; " +
			"git restore README",
		"throws objects away": "echo a >a; git add a; git commit -qm a; git reflog expire --expire=now --all; git gc -q --prune=now",
	} {
		if nightlyOnly(t, name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, c, tree := continued(t, baseSettings, hostile, hostileLater)
			n.neutralized(t, c, hostilePaths...)
			n.sh(t, script)
			check := func(what, got string) {
				t.Helper()
				for _, path := range hostilePaths {
					if d := gittest.Git(t, n.srv.Root+"/r.git", "diff-tree", "-r", tree, got, "--", path); d != "" {
						t.Errorf("%s: %s", what, d)
					}
				}
			}
			if got := n.sh(
				t,
				"cat .claude/settings.json .mcp.json opencode.json; ls .codex .gemini 2>/dev/null || true",
			); got != `{"base":1}{}o` {
				t.Errorf("the agent sees %q", got)
			}
			if diff := n.sh(t, "git diff --name-only origin/"+target+" HEAD -- "+strings.Join(hostilePaths, " ")); diff != "" {
				t.Errorf("the agent committed %q", diff)
			}
			check("checkpoint", n.snap(t))
			check("landing", n.landedTree(t, n.land(t)))
		})
	}
}

// An agent that goes to another commit has what that commit has; what it commits there on purpose stays.
func TestSettingsOfAnotherCommit(t *testing.T) {
	t.Parallel()
	n, c, _ := continued(t, baseSettings, hostile, "")
	n.neutralized(t, c, slices.DeleteFunc(slices.Clone(hostilePaths), func(s string) bool {
		return s == ".mcp.json" || s == ".claude/settings.local.json"
	})...)
	n.sh(t, "git update-index --no-skip-worktree .claude/settings.json; git commit -qm undone .claude/settings.json")
	l := n.land(t)
	n.landedTree(t, l)
	if got := gittest.Git(t, n.srv.Root+"/r.git", "show", l.Head+":.claude/settings.json"); got != `{"base":1}` {
		t.Errorf("the agent's own commit became %q", got)
	}
	if got := gittest.Git(t, n.srv.Root+"/r.git", "show", l.Head+":.codex/config.toml"); got != "evil" {
		t.Errorf("another file became %q", got)
	}
}

// Setup is no agent: what it leaves in such a file is not taken for work.
func TestSetupAndSettings(t *testing.T) {
	t.Parallel()
	n, c, tree := continued(t, baseSettings, hostile, "")
	if _, err := n.Config.Neutralize(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	n.sh(t, "echo setup >.claude/settings.json; echo lock >lock")
	if _, err := n.Checkpoints.RecordSetupFiles(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := n.snap(t); got != tree {
		t.Errorf("the checkpoint has\n%s", gittest.Git(t, n.Repos.Workspace, "diff", "--stat", tree, got))
	}
	n.write(t, "w", "w")
	if got := gittest.Git(t, n.Repos.Workspace, "diff-tree", "-r", "--name-only", tree, n.landedTree(t, n.land(t))); got != "w" {
		t.Errorf("landed %q", got)
	}
}

// An archive brings what no snapshot holds: that is not there for the agent either.
func TestSettingsFromAnArchive(t *testing.T) {
	t.Parallel()
	f := newFixture(t, baseSettings)
	f.write(t, "w", "w")
	f.sh(t, "git add w; git commit -qm w")
	tree := f.snap(t)
	f.sh(
		t,
		"mkdir -p .git/info; echo '*.local.json' >>.git/info/exclude; mkdir -p .gemini; echo evil >.claude/settings.local.json; "+
			"echo evil >.gemini/.env; echo evil >.claude/settings.json; chmod 0 .gemini/.env; chmod 500 .gemini",
	)
	archive := filepath.Join(t.TempDir(), "a.tar.gz")
	if err := f.Committer.Archive(t.Context(), archive, true); err != nil {
		t.Fatal(err)
	}
	f.Heartbeat.Stop()
	n, c, _ := f.next(t)
	n.Committer.Unarchive(t.Context(), archive)
	n.neutralized(t, c, ".claude/settings.json", ".claude/settings.local.json", ".gemini/.env")
	if got := n.sh(
		t,
		"cat .claude/settings.json; ls -A .claude .gemini 2>/dev/null || true",
	); !strings.HasPrefix(got, `{"base":1}`) || strings.Contains(got, "local") ||
		strings.Contains(got, ".env") {
		t.Errorf("the agent sees %q", got)
	}
	diff := gittest.Git(t, n.Repos.Workspace, "diff-tree", "-r", "--name-only", tree, n.landedTree(t, n.land(t)))
	if !strings.Contains(diff, ".claude/settings.json") || !strings.Contains(diff, ".gemini/.env") {
		t.Errorf("landed %q", diff)
	}
}

// Uncommitted files are archived without the base's settings: the next box would take them for work.
func TestArchiveHasNoForeignSettings(t *testing.T) {
	t.Parallel()
	n, c, _ := continued(t, baseSettings, hostile, hostileLater)
	n.neutralized(t, c, hostilePaths...)
	n.sh(t, "echo own >.mcp.json")
	left, err := n.Committer.Uncommitted(t.Context())
	if err != nil || !slices.Contains(left, "more") {
		t.Fatalf("left %q: %v", left, err)
	}
	for _, path := range left {
		if slices.Contains(hostilePaths, path) && path != ".mcp.json" {
			t.Errorf("%s is in the archive", path)
		}
	}
}

// Where the base's settings cannot be put there, no agent may start.
func TestSettingsThatCannotBeMade(t *testing.T) {
	t.Parallel()
	n, c, _ := continued(t, baseSettings, hostile, "")
	n.sh(t, "rm -r .git/objects; mkdir .git/objects")
	if paths, err := n.Config.Neutralize(t.Context(), c); err == nil || paths != nil {
		t.Errorf("neutralized %q: %v", paths, err)
	}
	n.Repos.Order.TrustBranchConfig = true
	if paths, err := n.Config.Neutralize(t.Context(), c); err != nil || paths != nil {
		t.Errorf("trusted, and neutralized %q: %v", paths, err)
	}
}
