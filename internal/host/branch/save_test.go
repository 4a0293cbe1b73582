package branch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
)

// Files that git does not know are left out where they are large, which is told; known ones never are.
func TestLarge(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	p, b := newPlace(t, repo), newBranch(t, New(t.TempDir()), "e", repo)
	save(t, b, p, "", 0)
	p.do(`mkdir "d [x]"; head -c 11000000 /dev/zero >"d [x]/large*"; head -c 11000000 /dev/zero >f; echo s >"d [x]/largex"`)
	s := save(t, b, p, "x", 0)
	if len(s.Unsaved) != 1 || s.Unsaved[0].Path != "d [x]/large*" {
		t.Errorf("%q", s.Unsaved)
	}
	if got := gittest.Git(t, repo, "diff", "--name-only", "main", "sandbox/e"); got != "d [x]/largex\nf" {
		t.Error(got)
	}
}

// A hostile clone saves its files, runs nothing of its settings, and changes nothing of the user's but the remote's branch.
func TestHostile(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	p, b := newPlace(t, repo), newBranch(t, New(t.TempDir()), "e", repo)
	save(t, b, p, "", 0)
	marker := filepath.Join(t.TempDir(), "ran")
	evil := filepath.Join(t.TempDir(), "evil")
	if err := os.WriteFile(evil, []byte("#!/bin/sh\necho x >>"+marker+"\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	p.do(`for h in pre-commit post-commit post-index-change reference-transaction post-checkout; do cp ` + evil + ` .git/hooks/$h; done
git config core.fsmonitor ` + evil + `; git config commit.gpgsign true; git config gpg.program ` + evil + `; git config core.hooksPath .git/hooks
git config filter.x.clean ` + evil + `; git config filter.x.required true; echo '* filter=x' >.gitattributes; git config core.worktree /; echo 3 >f`)
	for name, content := range map[string]string{"post-commit": "", "reference-transaction": "", "post-merge": ""} {
		if err := os.WriteFile(filepath.Join(repo, ".git", "hooks", name), []byte("#!/bin/sh\necho user >>"+marker+content+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	gittest.Git(t, repo, "config", "commit.gpgsign", "true")
	gittest.Git(t, repo, "config", "core.fsmonitor", evil)
	if s := save(t, b, p, "x", 0); s.Commit == "" {
		t.Error("nothing was saved")
	}
	gittest.Git(t, repo, "config", "core.fsmonitor", "false")
	if got := gittest.Git(t, repo, "show", "sandbox/e:f"); got != "3" {
		t.Error(got)
	}
	if b, err := os.ReadFile(marker); err == nil {
		t.Errorf("something ran: %s", b)
	}
	for name, script := range map[string]string{
		"objects are gone": "rm -rf .git/objects; echo 4 >f", "all is gone": "rm -rf .git; echo 5 >f", "own folder is gone": `rm -rf "$HOME/.sandbox-agent"; echo 6 >f`,
		"index is rubbish": `echo x >"$HOME/.sandbox-agent/git/index"; echo 7 >f`, "a lock is left": `: >"$HOME/.sandbox-agent/git/index.lock"; echo 8 >f`,
	} {
		t.Run(name, func(t *testing.T) {
			p.do(script)
			save(t, b, p, name, 0)
			want, err := os.ReadFile(filepath.Join(p.dir, "f"))
			if err != nil {
				t.Fatal(err)
			}
			if got := gittest.Git(t, repo, "show", "sandbox/e:f"); got+"\n" != string(want) {
				t.Errorf("%q, not %q", got, want)
			}
		})
	}
}

// What a sandbox says is not believed.
func TestLies(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	p, b := newPlace(t, repo), newBranch(t, New(t.TempDir()), "e", repo)
	save(t, b, p, "", 0)
	head := b.Head(t.Context())
	const pack = "PACK\x00\x00\x00\x02\x00\x00\x00\x00\x02\x9d\x08\x82\x3b\xd8\xa8\xea\xb5\x10\xad\x6a\xc7\x5c\x82\x3c\xfd\x3e\xd3\x1e" // one of nothing
	for name, said := range map[string]string{
		"nothing":          "",
		"no tree":          "x y\n.\n",
		"a tree it lacks":  "1111111111111111111111111111111111111111 AAAA\n.\n",
		"rubbish":          "1111111111111111111111111111111111111111 AAAA\n.\nPACK",
		"no tree, a pack":  "1111111111111111111111111111111111111111 AAAA\n.\n" + pack,
		"a commit":         head + " AAAA\n.\n" + pack,
		"an option":        "--upload-pack=x AAAA\n.\n",
		"another ref":      "1111111111111111111111111111111111111111 ../../x\n.\n",
		"no end of names":  "1111111111111111111111111111111111111111 AAAA\n" + strings.Repeat("a\n", 1000),
		"a line of 100 KB": strings.Repeat("a", 100<<10),
	} {
		t.Run(name, func(t *testing.T) {
			in := func(_ context.Context, _ []string, _ io.Reader, out io.Writer) error {
				_, err := io.WriteString(out, said)
				return err
			}
			if s, err := b.In(in, p.dir).Save(t.Context(), "", CommandRecord{Command: "x"}); err == nil {
				t.Errorf("%+v", s)
			}
			if b.Head(t.Context()) != head {
				t.Error("the branch has moved")
			}
		})
	}
}

// What was refused leaves nothing on the disk.
func TestRefusedLeavesNothing(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	p, b := newPlace(t, repo), newBranch(t, New(t.TempDir()), "e", repo)
	save(t, b, p, "", 0)
	packs := filepath.Join(b.dir, "objects", "pack")
	killed := filepath.Join(packs, "tmp_pack_x")
	if err := os.WriteFile(killed, []byte("PACK"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.do("head -c 100000 /dev/urandom >f")
	in := func(ctx context.Context, argv []string, in io.Reader, out io.Writer) error {
		var all bytes.Buffer
		err := p.in(ctx, argv, in, &all)
		all.Truncate(all.Len() - 10)
		_, werr := out.Write(all.Bytes())
		return errors.Join(err, werr)
	}
	if s, err := b.In(in, p.dir).Save(t.Context(), "", CommandRecord{}); err == nil {
		t.Errorf("%+v", s)
	}
	left, err := filepath.Glob(filepath.Join(packs, "tmp_*"))
	if err != nil || len(left) > 0 {
		t.Errorf("%q, %v", left, err)
	}
}

// What cannot be read keeps nothing else out, and is told once.
func TestUnreadable(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	if err := os.MkdirAll(filepath.Join(repo, "src"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(repo, "src", "a"), []byte("1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	gittest.Git(t, repo, "add", ".")
	gittest.Git(t, repo, "commit", "-qm", "src")
	const deep = `x=$(printf '%0200d' 0); (mkdir deep; cd deep; for i in $(seq 25); do mkdir $x; cd -P $x; done; echo 1 >leaf)`
	for name, c := range map[string]struct{ script, left, reason string }{
		"a file":              {"mkfifo x; mkdir d; ln -s x d/pipe; echo 1 >shut; chmod 0 shut", "shut", "closed"},
		"a known file":        {"echo 2 >src/a; chmod 0 src/a", "src/a", "closed"},
		"a folder":            {"mkdir p; echo 1 >p/s; chmod 000 p", "p/", "closed"},
		"one to write to":     {"mkdir p; echo 1 >p/s; chmod 333 p", "p/", "closed"},
		"one within another":  {"mkdir -p p/q; echo 1 >p/q/s; chmod 000 p/q", "p/q/", "closed"},
		"one in another":      {"mkdir -p p/q; echo 1 >p/q/s; chmod 000 p/q; chmod 444 p", "p/", "closed"},
		"a known folder":      {"echo 2 >src/a; chmod 000 src", "src/", "closed"},
		"a new file in it":    {"echo 2 >src/new; chmod 311 src", "src/", "closed"},
		"without x":           {"mkdir docs; echo z >docs/z; chmod -R 644 docs || :", "docs/", "closed"},
		"folders without x":   {"mkdir -p 'docs [*' src/b; echo z >'docs [*/z'; echo 2 >src/a; chmod -R a-x 'docs [*' src || :", "docs [*/ src/", "closed"},
		"one with two lines":  {"mkdir 'two\nlines'; echo z >'two\nlines/z'; chmod 444 'two\nlines'", "two?lines/", "closed"},
		"beyond a path's end": {deep, "", "long"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t, repo)
			p.plain()
			b := newBranch(t, New(t.TempDir()), strings.ReplaceAll(strings.ReplaceAll(name, " ", "-"), "'", ""), repo)
			p.do(strings.ReplaceAll(c.script, `\n`, "\n"))
			for range 2 {
				p.do("echo x >>f")
				s, err := b.In(p.in, p.dir).Save(t.Context(), "", CommandRecord{})
				if err != nil && !errors.Is(err, ErrNotPublished) {
					t.Fatal(err)
				}
				if got := strings.Join(paths(s), " "); c.left != "" && got != c.left || len(s.Unsaved) == 0 || s.Unsaved[0].Reason != reasons[c.reason] {
					t.Errorf("%+v", s.Unsaved)
				}
				if got := gittest.Git(t, b.dir, "diff", "--name-only", b.Base(t.Context()), b.Head(t.Context()), "--", "f", "src"); got != "f" {
					t.Error(got)
				}
				want, err := os.ReadFile(filepath.Join(p.dir, "f"))
				if got := gittest.Git(t, b.dir, "show", b.Head(t.Context())+":f"); err != nil || got+"\n" != string(want) {
					t.Errorf("%q, not %q: %v", got, want, err)
				}
			}
			p.do("chmod -R u+rwX .; rm -rf deep x d")
			if s, err := b.In(p.in, p.dir).Save(t.Context(), "", CommandRecord{}); len(s.Unsaved) > 0 {
				t.Errorf("%+v, %v", s.Unsaved, err)
			}
			p.do(`git add -A; git write-tree >"$HOME/tree"`)
			tree, err := os.ReadFile(filepath.Join(p.home, "tree"))
			if got := gittest.Git(t, b.dir, "rev-parse", b.Head(t.Context())+"^{tree}"); err != nil || got+"\n" != string(tree) {
				t.Errorf("%s, not %s: %v", got, tree, err)
			}
		})
	}
}

// What saves bring is packed now and then.
func TestTidy(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	p := newPlace(t, repo)
	b := newBranch(t, New(t.TempDir()), "dev", repo)
	for i := range maxPacks + 5 {
		p.do(fmt.Sprintf("echo %d >f", i))
		save(t, b, p, "x", 0)
	}
	packs, err := filepath.Glob(filepath.Join(b.dir, "objects", "pack", "*.pack"))
	if err != nil || len(packs) > 10 {
		t.Errorf("%d packs, %v", len(packs), err)
	}
	gittest.Git(t, b.dir, "fsck", "--strict")
	if got := gittest.Git(t, repo, "rev-list", "--count", "main..sandbox/dev"); got != strconv.Itoa(maxPacks+6) {
		t.Errorf("%s commits", got)
	}
}

// A file whose name git does not take keeps no other out, and is told.
func TestNames(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	p, b := newPlace(t, repo), newBranch(t, New(t.TempDir()), "dev", repo)
	save(t, b, p, "", 0)
	hfs := ".g\u200cit"
	p.do("echo 2 >f; echo 3 >git~1; mkdir d " + hfs + "; echo 4 >" + hfs + "/config; echo 5 >d/.GI\u200dT")
	for range 2 {
		s, err := b.In(p.in, p.dir).Save(t.Context(), "", CommandRecord{})
		if err != nil || !slices.Equal(paths(s), []string{hfs + "/config", "d/.GI\u200dT", "git~1"}) {
			t.Fatalf("%+v, %v", s, err)
		}
		if got := gittest.Git(t, repo, "show", "sandbox/dev:f"); got != "2" {
			t.Error(got)
		}
	}
	p.do("rm -r git~1 d " + hfs + "; echo 6 >f")
	if s, err := b.In(p.in, p.dir).Save(t.Context(), "", CommandRecord{}); err != nil || len(s.Unsaved) != 0 || s.Commit == "" {
		t.Errorf("%+v, %v", s, err)
	}
}

// A repository that a command has made in the clone is saved as its files, a submodule as its commit.
func TestNested(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	p, b := newPlace(t, repo), newBranch(t, New(t.TempDir()), "dev", repo)
	save(t, b, p, "", 0)
	now := func(what, want string) {
		t.Helper()
		if s, err := b.In(p.in, p.dir).Save(t.Context(), "", CommandRecord{}); err != nil || len(s.Unsaved) != 0 {
			t.Fatalf("%s: %+v, %v", what, s, err)
		}
		if got := gittest.Git(t, repo, "diff", "--name-only", "main", "sandbox/dev"); got != want {
			t.Errorf("%s: %q, not %q", what, got, want)
		}
	}
	p.do(`mkdir plain; echo 1 >plain/f; git init -q nothing; git init -q "e m"; echo 1 >"e m/f"; git init -q full; cd full
echo out >.gitignore; echo 1 >out; echo 1 >f; git add f; git -c user.name=x -c user.email=x@x commit -qm x; echo 2 >g; git init -q in/in; cd in/in; echo 1 >f; git init -q deep; echo 1 >deep/f`)
	const all = "e m/f\nfull/.gitignore\nfull/f\nfull/g\nfull/in/in/deep/f\nfull/in/in/f\nplain/f"
	now("made", all)
	now("again", all)
	p.do(`echo 3 >full/f; git -C full -c user.name=x -c user.email=x@x commit -qam x; echo 1 >full/in/in/deep/g; rm -r full/g "e m" nothing`)
	now("changed", "full/.gitignore\nfull/f\nfull/in/in/deep/f\nfull/in/in/deep/g\nfull/in/in/f\nplain/f")
	if got := gittest.Git(t, repo, "show", "sandbox/dev:full/f"); got != "3" {
		t.Error(got)
	}
	p.do("rm -r plain; git -c protocol.file.allow=always submodule --quiet add \"$PWD/full\" \"s u\" 2>/dev/null; rm -r full; git worktree add -q -f tree HEAD")
	now("a submodule, and a work tree", ".gitmodules\ns u\ntree/f\ntree/logo.png\ntree/old name")
	if got := gittest.Git(t, repo, "ls-tree", "sandbox/dev", "--", "s u"); !strings.HasPrefix(got, "160000 ") {
		t.Error(got)
	}
	p.do("git -C 's u' remote remove origin; git -C 's u' update-ref refs/sandbox-agent/base HEAD; git -C 's u' branch -q -D main master 2>/dev/null || :")
	now("a submodule as this machine brings it", ".gitmodules\ns u\ntree/f\ntree/logo.png\ntree/old name")
	p.do("touch -d 2001-01-01 's u/f'; mkdir 's u/node_modules'; : >'s u/node_modules/built'")
	now("built", ".gitmodules\ns u\ntree/f\ntree/logo.png\ntree/old name")
	for _, row := range [][]string{
		{"echo 9 >'s u/f'", "s u/f"},
		{"git -C 's u' -c user.name=x -c user.email=x@x commit -qam own", "s u/"},
		{"git -C 's u' checkout -q HEAD~1; : >'s u/new'", "s u/", "s u/new"},
		{"rm -rf 's u/.git'", "s u/"},
	} {
		p.do(row[0])
		if s, err := b.In(p.in, p.dir).Save(t.Context(), "", CommandRecord{}); err != nil || !slices.Equal(paths(s), row[1:]) {
			t.Errorf("%s: %+v, %v", row[0], s, err)
		}
	}
	p.do("rm -r 's u'; mkdir 's u'")
	now("one that is not checked out", ".gitmodules\ns u\ntree/f\ntree/logo.png\ntree/old name")
}

// A file for which git ends is an error, and no commit has lost the others.
func TestGitEnds(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	p, b := newPlace(t, repo), newBranch(t, New(t.TempDir()), "dev", repo)
	save(t, b, p, "", 0)
	p.do(`echo '*.u working-tree-encoding=UTF-16' >.gitattributes; printf '\377' >bad.u; echo 2 >f`)
	if s, err := b.In(p.in, p.dir).Save(t.Context(), "", CommandRecord{}); err == nil || !strings.Contains(err.Error(), "bad.u") {
		t.Errorf("%+v, %v", s, err)
	}
	if got := gittest.Git(t, repo, "diff", "--name-only", "main", "sandbox/dev"); got != "" {
		t.Error(got)
	}
	p.do("rm bad.u")
	save(t, b, p, "", 0)
	if got := gittest.Git(t, repo, "diff", "--name-only", "main", "sandbox/dev"); got != ".gitattributes\nf" {
		t.Error(got)
	}
}

// A file that git knows stays in the branch, whatever keeps a save from what is in it now, and its changes count, whatever the clone's index says.
func TestKnown(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	if err := os.WriteFile(filepath.Join(repo, "large"), make([]byte, 11<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	gittest.Git(t, repo, "add", ".")
	gittest.Git(t, repo, "commit", "-qm", "large")
	all := New(t.TempDir())
	for name, c := range map[string]struct{ script, changed, left string }{
		"a lock is left":    {`: >"$HOME/.sandbox-agent/git/index.lock"; echo 2 >f`, "f", ""},
		"hidden from git":   {`git update-index --assume-unchanged f; git update-index --skip-worktree "old name"; rm -r "$HOME/.sandbox-agent"; echo 2 >f; echo 2 >"old name"`, "f\nold name", ""},
		"it cannot be read": {`chmod 0 "old name" large; touch "old name" large; echo 2 >f; echo 3 >shut; chmod 0 shut`, "f", "large old name shut"},
	} {
		t.Run(name, func(t *testing.T) {
			p, b := newPlace(t, repo), newBranch(t, all, strings.Fields(name)[0], repo)
			p.plain()
			save(t, b, p, "", 0)
			p.do(c.script)
			if s := save(t, b, p, "", 0); strings.Join(paths(s), " ") != c.left {
				t.Errorf("%q", s.Unsaved)
			}
			if got := gittest.Git(t, b.dir, "diff", "--name-only", b.Base(t.Context()), b.Head(t.Context())); got != c.changed {
				t.Error(got)
			}
		})
	}
}

// What a sparse checkout takes away is not deleted, and what is made in its place is saved.
func TestSparse(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	for _, d := range []string{"a", "b"} {
		if err := os.Mkdir(filepath.Join(repo, d), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(repo, d, "e m"), []byte("1\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	gittest.Git(t, repo, "add", ".")
	gittest.Git(t, repo, "commit", "-qm", "folders")
	p, b := newPlace(t, repo), newBranch(t, New(t.TempDir()), "dev", repo)
	save(t, b, p, "", 0)
	for _, c := range []struct{ script, want string }{
		{"git sparse-checkout set a", ""},
		{"echo 2 >'a/e m'", "M\ta/e m"},
		{"mkdir b; echo 2 >'b/e m'; echo 2 >b/new", "M\ta/e m\nM\tb/e m\nA\tb/new"},
		{"rm -r b; git sparse-checkout disable; git checkout -q -- b; rm 'b/e m'", "M\ta/e m\nD\tb/e m"},
	} {
		p.do(c.script)
		save(t, b, p, c.script, 0)
		if got := gittest.Git(t, repo, "diff", "--name-status", "main", "sandbox/dev"); got != c.want {
			t.Errorf("%s: %q, not %q", c.script, got, c.want)
		}
	}
}

// What only a branch or a stash of the clone has is found: not what is merged, saved or the user's.
func TestAside(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	gittest.Git(t, repo, "branch", "other", gittest.Git(t, repo, "commit-tree", "main^{tree}", "-m", "other"))
	p, b := newPlace(t, repo), newBranch(t, New(t.TempDir()), "dev", repo)
	save(t, b, p, "", 0)
	const commit = "git add -A; git -c user.name=x -c user.email=x@x commit -qm x; "
	for _, c := range []struct{ script, want string }{
		{"git branch other origin/other; git tag t origin/other", ""},
		{"git checkout -qb saved; echo 2 >f; " + commit, ""},
		{"git checkout -qb more; echo 3 >f; " + commit, ""},
		{"git checkout -q main", ""}, // its files are those of a commit
		{"git checkout -qb lost; echo 4 >f; " + commit + "git checkout -q main", "refs/heads/lost"},
		{"echo 5 >new; git -c user.name=x -c user.email=x@x stash -q -u", "refs/heads/lost refs/stash@{0}"},
		{"git stash pop -q; git checkout -q lost", ""},
		{"echo 6 >f; git -c user.name=x -c user.email=x@x stash -q; echo 2 >f; git -c user.name=x -c user.email=x@x stash -q", "refs/stash@{1}"}, // a save has the files of the newest
		{"git stash clear; echo 7 >f; " + commit + "git tag light; git -c user.name=x -c user.email=x@x tag -a -m x annotated; git reset -q --hard HEAD~1", "refs/tags/annotated refs/tags/light"},
		{"git tag -d light annotated >/dev/null", ""},
		{"rm -rf .git", ""},
	} {
		p.do(c.script)
		if c.want == "" {
			save(t, b, p, "", 0)
		}
		names, err := b.In(p.in, p.dir).UnsavedRefs(t.Context())
		if got := strings.Join(names, " "); got != c.want || err != nil {
			t.Errorf("%s: %q, %v", c.script, got, err)
		}
	}
}

// What is added in the clone is known, though it be ignored, large, empty or in a folder that is left out.
func TestAdded(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	p, b := newPlace(t, repo), newBranch(t, New(t.TempDir()), "dev", repo)
	save(t, b, p, "", 0)
	const commit = "git -c user.name=x -c user.email=x@x commit -qm x"
	for _, c := range []struct{ script, want string }{
		{`echo '*.log' >.gitignore; mkdir venv; echo 1 >venv/v; head -c 11000000 /dev/zero >large; echo 1 >a.log; : >"e m.log"; ln -s x l.log; echo 1 >b.log`, "A\t.gitignore"},
		{`git add -f large venv a.log "e m.log" l.log; ` + commit, "A\t.gitignore\nA\ta.log\nA\te m.log\nA\tl.log\nA\tlarge\nA\tvenv/v"},
		{"echo 2 >a.log; rm l.log", "A\t.gitignore\nA\ta.log\nA\te m.log\nA\tlarge\nA\tvenv/v"},
		{"rm -r venv large .gitignore *.log; git add -A; " + commit + "; git init -q sub; echo 1 >sub/s; git -C sub add .; cd sub; " + commit + "; cd ..; git add sub 2>/dev/null; git add -f sub/s || :", "A\tsub/s"},
	} {
		p.do(c.script)
		s, err := b.In(p.in, p.dir).Save(t.Context(), "", CommandRecord{})
		if got := gittest.Git(t, repo, "diff", "--name-status", "main", "sandbox/dev"); got != c.want || err != nil {
			t.Errorf("%s: %q, %v", c.script, got, err)
		}
		if known := c.want != "A\t.gitignore"; known == (len(s.Unsaved) > 0) {
			t.Errorf("%s: %q", c.script, s.Unsaved)
		}
	}
	if got := gittest.Git(t, b.dir, "fsck", "--strict"); got != "" {
		t.Error(got)
	}
	// What is removed from the index alone is gone where git ignores it then, and its file stays.
	for _, c := range []struct{ script, want string }{
		{`git rm -q --cached f "old name" logo.png; printf '%s\n' "old name" f >.gitignore; git add .gitignore; echo 2 >f; ` + commit, "A\t.gitignore\nD\tf\nD\told name\nA\tsub/s"},
		{"git add -f f; test -e 'old name'", "A\t.gitignore\nM\tf\nD\told name\nA\tsub/s"},
	} {
		p.do(c.script)
		save(t, b, p, "", 0)
		if got := gittest.Git(t, repo, "diff", "--no-renames", "--name-status", "main", "sandbox/dev"); got != c.want {
			t.Errorf("%s: %q", c.script, got)
		}
	}
}

// A clone that was not made whole is an error: that files are not there is no change.
func TestHalf(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	p, b := newPlace(t, repo), newBranch(t, New(t.TempDir()), "dev", repo)
	refused := func(what string) {
		t.Helper()
		for range 2 {
			if s, err := b.In(p.in, p.dir).Save(t.Context(), "", CommandRecord{}); err == nil {
				t.Errorf("%s: %+v, %v", what, s, err)
			}
		}
	}
	p.do("mv .git ../saved; rm -r *")
	refused("of a new sandbox")
	p.do("rm -rf .git; mkdir .sandbox-agent-clone; mv ../saved .sandbox-agent-clone/.git; echo 1 >f")
	refused("that has some files")
	if b.Head(t.Context()) != "" {
		t.Error("there is a branch")
	}
	p.do("mv .sandbox-agent-clone/.git .; git reset -q --hard")
	save(t, b, p, "", 0)
	p.do("rm -rf .git *")
	refused("of a sandbox that was made anew")
	if got := gittest.Git(t, repo, "diff", "--name-only", "main", "sandbox/dev"); got != "" {
		t.Error(got)
	}
}

// A FIFO in the place of a file that git opens is an error that names it: git would wait for the FIFO.
func TestFIFO(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	store := New(t.TempDir())
	for i, file := range []string{".git/index", ".git/HEAD", ".git/packed-refs", ".git/MERGE_HEAD", ".git/refs/heads/main", ".git/info/exclude", ".gitignore", ".gitattributes"} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			p, b := newPlace(t, repo), newBranch(t, store, fmt.Sprint("dev", i), repo)
			for _, replace := range []string{"mkfifo", "mkfifo ../fifo; ln -s $PWD/../fifo"} {
				p.do("[ ! -e " + file + " ] || mv " + file + " ../saved; " + replace + " " + file)
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				s, err := b.In(p.in, p.dir).Save(ctx, "", CommandRecord{})
				cancel()
				if err == nil || !strings.Contains(err.Error(), file) {
					t.Fatalf("%s: %+v, %v", replace, s, err)
				}
				p.do("rm " + file + "; [ ! -e ../saved ] || mv ../saved " + file + "; echo x >>f")
				if s := save(t, b, p, "x", 0); s.Commit == "" {
					t.Error("nothing was saved")
				}
			}
		})
	}
	p, b := newPlace(t, repo), newBranch(t, store, "own", repo)
	save(t, b, p, "", 0)
	p.do(`rm "$HOME/.sandbox-agent/git/index"; mkfifo "$HOME/.sandbox-agent/git/index"; ln -s /dev/null .gitattributes; echo x >f`)
	if s := save(t, b, p, "x", 0); s.Commit == "" {
		t.Error("nothing was saved")
	}
}

// The briefing that this machine writes into the clone is in no commit, unless the user's own commits have such a file.
func TestBriefing(t *testing.T) {
	t.Parallel()
	const write = "mkdir -p .claude; echo x >>.claude/sandbox-agent.md; echo x >>f; "
	repo := newRepo(t)
	p, b := newPlace(t, repo), newBranch(t, New(t.TempDir()), "dev", repo)
	save(t, b, p, "", 0)
	for name, script := range map[string]string{
		"not ignored": write, "added": write + "git add -A -f", "committed": write + "git add -A -f; git -c user.name=x -c user.email=x@x commit -qm with; echo y >>f",
		"a repository anew": write + "rm -rf .git; git init -q", "one with commits": write + "rm -rf .git; git init -q; git add -A; git -c user.name=x -c user.email=x@x commit -qm anew",
	} {
		p.do(script)
		if s := save(t, b, p, name, 0); s.Commit == "" {
			t.Errorf("%s: nothing was saved", name)
		}
		if s := save(t, b, p, name, 0); s.Commit != "" {
			t.Errorf("%s: it is saved twice", name)
		}
		if got := gittest.Git(t, b.dir, "log", "--all", "--format=%s", "--", ".claude"); got != "" {
			t.Errorf("%s: commits have it: %q", name, got)
		}
		want, err := os.ReadFile(filepath.Join(p.dir, "f"))
		if got := gittest.Git(t, repo, "show", "sandbox/dev:f"); err != nil || got+"\n" != string(want) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	p.do(write)
	p.do("git add -A -f; git -c user.name=x -c user.email=x@x commit -qm with")
	repo = p.dir
	q, c := newPlace(t, repo), newBranch(t, New(t.TempDir()), "own", repo)
	save(t, c, q, "", 0)
	q.do(write)
	save(t, c, q, "x", 0)
	if got := gittest.Git(t, repo, "diff", "--name-only", "HEAD", "sandbox/own"); got != ".claude/sandbox-agent.md\nf" {
		t.Errorf("the user's own: %q", got)
	}
}
