package localrepo_test

import (
	"path/filepath"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/host/localrepo"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// A run starts from a branch, also where a tag has its name, or else from a tag or commit, which a bundle has although no branch does.
func TestBase(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	git := func(args ...string) string { t.Helper(); return must(t, dir, args...) }
	commit := func() string {
		t.Helper()
		git("commit", "-q", "--allow-empty", "-m", "x")
		return git("rev-parse", "HEAD")
	}
	git("init", "-q", "-b", "main")
	old := commit()
	head := commit()
	git("checkout", "-q", "--detach")
	alone := commit()
	git("update-ref", "refs/remotes/origin/x", alone)
	git("checkout", "-q", "main")
	for _, tag := range []string{"main", "HEAD", "v1"} {
		git("update-ref", "refs/tags/"+tag, old)
	}
	for _, c := range []struct{ ref, base, commit string }{
		{"", "main", head},
		{"HEAD", "main", head},
		{"main", "main", head},
		{"v1", "v1", old},
		{"main~1", old, old},
		{"main^{commit}", head, head},
		{"v1^0", old, old},
		{"refs/heads/main", head, head},
		{alone, alone, alone},
		{alone[:9], alone, alone},
		{"origin/x", alone, alone},
		{"none", "", ""},
		{"--all", "", ""},
	} {
		r, err := localrepo.Open(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		base, err := r.Base(t.Context(), c.ref)
		if base != c.base || (err == nil) != (c.base != "") {
			t.Errorf("%q: %q, %v", c.ref, base, err)
		}
		if c.base == "" {
			continue
		}
		if at, err := r.Commit(t.Context(), base); err != nil || at != c.commit || r.IsBranch(t.Context(), base) != (base == "main") {
			t.Errorf("%q: at %q, %v", c.ref, at, err)
		}
		file, clone := filepath.Join(t.TempDir(), "bundle"), t.TempDir()
		if err := r.Bundle(t.Context(), file, base); err != nil {
			t.Fatal(err)
		}
		must(t, clone, "clone", "-q", "--no-checkout", "-b", "main", file, ".")
		must(t, clone, "cat-file", "-e", c.commit+"^{commit}")
	}
}

// A partial clone is refused by that name as long as it lacks something.
func TestPartialClone(t *testing.T) {
	t.Parallel()
	from, dir := t.TempDir(), t.TempDir()
	must(t, from, "init", "-q", "-b", "main")
	write(t, filepath.Join(from, "f"), []byte("1"))
	must(t, from, "add", ".")
	must(t, from, "commit", "-q", "-m", "1")
	write(t, filepath.Join(from, "f"), []byte("2"))
	must(t, from, "commit", "-q", "-a", "-m", "2")
	must(t, from, "config", "uploadpack.allowFilter", "true")
	must(t, "/", "clone", "-q", "--filter=blob:none", "file://"+from, dir)
	r, err := localrepo.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Base(t.Context(), ""); exiterr.Code(err) != workorder.ExitGit || exiterr.Hint(err) == "" {
		t.Errorf("%v", err)
	}
	must(t, dir, "-c", "maintenance.auto=false", "-c", "gc.auto=0", "fetch", "-q", "--refetch", "--no-filter", "origin")
	if base, err := r.Base(t.Context(), ""); err != nil || base != "main" {
		t.Errorf("it is whole: %q, %v", base, err)
	}
}

// git keeps no branch whose name is a folder of another's.
func TestFree(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must(t, dir, "init", "-q", "-b", "agent")
	must(t, dir, "commit", "-q", "--allow-empty", "-m", "x")
	must(t, dir, "branch", "a/b/c")
	r, err := localrepo.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	for name, free := range map[string]bool{"agent/T-1": false, "a/b": false, "a/b/c/d": false, "a/b/d": true, "agents/x": true, "agent": true} {
		if err := r.Free(t.Context(), name); (err == nil) != free {
			t.Errorf("%s: %v", name, err)
		}
	}
}
