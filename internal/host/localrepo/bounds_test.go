package localrepo_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/host/localrepo"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// shell is a repository's folder .git with nothing in it but names.
func shell(t *testing.T, dir string) {
	t.Helper()
	for _, d := range []string{"objects", "refs"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(dir, "HEAD"), []byte("ref: refs/heads/main\n"))
}

func link(t *testing.T, to, name string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(to, name); err != nil {
		t.Fatal(err)
	}
}

// TestAnotherRepositoryUnderItsName: an unpacked archive is a repository of its own or none, whatever it says of others of this machine.
func TestAnotherRepositoryUnderItsName(t *testing.T) {
	t.Parallel()
	for name, plant := range map[string]func(top, private string){
		"core.worktree": func(top, private string) {
			must(t, top, "init", "-q")
			must(t, top, "config", "core.worktree", private)
		},
		"core.worktree, of one that a file names": func(top, private string) {
			must(t, top, "init", "-q", "--bare", "git")
			write(t, filepath.Join(top, ".git"), []byte("gitdir: git\n"))
			must(t, top, "--git-dir=git", "config", "core.bare", "false")
			must(t, top, "--git-dir=git", "config", "core.worktree", private)
		},
		"core.worktree, within": func(top, private string) {
			must(t, top, "init", "-q")
			if err := os.Mkdir(filepath.Join(top, "sub"), 0o755); err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(top, "sub", ".git"), []byte("gitdir: "+private+"/.git\n"))
			must(t, top, "config", "core.worktree", filepath.Join(top, "sub"))
		},
		"a file .git": func(top, private string) {
			write(t, filepath.Join(top, ".git"), []byte("gitdir: "+private+"/.git\n"))
		},
		"a link .git": func(top, private string) { link(t, private+"/.git", filepath.Join(top, ".git")) },
		"commondir": func(top, private string) {
			shell(t, filepath.Join(top, ".git"))
			write(t, filepath.Join(top, ".git", "commondir"), []byte(private+"/.git\n"))
		},
		"commondir, and nothing else": func(top, private string) {
			link(t, "refs/heads/main", filepath.Join(top, "HEAD"))
			write(t, filepath.Join(top, "commondir"), []byte(private+"/.git\n"))
		},
		"a work tree that its repository does not know": func(top, private string) {
			shell(t, filepath.Join(top, "git", "worktrees", "x"))
			write(t, filepath.Join(top, "git", "worktrees", "x", "commondir"), []byte(private+"/.git\n"))
			write(t, filepath.Join(top, "git", "worktrees", "x", "gitdir"), []byte(filepath.Join(top, ".git")+"\n"))
			write(t, filepath.Join(top, ".git"), []byte("gitdir: git/worktrees/x\n"))
		},
		"another's work tree": func(top, private string) {
			must(t, private, "worktree", "add", "-q", filepath.Join(t.TempDir(), "real"))
			write(t, filepath.Join(top, ".git"), []byte("gitdir: "+private+"/.git/worktrees/real\n"))
		},
		"links to its objects and names": func(top, private string) {
			shell(t, filepath.Join(top, ".git"))
			for _, d := range []string{"objects", "refs"} {
				if err := os.Remove(filepath.Join(top, ".git", d)); err != nil {
					t.Fatal(err)
				}
				link(t, filepath.Join(private, ".git", d), filepath.Join(top, ".git", d))
			}
		},
		"a link to its branches": func(top, private string) {
			shell(t, filepath.Join(top, ".git"))
			link(t, filepath.Join(private, ".git", "refs", "heads"), filepath.Join(top, ".git", "refs", "heads"))
		},
		"no repository of its own": func(top, _ string) {
			if err := os.Mkdir(filepath.Join(top, ".git"), 0o755); err != nil {
				t.Fatal(err)
			}
			must(t, filepath.Dir(top), "init", "-q") // the one around it is the user's
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			private := repository(t)
			must(t, private, "remote", "add", "origin", "https://private.example/x.git")
			top := filepath.Join(t.TempDir(), "archive")
			if err := os.Mkdir(top, 0o755); err != nil {
				t.Fatal(err)
			}
			plant(top, private)
			if r, err := localrepo.Open(t.Context(), top); exiterr.Code(err) != workorder.ExitGit {
				t.Errorf("it is taken for %+v, %v", r, err)
			}
			if urls := localrepo.Remotes(t.Context(), top); len(urls) != 0 {
				t.Errorf("its remotes are %q", urls)
			}
		})
	}
}

// TestRepositoryElsewhere: what git itself puts elsewhere is taken: the repository there names the folder.
func TestRepositoryElsewhere(t *testing.T) {
	t.Parallel()
	repo, dir := repository(t), t.TempDir()
	must(t, repo, "-c", "protocol.file.allow=always", "submodule", "add", "-q", repository(t), "sub")
	must(t, repo, "commit", "-qm", "sub")
	tree, subTree := filepath.Join(dir, "tree"), filepath.Join(dir, "subtree")
	must(t, repo, "worktree", "add", "-q", tree)
	must(t, filepath.Join(repo, "sub"), "worktree", "add", "-q", subTree)
	separate := filepath.Join(dir, "separate")
	must(t, dir, "init", "-q", "--separate-git-dir", filepath.Join(dir, "git"), separate)
	must(t, separate, "config", "core.worktree", "../separate")
	byLink := filepath.Join(dir, "link")
	link(t, repo, byLink)
	for _, path := range []string{repo, filepath.Join(repo, "sub"), tree, subTree, separate, byLink} {
		r, err := localrepo.Open(t.Context(), path)
		want, _ := filepath.EvalSymlinks(path)
		if err != nil || r.Path != want {
			t.Errorf("%s: %+v, %v", path, r, err)
		}
	}
}

// TestBorrowed: what a repository has of others is told, through however many.
func TestBorrowed(t *testing.T) {
	t.Parallel()
	private, dir := repository(t), t.TempDir()
	shared, again := filepath.Join(dir, "shared"), filepath.Join(dir, "again")
	must(t, dir, "clone", "-q", "--shared", private, shared)
	must(t, dir, "clone", "-q", "--shared", shared, again)
	objects := func(repo string) string { return filepath.Join(repo, ".git", "objects") }
	for repo, want := range map[string][]string{private: nil, shared: {objects(private)}, again: {objects(private), objects(shared)}} {
		got := localrepo.AlternateDirs(t.Context(), repo)
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", repo, got, want)
		}
		if _, err := localrepo.Open(t.Context(), repo); err != nil {
			t.Error(err)
		}
	}
}
