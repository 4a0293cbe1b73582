package rootgit

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/claim"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/tree"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// sh runs a script as the agent would.
func (f *fixture) sh(t *testing.T, script string) string {
	t.Helper()
	out, err := proc.Output(t.Context(), proc.Spec{
		Argv: []string{"/bin/bash", "-ec", script}, Dir: f.Repos.Workspace, Env: append(f.Repos.Identity(), "PATH="+os.Getenv("PATH")),
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// next is a box that continues the task of this one, which has vanished.
func (f *fixture) next(t *testing.T) (*fixture, *claim.Result, *workorder.Restored) {
	t.Helper()
	n := newBox(t, f.srv, workorder.ModeContinue)
	n.Repos.Order.Ended = []string{f.Repos.Order.AttemptID}
	c, r := n.start(t)
	return n, c, r
}

// list is every file of a work tree with its type, mode and content.
func list(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if err != nil || d.Name() == ".git" {
			if d != nil && d.IsDir() && d.Name() == ".git" {
				return filepath.SkipDir
			}
			return err
		}
		st, err := d.Info()
		if err != nil || d.IsDir() {
			return err
		}
		content, _ := os.Readlink(p)
		if st.Mode().IsRegular() {
			raw, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			content = string(raw)
		}
		rel, _ := filepath.Rel(dir, p)
		b.WriteString(rel + "\x00" + st.Mode().String() + "\x00" + content + "\n")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

const agentsOwn = `sha256sum .git/index .git/HEAD; git stash list; git status --porcelain -z | tr '\0' '\n'; ` +
	`cat .git/refs/stash 2>/dev/null || true; ls .git/*.lock 2>/dev/null || true`

func TestCheckpointRoundTrip(t *testing.T) {
	t.Parallel()
	f := newFixture(
		t,
		map[string]string{
			"tracked":    "1",
			"gone":       "2",
			"old/name":   "3",
			"dir/a":      "4",
			"mode":       "5",
			"folder":     "7",
			".gitignore": "*.log\nbuild/\n",
			"forced.log": "6",
		},
	)
	f.sh(t, `
echo stashed >tracked; git stash -q
echo changed >tracked; rm gone; mkdir new; mv old/name new/name; rm -r dir; ln -s ../tracked dir; chmod -x mode; rm folder; `+
		`mkdir folder; echo x >folder/x
printf x >"a b"; printf x >$'line\nbreak'; printf x >"ü日本"; printf x >'"quoted"'; printf x >-dash; printf '\0\1\377' >binary; : >empty
printf x >run; chmod 755 run; chmod 644 binary; ln -s nowhere dangling; ln -s /etc/passwd abs
echo i >a.log; mkdir build; echo i >build/x; echo f >kept.log; git add -f kept.log; echo staged >staged; git add staged; echo more >>staged
mkdir -p deep/er; echo d >deep/er/file; git rm -q --cached mode`)
	before := f.sh(t, agentsOwn)
	f.sh(t, "touch .git/index.lock .git/HEAD.lock") // held for the whole time
	s := f.Saver.Save(t.Context(), true)
	if s.SnapErr != nil || s.PushErr != nil || f.Ledger.Checkpoint == nil || s.Tree == "" {
		t.Fatalf("saved %+v: %v", s, s.SnapErr)
	}
	f.sh(t, "rm .git/index.lock .git/HEAD.lock")
	if after := f.sh(t, agentsOwn); after != before {
		t.Errorf("the agent's own changed:\n%s\n%s", before, after)
	}
	n, c, r := f.next(t)
	if !c.Continues || c.Attempt != 2 || r == nil || !r.Verified || r.Tree != s.Tree || r.Checkpoint != f.Ledger.Checkpoint.SHA ||
		r.Kept != "" {
		t.Fatalf("claimed %+v, restored %+v, want the tree %s", c, r, s.Tree)
	}
	f.sh(t, "rm -r a.log build") // ignored: not part of it
	if want, got := list(t, f.Repos.Workspace), list(t, n.Repos.Workspace); want != got {
		t.Errorf("restored\n%q, want\n%q", got, want)
	}
	if got := gittest.Git(t, n.Repos.Workspace, "diff", "--cached", "--name-only"); got != "" {
		t.Errorf("the index is not as after a checkout: %q", got)
	}
	changed, err := n.Checkpoints.RestoredPaths(t.Context())
	if err != nil || !slices.Contains(changed, "line\nbreak") || slices.Contains(changed, "forced.log") {
		t.Errorf("restored paths %q, %v", changed, err)
	}
	if again := n.Saver.Save(t.Context(), true); again.Tree != s.Tree {
		t.Errorf("the restored tree hashes to %s, want %s", again.Tree, s.Tree)
	}
	l := n.land(t)
	if got := gittest.Git(t, n.Repos.Workspace, "rev-parse", l.Head+"^{tree}"); l.Err != nil || got != s.Tree {
		t.Errorf("landed the tree %s, want %s; %+v", got, s.Tree, l)
	}
}

// Who continues gets unpushed commits and uncommitted work back, as far as they fit.
func TestCheckpointMeetsTheBranch(t *testing.T) {
	t.Parallel()
	onTop := func(t *testing.T, f *fixture, file string) string {
		t.Helper()
		bare := f.srv.Root + "/r.git"
		dir := t.TempDir()
		gittest.Git(t, dir, "clone", "-q", "-b", target, bare, "c")
		dir = filepath.Join(dir, "c")
		if err := os.WriteFile(filepath.Join(dir, file), []byte("theirs"), 0o644); err != nil {
			t.Fatal(err)
		}
		gittest.Git(t, dir, "add", "-A")
		gittest.Git(t, dir, "commit", "-q", "-m", "theirs")
		gittest.Git(t, dir, "push", "-q", "origin", "HEAD:"+target)
		return gittest.Git(t, dir, "rev-parse", "HEAD")
	}
	for name, tc := range map[string]struct {
		change   func(*testing.T, *fixture) (head string)
		has      string // files afterwards
		restored bool
		kept     bool
	}{
		"as it was": {func(t *testing.T, f *fixture) string {
			t.Helper()
			return f.remote(t, workorder.BranchRef(target))
		}, "README a u", true, false},
		"the branch never got the commit": {func(t *testing.T, f *fixture) string {
			t.Helper()
			sha := f.remote(t, workorder.BranchRef(target))
			gittest.Git(t, f.srv.Root+"/r.git", "update-ref", "-d", workorder.BranchRef(target))
			return sha
		}, "README a u", true, false},
		"somebody pushed another file": {func(t *testing.T, f *fixture) string {
			t.Helper()
			return onTop(t, f, "theirs")
		}, "README a theirs u", true, false},
		"somebody pushed the same file": {func(t *testing.T, f *fixture) string {
			t.Helper()
			return onTop(t, f, "u")
		}, "README a u", false, true},
		"somebody replaced the branch": {func(t *testing.T, f *fixture) string {
			t.Helper()
			bare := f.srv.Root + "/r.git"
			sha := gittest.Git(t, bare, "commit-tree", "-p", "main", "-m", "new", "main^{tree}")
			gittest.Git(t, bare, "update-ref", workorder.BranchRef(target), sha)
			return sha
		}, "README", false, true},
		"a landing that was half done": {func(t *testing.T, f *fixture) string {
			t.Helper()
			cp := f.remote(t, workorder.CheckpointRef("T-A1B2C3D4"))
			if err := f.Committer.Commit(t.Context(), says("left")); err != nil {
				t.Fatal(err)
			}
			f.Lander.Land(t.Context(), f.base, f.bundle, nil)
			gittest.Git(t, f.srv.Root+"/r.git", "update-ref", workorder.CheckpointRef("T-A1B2C3D4"), cp)
			return f.remote(t, workorder.BranchRef(target))
		}, "README a u", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, nil)
			f.commit(t, "a")
			f.write(t, "u", "uncommitted")
			if s := f.Saver.Save(t.Context(), true); s.PushErr != nil || s.SnapErr != nil {
				t.Fatalf("saved %+v", s)
			}
			head := tc.change(t, f)
			n, _, r := f.next(t)
			if got := n.sh(t, "git rev-parse HEAD"); r.Head != head || strings.TrimSpace(got) != head || !r.Verified {
				t.Errorf("restored %+v with HEAD %s, want %s", r, got, head)
			}
			if got := strings.Join(strings.Fields(n.sh(t, "ls")), " "); got != tc.has {
				t.Errorf("the work tree has %q, want %q", got, tc.has)
			}
			if changed, err := n.Checkpoints.RestoredPaths(t.Context()); err != nil || (len(changed) > 0) != tc.restored {
				t.Errorf("restored paths %q, %v", changed, err)
			}
			if (r.Kept != "") != tc.kept {
				t.Fatalf("kept as %q", r.Kept)
			}
			if tc.kept {
				n.write(t, "new", "work")
				if s := n.Saver.Save(t.Context(), true); s.PushErr != nil {
					t.Fatal(s.PushErr)
				}
				if got := n.remote(t, r.Kept); got != r.Checkpoint {
					t.Errorf("%s is %q, want %s", r.Kept, got, r.Checkpoint)
				}
			}
		})
	}
}

// What setup left costs no more than reading it: tens of thousands of files need not be written as objects.
// The agent's changes of it count.
func TestSetupsLeftoversAreNotWritten(t *testing.T) {
	t.Parallel()
	f := newFixture(t, map[string]string{"tracked": "1", "README": "x"})
	for path, content := range map[string]string{
		"tracked": "setup", "deps/same": "of setup: same", "deps/changed": "of setup: changed",
		"deps/taken": "of setup: taken", "deps/gone": "of setup: gone",
	} {
		f.write(t, path, content)
	}
	if _, err := f.Checkpoints.RecordSetupFiles(t.Context()); err != nil {
		t.Fatal(err)
	}
	ws := f.Repos.Workspace
	has := func(content string) bool {
		id, err := f.Repos.Tree().Output(t.Context(), "hash-object", filepath.Join(ws, content))
		if err != nil {
			t.Fatal(err)
		}
		return f.Repos.Tree().Run(t.Context(), "cat-file", "-e", strings.TrimSpace(string(id))) == nil
	}
	// Of a file of the base, two versions are known, and a commit may have either.
	for path, want := range map[string]bool{"tracked": true, "deps/same": false, "deps/changed": false, "deps/taken": false} {
		if has(path) != want {
			t.Errorf("the content of %s is written: %v", path, !want)
		}
	}
	f.write(t, "deps/changed", "of the agent")
	gittest.Git(t, ws, "add", "-f", "deps/taken")
	gittest.Git(t, ws, "-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "-q", "-m", "take")
	if err := os.Remove(filepath.Join(ws, "deps/gone")); err != nil {
		t.Fatal(err)
	}
	if s := f.Saver.Save(t.Context(), true); s.PushErr != nil || s.SnapErr != nil {
		t.Fatalf("saved %+v", s)
	}
	if err := f.Committer.Commit(t.Context(), says("x")); err != nil {
		t.Fatal(err)
	}
	if got := strings.Fields(
		gittest.Git(t, ws, "diff", "--name-only", f.base, "HEAD"),
	); !slices.Equal(
		got,
		[]string{"deps/changed", "deps/taken"},
	) {
		t.Errorf("the branch has %q", got)
	}
}

// `git add -A` of the agent takes no file that setup left, and nothing that is added to a directory of packages.
func TestAgentsGitIgnoresSetupsLeftovers(t *testing.T) {
	t.Parallel()
	f := newFixture(t, map[string]string{"tracked": "1", "web/page": "x", "a [b]\"": "1", "both": "1"})
	ws := f.Repos.Workspace
	for _, path := range []string{"tracked", "a [b]\"", "both", "clone/file"} {
		f.write(t, path, "setup")
	}
	gittest.Git(t, filepath.Join(ws, "clone"), "init", "-q")
	for _, path := range []string{"lock [1]", ".pnpm-store/v10/a", "node_modules/a/a", "web/.venv/b", "vendor/bundle/c", "target/d", "gen/e", "cache/CACHEDIR.TAG"} {
		f.write(t, path, "setup")
	}
	for i := range tree.ManyFiles {
		f.write(t, fmt.Sprintf("many/%d", i), "setup")
	}
	if _, err := f.Checkpoints.RecordSetupFiles(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := gittest.Git(t, ws, "status", "--porcelain"); got != "" {
		t.Errorf("the agent's git shows %q", got)
	}
	for _, path := range []string{"both", "clone/new", "lock [1]", "node_modules/new/a", "web/.venv/new", "target/new", "many/new", "gen/new", "web/new", "vendor/own", "vendor/bundle/new", "cache/new"} {
		f.write(t, path, "agent")
		// The clock of files is coarse.
		if later := time.Now().Add(time.Second); os.Chtimes(filepath.Join(ws, path), later, later) != nil {
			t.Fatal(path)
		}
	}
	gittest.Git(t, ws, "add", "-A")
	gittest.Git(t, ws, "-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "-q", "-m", "all")
	if got := gittest.Git(t, ws, "diff", "--name-only", f.base, "HEAD"); got != "both\ngen/new\nvendor/own\nweb/new" {
		t.Errorf("the agent committed %q", got)
	}
	l := f.land(t)
	if got := gittest.Git(t, ws, "diff", "--name-only", f.base, "HEAD"); l.Err != nil || got != "both\ngen/new\nlock [1]\nvendor/own\nweb/new" {
		t.Errorf("%v: the branch has %q", l.Err, got)
	}
	gittest.Git(t, ws, "-c", tree.SetupFilter+"=", "add", "--renormalize", "tracked", "web")
	if got := gittest.Git(t, ws, "diff", "--cached", "--name-only"); got != "tracked" {
		t.Errorf("the agent staged %q", got)
	}
	for _, named := range []string{"lock [1]", "clone/new, many/new, target/new"} {
		if got := f.seen(); !slices.ContainsFunc(got, func(e workorder.Event) bool {
			return e.Type == workorder.EventWarning && strings.Contains(e.Text, named)
		}) {
			t.Errorf("%s is not named: %+v", named, got)
		}
	}
}

// Nothing of setup's is staged, whatever setup did to the index, and git converts a file as before.
func TestSetupStagesNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t, map[string]string{
		".gitattributes": "crlf text eol=crlf\nid ident\n", "crlf": "a\n", "id": "$Id$\n", "mode": "1", "staged": "1", "flagged": "1", "skipped": "1", "same": "1",
	})
	ws := f.Repos.Workspace
	for path, content := range map[string]string{
		"crlf": "a\r\nsetup\r\n", "id": "$Id: 1 $\nsetup\n", "staged": "setup", "new": "setup", "flagged": "setup", "skipped": "setup",
	} {
		f.write(t, path, content)
	}
	if err := os.Chmod(filepath.Join(ws, "mode"), 0o644); err != nil {
		t.Fatal(err)
	}
	gittest.Git(t, ws, "add", "staged", "new", "mode")
	gittest.Git(t, ws, "update-index", "--assume-unchanged", "flagged", "same")
	gittest.Git(t, ws, "update-index", "--skip-worktree", "skipped")
	hidden, err := f.Checkpoints.RecordSetupFiles(t.Context())
	if err != nil || !slices.Equal(hidden, []string{"crlf", "flagged", "id", "skipped", "staged"}) {
		t.Fatalf("hidden %q, %v", hidden, err)
	}
	if got := gittest.Git(t, ws, "diff", "--cached", "--name-only"); got != "" {
		t.Errorf("staged %q", got)
	}
	if got := gittest.Git(t, ws, "status", "--porcelain"); got != "M mode" {
		t.Errorf("the agent's git shows %q", got)
	}
	f.write(t, "flagged", "agent")
	f.write(t, "skipped", "agent")
	f.write(t, "same", "agent")
	f.write(t, "crlf", "a\r\nsetup\r\nagent\r\n")
	gittest.Git(t, ws, "add", "flagged", "skipped", "same", "crlf", "id", "staged")
	if got := gittest.Git(t, ws, "diff", "--cached", "--name-only"); got != "crlf\nflagged\nsame\nskipped" {
		t.Errorf("the agent staged %q", got)
	}
	if got := gittest.Git(t, ws, "show", ":crlf"); got != "a\nsetup\nagent" {
		t.Errorf("the agent staged %q", got)
	}
}

// Files that setup left are in no checkpoint; restored files are the agent's, even if setup changes them.
func TestCheckpointWithoutSetupsLeftovers(t *testing.T) {
	t.Parallel()
	f := newFixture(t, map[string]string{"tracked": "1", "README": "x"})
	setup := func(t *testing.T, f *fixture) {
		t.Helper()
		f.write(t, "lock", "{}")
		f.write(t, "tracked", "setup")
		f.write(t, "both", "setup")
		if _, err := f.Checkpoints.RecordSetupFiles(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	files := func(t *testing.T, f *fixture) string {
		t.Helper()
		if s := f.Saver.Save(t.Context(), true); s.PushErr != nil || s.SnapErr != nil {
			t.Fatalf("saved %+v", s)
		}
		cp := f.remote(t, workorder.CheckpointRef("T-A1B2C3D4"))
		if cp == "" {
			return ""
		}
		return strings.ReplaceAll(gittest.Git(t, f.srv.Root+"/r.git", "diff", "--name-only", cp+"^", cp), "\n", " ")
	}
	setup(t, f)
	if got := files(t, f); got != "" {
		t.Errorf("a checkpoint of setup's work: %q", got)
	}
	f.write(t, "both", "agent")
	f.write(t, "mine", "agent")
	if got := files(t, f); got != "both mine" {
		t.Errorf("the checkpoint has %q", got)
	}
	n, _, r := f.next(t)
	if !r.Verified {
		t.Fatalf("restored %+v", r)
	}
	setup(t, n)
	if got := files(t, n); got != "both mine" {
		t.Errorf("the next checkpoint has %q", got)
	}
	l := n.land(t)
	if got := gittest.Git(t, n.Repos.Workspace, "diff", "--name-only", n.base, l.Head); l.Err != nil || got != "both\nmine" {
		t.Errorf("landed %q, %+v", got, l)
	}
}

// A separate index that outlives its work tree.
func TestCheckpointFollowsTheAgent(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	files := func() string {
		s := f.Saver.Save(t.Context(), true)
		if s.PushErr != nil || s.SnapErr != nil {
			t.Fatalf("saved %+v", s)
		}
		return strings.ReplaceAll(gittest.Git(t, f.Repos.Workspace, "ls-tree", "-r", "--name-only", s.Tree), "\n", " ")
	}
	for _, step := range []struct{ script, want string }{
		{"echo 1 >out.bin; echo 2 >b", "README b out.bin"},
		{"echo '*.bin' >.gitignore", ".gitignore README b"},
		{"git add -f out.bin", ".gitignore README b out.bin"},
		{"git add -A; git commit -qm x", ".gitignore README b out.bin"},
		{"git rm -q --cached out.bin", ".gitignore README b"},
		{"echo 3 >c; git add c; git gc -q --prune=now; git reset -q", ".gitignore README b c out.bin"},
		{"echo 4 >d", ".gitignore README b c d out.bin"},
		{"git gc -q --prune=now", ".gitignore README b c d out.bin"},
		{"rm c d; echo 5 >e; git checkout -q --detach", ".gitignore README b e out.bin"},
	} {
		f.sh(t, step.script)
		if got := files(); got != step.want {
			t.Errorf("after %q: %q, want %q", step.script, got, step.want)
		}
	}
	gittest.Git(t, f.srv.Root+"/r.git", "fsck", "--strict")
}

func TestCheckpointOfWhatCannotAllBeRead(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	f.sh(t, "echo 1 >a; mkdir git~1; echo x >git~1/file") // a name that git takes for .git
	s := f.Saver.Save(t.Context(), true)
	if s.SnapErr == nil || s.PushErr != nil || f.Ledger.Checkpoint == nil {
		t.Fatalf("saved %+v", s)
	}
	if got := gittest.Git(t, f.srv.Root+"/r.git", "ls-tree", "--name-only", f.Ledger.Checkpoint.SHA); got != "README\na" {
		t.Errorf("the checkpoint has %q", got)
	}
	// A damaged repository is an error, which passes.
	f.sh(t, "mv .git/HEAD .git/HEAD2")
	if s := f.Saver.Save(t.Context(), true); s.SnapErr == nil || s.PushErr != nil {
		t.Errorf("saved %+v", s)
	}
	f.sh(t, "mv .git/HEAD2 .git/HEAD; echo 2 >b")
	f.Saver.Save(t.Context(), true)
	if got := gittest.Git(t, f.srv.Root+"/r.git", "ls-tree", "--name-only", f.Ledger.Checkpoint.SHA); got != "README\na\nb" {
		t.Errorf("the checkpoint has %q", got)
	}
}

// The agent's own git never meets ours.
func TestCheckpointsBesideCommits(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil).quick(0.05)
	k := f.keep(t)
	f.sh(
		t,
		`for i in $(seq 60); do echo $i >f$i; echo $i >same; git add -A; git commit -qm $i; echo u >u$i; git stash -q -u; git stash pop -q; done`,
	)
	k.Stop(t.Context())
	if n := f.saw(workorder.EventCheckpoint, "ok"); n == 0 {
		t.Error("there was no checkpoint")
	}
	if l := f.land(t); l.Err != nil || len(l.Commits) != 61 {
		t.Errorf("landed %d commits, %v", len(l.Commits), l.Err)
	}
	f.sh(t, "git fsck --strict")
}

// Work that the agent took back is not restored.
func TestCheckpointOfWorkThatWasTakenBack(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	f.write(t, "a", "1")
	if s := f.Saver.Save(t.Context(), true); s.SnapErr != nil || s.PushErr != nil || f.Ledger.Checkpoint == nil {
		t.Fatalf("saved %+v", s)
	}
	f.sh(t, "rm a")
	if l := f.land(t); l.Err != nil || l.Pushed || l.Checkpoint != nil || len(l.Warnings) != 0 {
		t.Errorf("landed %+v", l)
	}
	if _, c, r := f.next(t); c.Checkpoint != "" || r.Checkpoint != "" || r.Head != f.base {
		t.Errorf("claimed %+v, restored %+v", c, r)
	}
}

// Objects that a checkpoint brought to the remote are not sent again: not by the next one,
// and not by the commit that lands it.
func TestLargeFilesAreSentOnce(t *testing.T) {
	t.Parallel()
	const size = 3 << 20
	f := newFixture(t, nil)
	f.sh(t, "head -c 3145728 /dev/urandom >large")
	sent := func(do func()) int64 {
		t.Helper()
		before := f.srv.Received.Load()
		do()
		return f.srv.Received.Load() - before
	}
	save := func() {
		if s := f.Saver.Save(t.Context(), true); s.SnapErr != nil || s.PushErr != nil {
			t.Fatalf("saved %+v", s)
		}
	}
	if n := sent(save); n < size {
		t.Fatalf("the first checkpoint sent %d bytes", n)
	}
	f.write(t, "small", "1")
	if n := sent(save); n > size/10 {
		t.Errorf("the second checkpoint sent %d bytes", n)
	}
	n := sent(func() {
		if l := f.land(t); l.Err != nil || !l.Pushed || l.Checkpoint != nil {
			t.Fatalf("landed %+v", l)
		}
	})
	if n > size/10 {
		t.Errorf("the landing sent %d bytes", n)
	}
}

func bigTree(tb testing.TB, dir string, n int) {
	tb.Helper()
	for i := range n {
		name := filepath.Join(dir, "d"+string(rune('a'+i%26)), "e"+string(rune('a'+i/26%26)), "f"+strings.Repeat("x", i/676))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			tb.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(name), 0o644); err != nil {
			tb.Fatal(err)
		}
	}
}

// A second look at a large tree costs neither objects nor a connection.
func TestUnchangedTreeCostsNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	bigTree(t, f.Repos.Workspace, 4000)
	first := f.Saver.Save(t.Context(), true)
	if first.SnapErr != nil || first.PushErr != nil {
		t.Fatalf("saved %+v", first)
	}
	count := func() string {
		return gittest.Git(t, f.Repos.Workspace, "count-objects", "-v") + gittest.Git(t, f.Repos.Outbox().Dir, "count-objects", "-v")
	}
	f.Heartbeat.Stop() // its objects and pushes are not to be counted
	objects, pushes := count(), f.srv.Receives.Load()
	second := f.Saver.Save(t.Context(), true)
	if second.Tree != first.Tree || second.Pushed || count() != objects || f.srv.Receives.Load() != pushes {
		t.Errorf("saved %+v after %+v, %d pushes", second, first, f.srv.Receives.Load()-pushes)
	}
}

func BenchmarkCheckpoint20k(b *testing.B) {
	srv := gittest.New(b, token)
	srv.Create(b, "r.git", map[string]string{"README": "x"})
	ctx := context.WithoutCancel(b.Context())
	f := newBox(b, srv, workorder.ModeCreate)
	f.start(b)
	bigTree(b, f.Repos.Workspace, 20000)
	head := gittest.Git(b, f.Repos.Workspace, "rev-parse", "HEAD")
	snap := func(b *testing.B) {
		b.Helper()
		if _, err := f.Checkpoints.HashTree(ctx, head); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("first", func(b *testing.B) {
		for b.Loop() {
			f.Index.Reset()
			snap(b)
		}
	})
	b.Run("unchanged", func(b *testing.B) {
		for b.Loop() {
			snap(b)
		}
	})
	b.Run("one-file", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			if err := os.WriteFile(filepath.Join(f.Repos.Workspace, "one"), []byte(strings.Repeat("x", i%5000)), 0o644); err != nil {
				b.Fatal(err)
			}
			snap(b)
		}
	})
}

// The user's own configuration neither keeps a tree from being restored nor work from being saved.
func TestConfigurationOfTheUser(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	rules := func(f *fixture) {
		t.Helper()
		f.sh(t, "mkdir -p "+f.Repos.Home+"/.config/git; echo '*' >"+f.Repos.Home+"/.config/git/ignore; mkfifo "+f.Repos.Home+"/wait")
		if err := os.WriteFile(filepath.Join(f.Repos.Home, ".gitconfig"), []byte("[include]\n\tpath = wait\n[[[\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	rules(f)
	f.write(t, "u", "u\n")
	if s := f.Saver.Save(t.Context(), true); s.PushErr != nil || s.SnapErr != nil {
		t.Fatalf("saved %+v", s)
	}
	n := newBox(t, f.srv, workorder.ModeContinue)
	n.Repos.Order.Ended = []string{f.Repos.Order.AttemptID}
	rules(n)
	if _, r := n.start(t); r == nil || !r.Verified || n.sh(t, "cat u") != "u\n" {
		t.Fatalf("restored %+v", r)
	}
	if l := n.land(t); l.Err != nil || gittest.Git(t, n.srv.Root+"/r.git", "show", l.Head+":u") != "u" {
		t.Errorf("landed %+v", l)
	}
}
