package rootgit

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Commits of earlier attempts are not in the copy that is kept for a proof: neither as refs nor as objects.
func TestBeforeHasNothingOfTheTask(t *testing.T) {
	t.Parallel()
	srv := gittest.New(t, token)
	srv.Create(t, "r.git", map[string]string{"f": "1\n"})
	remote := filepath.Join(srv.Root, "r.git")
	put := func(text string, refs ...string) string {
		sha := gittest.Git(t, remote, "commit-tree", "-p", "main", "-m", text, "main^{tree}")
		for _, ref := range refs {
			gittest.Git(t, remote, "update-ref", ref, sha)
		}
		return sha
	}
	const id = "T-A1B2C3D4"
	theirs := map[string]string{
		"a branch": put(
			"branch",
			"refs/heads/b",
		),
		"a tag":          put("tag", "refs/tags/v1"),
		"another task's": put("other", "refs/heads/agent/T-B1B2C3D4-x"),
		"a like name": put(
			"like",
			"refs/heads/agent/"+id+"5",
		),
		"what a branch has taken over": put("merged", "refs/heads/merged", workorder.KeptRef(id, "merged")),
	}
	own := map[string]string{
		"the branch":                  put("own", "refs/heads/"+target),
		"the branch by another title": put("title", "refs/heads/agent/"+id+"-another"),
		"kept": put(
			"kept",
			workorder.KeptRef(id, "b"),
		),
		"a checkpoint": put("checkpoint", workorder.CheckpointRef(id)),
		"evidence":     put("evidence", workorder.EvidenceRef(id)),
	}
	f := newBox(t, srv, workorder.ModeContinue)
	if _, _, err := f.Claimer.Fetch(t.Context()); err != nil {
		t.Fatal(err)
	}
	has := func(r git.Repo, sha string) bool { return r.Run(t.Context(), "cat-file", "-e", sha) == nil }
	for what, sha := range theirs {
		if !has(f.Repos.Before(), sha) || !has(f.Repos.Mirror(), sha) {
			t.Errorf("%s is missing", what)
		}
	}
	for what, sha := range own {
		if has(f.Repos.Before(), sha) {
			t.Errorf("%s can be read", what)
		}
		if !has(f.Repos.Mirror(), sha) {
			t.Errorf("the mirror lacks %s", what)
		}
	}
	refs := gittest.Git(t, f.Repos.BeforeDir, "for-each-ref", "--format=%(refname)")
	if want := "refs/heads/agent/" + id + "5\nrefs/heads/agent/T-B1B2C3D4-x\nrefs/heads/b\nrefs/heads/main\nrefs/heads/merged\nrefs/tags/v1"; refs != want {
		t.Errorf("refs %q", refs)
	}

	// Nothing leads from it to what has more, and it takes no space.
	if _, err := os.Lstat(filepath.Join(f.Repos.BeforeDir, "objects/info/alternates")); err == nil {
		t.Error("it needs another repository")
	}
	files := 0
	err := filepath.WalkDir(filepath.Join(f.Repos.BeforeDir, "objects"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.Contains(path, "/info/") {
			return err
		}
		files++
		rel, err := filepath.Rel(f.Repos.BeforeDir, path)
		if err != nil {
			return err
		}
		one, err := os.Stat(path)
		if err != nil {
			return err
		}
		other, err := os.Stat(filepath.Join(f.Repos.Mirror().Dir, rel))
		if err == nil && !os.SameFile(one, other) {
			t.Errorf("%s is a copy", rel)
		}
		return err
	})
	if err != nil || files == 0 {
		t.Errorf("%d files, %v", files, err)
	}

	// It never gets later commits: not by a refresh, and not by another call.
	later := put("later", "refs/heads/later")
	if err := f.Repos.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, _, err := f.Claimer.Fetch(t.Context()); err != nil {
		t.Fatal(err)
	}
	if has(f.Repos.Before(), later) || !has(f.Repos.Mirror(), later) || has(f.Repos.Before(), own["kept"]) {
		t.Error("it has what came since")
	}
}

// A call that was stopped in the middle is made good by the next one.
func TestBeforeIsWholeOrNotThere(t *testing.T) {
	t.Parallel()
	srv := gittest.New(t, token)
	srv.Create(t, "r.git", nil)
	f := newBox(t, srv, workorder.ModeCreate)
	if err := os.MkdirAll(f.Repos.BeforeDir+".half/objects", 0o755); err != nil {
		t.Fatal(err)
	}
	_, sha, err := f.Claimer.Fetch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if at, err := f.Repos.Before().Resolve(t.Context(), "refs/heads/main"); err != nil || at != sha {
		t.Errorf("%q, %v", at, err)
	}
	if left, err := os.ReadDir(filepath.Dir(f.Repos.BeforeDir)); err != nil || len(left) != 1 {
		t.Errorf("%v, %v", left, err)
	}
}

// An empty remote is reported by its right name.
func TestBeforeOfAnEmptyRemote(t *testing.T) {
	t.Parallel()
	srv := gittest.New(t, token)
	gittest.Git(t, srv.Root, "init", "-q", "--bare", "r.git")
	f := newBox(t, srv, workorder.ModeCreate)
	if _, _, err := f.Claimer.Fetch(t.Context()); git.KindOf(err) != git.KindNotFound {
		t.Errorf("%v", err)
	}
}
