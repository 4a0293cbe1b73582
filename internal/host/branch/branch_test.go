package branch

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
)

// place is a clone, as a sandbox has one.
type place struct {
	t         *testing.T
	dir, home string
	as        *syscall.SysProcAttr
}

func (p *place) in(ctx context.Context, argv []string, in io.Reader, out io.Writer) error {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env, cmd.Stdout = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + p.home}, out
	cmd.Stdin, cmd.SysProcAttr = in, p.as
	var said strings.Builder
	cmd.Stderr = &said
	if err := cmd.Run(); err != nil {
		return errors.Join(err, errors.New(said.String()))
	}
	return nil
}

// do runs a script in the clone.
func (p *place) do(script string) {
	p.t.Helper()
	cmd := exec.CommandContext(p.t.Context(), "sh", "-ec", script)
	cmd.SysProcAttr = p.as
	cmd.Dir, cmd.Env = p.dir, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + p.home}
	if out, err := cmd.CombinedOutput(); err != nil {
		p.t.Fatalf("%v: %s", err, out)
	}
}

func newRepo(t *testing.T) string {
	t.Helper()
	repo := filepath.Join(t.TempDir(), "repo")
	gittest.Git(t, "", "init", "-q", "-b", "main", repo)
	gittest.Git(t, repo, "config", "user.name", "Ada")
	gittest.Git(t, repo, "config", "user.email", "ada@example.com")
	for name, content := range map[string]string{"f": "1\n", "old name": "x\n", "logo.png": "\x89PNG\x00"} {
		if err := os.WriteFile(filepath.Join(repo, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	gittest.Git(t, repo, "add", ".")
	gittest.Git(t, repo, "commit", "-qm", "base")
	return repo
}

func newPlace(t *testing.T, repo string) *place {
	t.Helper()
	p := &place{t: t, dir: filepath.Join(t.TempDir(), "clone"), home: t.TempDir()}
	gittest.Git(t, "", "clone", "-q", repo, p.dir)
	return p
}

// newBranch is the branch of a sandbox whose clone is made at the repository's HEAD.
func newBranch(t *testing.T, s *Store, name, repo string) *Branch {
	t.Helper()
	b := s.Of(name, repo)
	if err := b.Cloned(t.Context(), gittest.Git(t, repo, "rev-parse", "HEAD")); err != nil {
		t.Fatal(err)
	}
	return b
}

func paths(s SaveResult) (all []string) {
	for _, l := range s.Unsaved {
		all = append(all, l.Path)
	}
	slices.Sort(all)
	return all
}

// plain makes the clone that of a user who may not read everything.
func (p *place) plain() {
	p.t.Helper()
	if os.Getuid() != 0 {
		return
	}
	const other = 12345
	p.as = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: other, Gid: other}}
	for _, dir := range []string{p.dir, p.home} {
		for up := filepath.Dir(dir); strings.HasPrefix(filepath.Base(filepath.Dir(up)), "Test") || strings.HasPrefix(filepath.Base(up), "Test"); up = filepath.Dir(up) {
			if err := os.Chmod(up, 0o755); err != nil {
				p.t.Fatal(err)
			}
		}
		err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			return errors.Join(err, os.Lchown(path, other, other))
		})
		if err != nil {
			p.t.Fatal(err)
		}
	}
}

func save(t *testing.T, b *Branch, p *place, command string, code int) SaveResult {
	t.Helper()
	s, err := b.In(p.in, p.dir).Save(t.Context(), "title", CommandRecord{Command: command, ExitCode: code, Started: time.Now(), Duration: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSave(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	p, b := newPlace(t, repo), newBranch(t, New(t.TempDir()), "e", repo)
	if _, err := b.In(p.in, p.dir).Save(t.Context(), "a title", CommandRecord{}); err != nil {
		t.Fatal(err)
	}
	git := func(args ...string) string { t.Helper(); return gittest.Git(t, repo, args...) }
	count := func(want string) {
		t.Helper()
		if got := git("rev-list", "--count", "main..sandbox/e"); got != want {
			t.Errorf("%s commits, not %s", got, want)
		}
	}
	count("1")
	if got := git("log", "-1", "--format=%an %ae %s", "sandbox/e"); got != "Ada ada@example.com Create sandbox e: a title" {
		t.Error(got)
	}
	if s := save(t, b, p, "true", 0); s.Commit != "" {
		t.Errorf("%+v", s)
	}
	count("1")
	p.do(`echo a >"a b"; echo e >é; mkdir d; echo q >"d/new
line"; rm "old name"; printf '\211\0new' >logo.png; chmod +x f; ln -s f l; mkdir node_modules; echo x >node_modules/x; : >empty; mkdir .github; echo y >.github/w`)
	save(t, b, p, "touch everything\nand more", 3)
	count("2")
	if got := git("-c", "core.quotePath=false", "diff", "--name-status", "-z", "main", "sandbox/e"); got != "A\x00.github/w\x00A\x00a b\x00A\x00d/new\nline\x00A\x00empty\x00M\x00f\x00A\x00l\x00M\x00logo.png\x00D\x00old name\x00A\x00é\x00" {
		t.Errorf("%q", got)
	}
	// The identity is the user's of now.
	git("config", "user.name", "Grace")
	p.do("echo 2 >f")
	save(t, b, p, "echo 2 >f", 0)
	if got := git("log", "-2", "--format=%an %s", "sandbox/e"); got != "Grace cmd: echo 2 >f\nAda cmd: touch everything" {
		t.Error(got)
	}
	log, err := b.Log(t.Context())
	if err != nil || len(log) != 3 || len(log[2].Ran) != 1 || log[2].Ran[0].Command != "true" || log[1].Ran[0].ExitCode != 3 || log[1].Ran[0].Command != "touch everything\nand more" {
		t.Errorf("%+v, %v", log, err)
	}
	if git("status", "--porcelain") != "" || git("branch", "--format=%(refname)") != "refs/heads/main" {
		t.Error("the user's work tree or branches have changed")
	}
}

// A repository that has moved loses nothing: its commits are in ours.
func TestRepoMoved(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	p, b := newPlace(t, repo), newBranch(t, New(t.TempDir()), "e", repo)
	save(t, b, p, "", 0)
	if err := os.Rename(repo, repo+"2"); err != nil {
		t.Fatal(err)
	}
	p.do("echo 2 >f")
	s, err := b.In(p.in, p.dir).Save(t.Context(), "", CommandRecord{})
	if !errors.Is(err, ErrNotPublished) || s.Commit == "" || b.Head(t.Context()) != s.Commit {
		t.Errorf("%+v, %v", s, err)
	}
}

// A clone that was made anew begins again, and what was before is kept.
func TestAnew(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	p, b := newPlace(t, repo), newBranch(t, New(t.TempDir()), "e", repo)
	save(t, b, p, "", 0)
	p.do("echo 2 >f")
	old := save(t, b, p, "x", 0).Commit
	q := newPlace(t, repo)
	q.do("echo 3 >f")
	s := save(t, b, q, "y", 0)
	if !s.Recreated || s.Commit == "" || gittest.Git(t, repo, "rev-list", "--count", "main..sandbox/e") != "2" {
		t.Errorf("%+v", s)
	}
	if got, err := b.line(t.Context(), "rev-parse", s.PreviousRef); err != nil || got != old {
		t.Errorf("%s, %v", got, err)
	}
}

// Ten sandboxes of one repository save at the same time.
func TestTen(t *testing.T) {
	t.Parallel()
	repo, store := newRepo(t), New(t.TempDir())
	var all sync.WaitGroup
	for name := range strings.FieldsSeq("a b c d e f g h i j") {
		p := newPlace(t, repo)
		all.Go(func() {
			b := newBranch(t, store, name, repo)
			for _, c := range []string{"", "1", "2"} {
				if err := os.WriteFile(filepath.Join(p.dir, "f"), []byte(name+c), 0o644); err != nil {
					t.Error(err)
				}
				if _, err := b.In(p.in, p.dir).Save(t.Context(), "", CommandRecord{Command: "x"}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	list, err := store.List(t.Context())
	if err != nil || len(list) != 10 {
		t.Fatalf("%+v, %v", list, err)
	}
	for _, i := range list {
		if got := gittest.Git(t, repo, "rev-list", "--count", "main.."+Remote+"/"+i.Sandbox); got != "4" {
			t.Errorf("%s: %s commits", i.Sandbox, got)
		}
	}
	gittest.Git(t, repo, "fsck", "--strict")
	gittest.Git(t, list[0].dir, "fsck", "--strict")
	locks, err := filepath.Glob(filepath.Join(repo, ".git", "*.lock"))
	if err != nil || len(locks) > 0 {
		t.Errorf("%v, %v", locks, err)
	}
}

// A clone that was made anew goes on with the branch, whatever the user did with theirs since.
func TestRestore(t *testing.T) {
	t.Parallel()
	for name, since := range map[string]func(repo string){
		"nothing since":    func(string) {},
		"the user went on": func(repo string) { gittest.Git(t, repo, "commit", "-q", "--allow-empty", "-m", "on") },
		"the user rewrote it": func(repo string) {
			gittest.Git(t, repo, "commit", "-q", "--amend", "-m", "other")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			repo := newRepo(t)
			p, b := newPlace(t, repo), newBranch(t, New(t.TempDir()), "e", repo)
			restore := func(want bool) {
				t.Helper()
				if did, err := b.In(p.in, p.dir).Restore(t.Context()); did != want || err != nil {
					t.Errorf("%t, %v", did, err)
				}
			}
			restore(false)
			p.do(`echo 2 >f; rm "old name"; echo é >"ä b"; chmod +x logo.png; echo '*.o' >.gitignore; echo x >x.o`)
			save(t, b, p, "work", 0)
			head, base := b.Head(t.Context()), b.Base(t.Context())
			since(repo)
			p = newPlace(t, repo)
			p.do("echo setup >f; echo left >made-by-setup")
			restore(true)
			restore(false)
			p.do(`test "$(cat f)" = 2; test ! -e "old name"; test "$(cat 'ä b')" = é; test -x logo.png; test ! -e x.o; rm made-by-setup; test -z "$(git status --porcelain)"`)
			if s := save(t, b, p, "true", 0); s.Commit != "" || s.Recreated {
				t.Errorf("%+v", s)
			}
			p.do("echo 3 >f")
			if s := save(t, b, p, "more", 0); s.Commit == "" || s.Recreated || s.PreviousRef != "" {
				t.Errorf("%+v", s)
			}
			if gittest.Git(t, repo, "rev-parse", "sandbox/e~1") != head || b.Base(t.Context()) != base || gittest.Git(t, repo, "rev-list", "--count", base+"..sandbox/e") != "3" {
				t.Error("the branch did not go on")
			}
			// One that the user has begun anew stays so.
			if err := b.StartOver(t.Context()); err != nil {
				t.Fatal(err)
			}
			p = newPlace(t, repo)
			restore(false)
			if s := save(t, b, p, "true", 0); !s.Recreated || s.PreviousRef == "" {
				t.Errorf("%+v", s)
			}
		})
	}
}

func TestCheckpoint(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	p, b := newPlace(t, repo), newBranch(t, New(t.TempDir()), "e", repo)
	if _, err := b.Tag(t.Context(), "one"); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	p.do("echo 2 >f")
	if _, err := b.In(p.in, p.dir).Save(t.Context(), "", CommandRecord{Subject: "Write f\nand more"}); err != nil {
		t.Fatal(err)
	}
	if got := gittest.Git(t, repo, "log", "-1", "--format=%s", "sandbox/e"); got != "Write f" {
		t.Error(got)
	}
	log, err := b.Log(t.Context())
	if err != nil || len(log[0].Ran) != 0 {
		t.Errorf("%+v, %v", log, err)
	}
	commit, err := b.Tag(t.Context(), "one")
	if err != nil || gittest.Git(t, repo, "rev-parse", "sandbox/e") != commit {
		t.Errorf("%s, %v", commit, err)
	}
	if _, err := b.Tag(t.Context(), "one"); !errors.Is(err, ErrTagExists) {
		t.Error(err)
	}
	if err := errors.Join(b.SetTitle(t.Context(), "another"), b.Delete(t.Context())); err != nil {
		t.Fatal(err)
	}
	if got := gittest.Git(t, b.dir, "rev-parse", "refs/tags/e/one"); got != commit {
		t.Error(got)
	}
}

func TestSubmodule(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	gittest.Git(t, repo, "update-index", "--add", "--cacheinfo", "160000,"+gittest.Git(t, repo, "rev-parse", "HEAD")+",d/sub")
	gittest.Git(t, repo, "commit", "-qm", "sub")
	p, b := newPlace(t, repo), newBranch(t, New(t.TempDir()), "e", repo)
	save(t, b, p, "true", 0)
	for name, want := range map[string]string{"f": "", "d/f": "", "d/sub": "d/sub", "d/sub/x/y": "d/sub", "d/*": ""} {
		if got := b.Submodule(t.Context(), name); got != want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// A save names the changed files of a submodule, at most nine, and says if it has commits of its own.
func TestChangedSubmodule(t *testing.T) {
	t.Parallel()
	inner, repo := newRepo(t), newRepo(t)
	gittest.Git(t, repo, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", inner, "a sub")
	gittest.Git(t, repo, "commit", "-qm", "sub")
	p, b := newPlace(t, repo), newBranch(t, New(t.TempDir()), "e", repo)
	gittest.Git(t, p.dir, "-c", "protocol.file.allow=always", "submodule", "--quiet", "update", "--init")
	left := func() string {
		t.Helper()
		s, err := b.In(p.in, p.dir).Save(t.Context(), "", CommandRecord{})
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(paths(s), "|")
	}
	if got := left(); got != "" {
		t.Error(got)
	}
	p.do("echo 2 >'a sub/f'; echo 3 >'a sub/ä|&'")
	if got := left(); got != "a sub/f|a sub/ä|&" {
		t.Error(got)
	}
	p.do("cd 'a sub' && git checkout -q . && rm ä* && git -c user.name=A -c user.email=a@b commit -q --allow-empty -m own")
	if got := left(); got != "a sub/" {
		t.Error(got)
	}
	p.do("cd 'a sub' && touch 1 2 3 4 5 6 7 8 9 10 11 12")
	if got := left(); strings.Count(got, "a sub/") != 10 || !strings.HasPrefix(got, "a sub/|") {
		t.Error(got)
	}
}

// A save that was killed before the user's repository showed it is shown by the next one, also where nothing has changed since.
func TestShownLater(t *testing.T) {
	t.Parallel()
	repo := filepath.Join(t.TempDir(), "a=b"+strings.Repeat("x", 240))
	if err := os.Rename(newRepo(t), repo); err != nil {
		t.Fatal(err)
	}
	p := newPlace(t, repo)
	b := newBranch(t, New(t.TempDir()), "dev", repo)
	save := func() {
		t.Helper()
		if _, err := b.In(p.in, p.dir).Save(t.Context(), "", CommandRecord{}); err != nil {
			t.Fatal(err)
		}
	}
	p.do("echo 2 >f")
	save()
	gittest.Git(t, repo, "update-ref", "-d", "refs/remotes/sandbox/dev")
	save()
	if got := gittest.Git(t, repo, "rev-parse", "sandbox/dev"); got != b.Head(t.Context()) {
		t.Error(got)
	}
	// A large file whose name has two lines keeps no other out.
	p.do("truncate -s 11M 'x\ng'; echo 1 >g")
	save()
	if got := gittest.Git(t, repo, "show", "sandbox/dev:g"); got != "1" {
		t.Error(got)
	}
}

// Two work trees of one repository each show their own sandboxes' branches.
func TestWorkTrees(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	other := filepath.Join(t.TempDir(), "other")
	gittest.Git(t, repo, "worktree", "add", "-q", other)
	store := New(t.TempDir())
	for name, dir := range map[string]string{"one": repo, "two": other} {
		p := newPlace(t, dir)
		if _, err := newBranch(t, store, name, dir).In(p.in, p.dir).Save(t.Context(), "", CommandRecord{}); err != nil {
			t.Fatal(err)
		}
		gittest.Git(t, dir, "rev-parse", "--verify", "sandbox/"+name)
	}
	if err := store.Of("two", other).Delete(t.Context()); err != nil {
		t.Fatal(err)
	}
	gittest.Git(t, repo, "rev-parse", "--verify", "sandbox/one")
}

// The locks of a git that was killed keep nothing from being saved.
func TestLocksLeft(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	p := newPlace(t, repo)
	b := newBranch(t, New(t.TempDir()), "dev", repo)
	save := func() string {
		t.Helper()
		s, err := b.In(p.in, p.dir).Save(t.Context(), "", CommandRecord{Command: "x"})
		if err != nil {
			t.Fatal(err)
		}
		return s.Commit
	}
	save()
	old := time.Now().Add(-2 * gitTime)
	for _, name := range []string{"config", "refs/heads/dev", "refs/notes/sandbox-agent"} {
		left := filepath.Join(b.dir, name+".lock")
		if err := errors.Join(os.WriteFile(left, nil, 0o600), os.Chtimes(left, old, old)); err != nil {
			t.Fatal(err)
		}
	}
	p.do("echo 3 >f")
	if save() == "" {
		t.Error("nothing was saved")
	}
}

// The first saves of one repository are one after the other, too.
func TestFirstAtOnce(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	store := New(t.TempDir())
	var all sync.WaitGroup
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		p := newPlace(t, repo)
		all.Go(func() {
			if _, err := newBranch(t, store, name, repo).In(p.in, p.dir).Save(t.Context(), "", CommandRecord{}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

// One at a time has the turn, of one sandbox and not of another, and nothing is left of it.
func TestTurn(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	b := New(state).Of("one", "/repo")
	done, err := b.Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := New(state).Of("one", "/repo").Lock(short); err == nil {
		t.Error("two have it")
	}
	other, err := New(state).Of("two", "/repo").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	other()
	done()
	again, err := b.Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	again()
	if left, err := os.ReadDir(filepath.Join(state, Dir)); err != nil || len(left) != 0 {
		t.Errorf("%v, %v", left, err)
	}
}

// Commits that exist nowhere else are told from those that the user's repository has, and from none, whatever the branch is called.
func TestElsewhere(t *testing.T) {
	t.Parallel()
	repo, s := newRepo(t), New(t.TempDir())
	first := newBranch(t, s, "first", repo)
	for _, name := range []string{"first", gittest.Git(t, first.dir, "symbolic-ref", "--short", "HEAD")} {
		p, b := newPlace(t, repo), newBranch(t, s, name, repo)
		for _, c := range []struct {
			script string
			want   bool
		}{{"", false}, {"echo work >w", true}, {"rm w", true}} {
			p.do(c.script)
			save(t, b, p, "", 0)
			if got, err := b.Unmerged(t.Context()); got != c.want || err != nil {
				t.Errorf("%s: %q: %v, %v", name, c.script, got, err)
			}
		}
		gittest.Git(t, repo, "branch", "merged-"+name, "sandbox/"+name)
		if got, err := b.Unmerged(t.Context()); got || err != nil {
			t.Errorf("%s, merged: %v, %v", name, got, err)
		}
	}
}

// A branch that begins at another's work has the only name of that work once the other is gone. A commit without a change is work, too, and a base that the user's branch has left
// is not.
func TestElsewhereOfAnother(t *testing.T) {
	t.Parallel()
	repo, s := newRepo(t), New(t.TempDir())
	p, b := newPlace(t, repo), newBranch(t, s, "first", repo)
	save(t, b, p, "", 0)
	gittest.Git(t, repo, "commit", "-q", "--amend", "-m", "another")
	unmerged := func(b *Branch, want bool) {
		t.Helper()
		if got, err := b.Unmerged(t.Context()); got != want || err != nil {
			t.Errorf("%s: %v, %v", b.Sandbox, got, err)
		}
	}
	unmerged(b, false)
	p.do(asIn + "git commit -q --allow-empty -m Analysis")
	save(t, b, p, "", 0)
	unmerged(b, true)
	head := b.Head(t.Context())
	after := s.Of("after", repo)
	if err := after.Cloned(t.Context(), head); err != nil {
		t.Fatal(err)
	}
	gittest.Git(t, b.dir, "update-ref", heads+after.Sandbox, head)
	unmerged(b, false)
	if err := b.Delete(t.Context()); err != nil {
		t.Fatal(err)
	}
	unmerged(after, true)
}
