package localrepo

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func put(t *testing.T, name, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestRepoRoot(t *testing.T) {
	dir := t.TempDir()
	put(t, dir+"/repo/.git/HEAD", "x")
	put(t, dir+"/repo/a/b/p.yaml", "x")
	put(t, dir+"/worktree/.git", "gitdir: elsewhere")
	put(t, dir+"/bare.git/HEAD", "x")
	put(t, dir+"/bare.git/objects/x", "x")
	put(t, dir+"/half/commondir", "elsewhere")
	if err := os.Symlink("refs/heads/none", dir+"/half/HEAD"); err != nil {
		t.Fatal(err)
	}
	put(t, dir+"/plain/p.yaml", "x")
	if err := os.Symlink(dir+"/repo/a", dir+"/plain/link"); err != nil {
		t.Fatal(err)
	}
	base := RealPath(dir)
	for path, want := range map[string]string{
		"repo/a/b/p.yaml": "repo", "repo": "repo", "repo/not/there": "repo", "worktree/x": "worktree", "bare.git": "bare.git", "half/x": "half",
		"plain/p.yaml": "", "plain/link/b/p.yaml": "repo",
	} {
		if want != "" {
			want = filepath.Join(base, want)
		}
		if got := RepoRoot(filepath.Join(dir, path)); got != want {
			t.Errorf("%s lies in %q, want %q", path, got, want)
		}
	}
	for _, c := range []struct {
		path, folder string
		want         bool
	}{{"repo/a", "repo", true}, {"repo", "repo", true}, {"repository", "repo", false}, {"plain/link/b", "repo", true}, {"plain/link/b", "plain", false}, {"plain", "repo", false}} {
		if got := Within(filepath.Join(dir, c.path), filepath.Join(dir, c.folder)); got != c.want {
			t.Errorf("%s in %s: %v", c.path, c.folder, got)
		}
	}
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"http://github.com/a/b", "https://github.com/a/b", false},
		{"https://GitHub.com/a/b.git", "git@github.com:a/b", true},
		{"ssh://git@github.com:22/a/b.git/", "https://x@github.com/a/b", true},
		{"https://github.com/a/b", "https://github.com/a/c", false},
		{"https://github.com/a/b", "https://evil.example/a/b", false},
		{"https://h:8443/a/b", "https://h/a/b", false},
		{"", "", false},
		{"/a/b", "/a/b", false},
	} {
		if got := SameRemote(c.a, c.b); got != c.want {
			t.Errorf("%s and %s: %v", c.a, c.b, got)
		}
	}
}

// TestRepoOf: what a link in one repository leads to is of neither, as far as the other's remotes go, and has to do with both.
func TestRepoOf(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"mine/.git/HEAD", "mine/sub/p.yaml", "stranger/.git/HEAD", "stranger/conf/p.yaml", "plain/p.yaml"} {
		put(t, filepath.Join(dir, name), "x")
	}
	for name, to := range map[string]string{
		"stranger/p.yaml": "../mine/sub/p.yaml", "stranger/sub": "../mine/sub", "stranger/within.yaml": "conf/p.yaml", "stranger/own.yaml": "../plain/p.yaml",
		"stranger/plain": "../plain", "plain/link.yaml": "../mine/sub/p.yaml", "work": "mine",
	} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	base := RealPath(dir)
	for file, want := range map[string]struct {
		home   string
		around []string
	}{
		"mine/sub/p.yaml": {"mine", []string{"mine"}}, "work/sub/p.yaml": {"mine", []string{"mine"}}, "stranger/within.yaml": {"stranger", []string{"stranger"}},
		"stranger/p.yaml": {"", []string{"stranger", "mine"}}, "stranger/sub/p.yaml": {"", []string{"stranger", "mine"}},
		"stranger/own.yaml": {"", []string{"stranger"}}, "stranger/plain/p.yaml": {"", []string{"stranger"}},
		"plain/link.yaml": {"", []string{"mine"}}, "plain/p.yaml": {"", nil},
	} {
		if want.home != "" {
			want.home = filepath.Join(base, want.home)
		}
		for i, top := range want.around {
			want.around[i] = filepath.Join(base, top)
		}
		if home, around := RepoOf(filepath.Join(dir, file)), ReposOf(filepath.Join(dir, file)); home != want.home || !slices.Equal(around, want.around) {
			t.Errorf("%s is of %q, around it %q; want %+v", file, home, around, want)
		}
	}
}
