package app

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/host/localrepo"
	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
)

func TestTitledName(t *testing.T) {
	t.Parallel()
	for title, want := range map[string]string{
		"Fix the login": "fix-the-login", " -- ": "env", "🎉": "env", "Größe/2": "gr-e-2", "T-A1B2C3D4": "t-a1b2c3d4", "../../x": "x",
		"a title that is much longer than an identifier should ever be": "a-title-that-is-much-longer-than-an-iden",
	} {
		if got := titledName(title); got != want || !sandbox.ValidName(got) {
			t.Errorf("%s: %s", title, got)
		}
	}
}

func TestBeginning(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "repo")
	git := func(args ...string) string { t.Helper(); return gittest.Git(t, dir, args...) }
	gittest.Git(t, "", "init", "-q", "-b", "main", dir)
	open := func() *localrepo.Repo {
		t.Helper()
		r, err := localrepo.Open(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if _, err := beginning(t.Context(), open(), ""); err == nil {
		t.Error("it begins at no commit")
	}
	if err := os.WriteFile(filepath.Join(dir, "f"), []byte("1"), 0o600); err != nil {
		t.Fatal(err)
	}
	git("add", ".")
	git("-c", "user.name=A", "-c", "user.email=a@b", "commit", "-qm", "one")
	git("tag", "v1")
	git("branch", "other")
	sha := git("rev-parse", "HEAD")
	for ref, want := range map[string]string{"": "main", "HEAD": "main", "other": "other", "v1": "v1", sha[:8]: sha, "HEAD~0": sha} {
		if begin, err := beginning(t.Context(), open(), ref); err != nil || begin != want {
			t.Errorf("%s: %s, %v", ref, begin, err)
		}
	}
	for _, ref := range []string{"nope", "--upload-pack=x", "a b", "main:f", "HEAD^{tree}"} {
		if _, err := beginning(t.Context(), open(), ref); err == nil {
			t.Errorf("%s is a commit", ref)
		}
	}
	git("checkout", "-q", "--detach")
	if begin, err := beginning(t.Context(), open(), ""); err != nil || begin != sha {
		t.Errorf("%s, %v", begin, err)
	}
}
