package rootgit

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/evidence"
	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Evidence lies beside the branch, whole and at its paths; the next attempt's builds on it.
func TestEvidence(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	head := f.commit(t, "a")
	if l := f.land(t); !l.Pushed {
		t.Fatalf("%+v", l)
	}
	files := fstest.MapFS{
		"logs/test.log":            {Data: []byte("ok\n")},
		"evidence/pages/a b.png":   {Data: []byte("\x89PNG\r\n\x1a\n\x00\xff")},
		"evidence/huge.webm":       {Data: []byte(strings.Repeat("x", evidence.MaxFile+1))},
		"evidence/folder/file.txt": {Data: []byte("x")},
	}
	paths := []string{"logs/test.log", "evidence/pages/a b.png", "evidence/huge.webm", "evidence/folder", "gone", "../out", "logs/test.log"}
	sha, left, err := f.Uploader.Files(t.Context(), files, paths)
	if err != nil || f.remote(t, workorder.EvidenceRef("T-A1B2C3D4")) != sha || sha == "" {
		t.Fatalf("%s, %v", sha, err)
	}
	if diff := cmp.Diff([]string{"../out", "evidence/folder", "evidence/huge.webm", "gone"}, left); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
	bare := f.srv.Root + "/r.git"
	if got := gittest.Git(t, bare, "ls-tree", "-r", "--name-only", sha); got != "evidence/pages/a b.png\nlogs/test.log" {
		t.Errorf("it holds %q", got)
	}
	if got := gittest.Git(t, bare, "show", sha+":logs/test.log"); got != "ok" {
		t.Errorf("%q", got)
	}
	if f.remote(t, workorder.BranchRef(target)) != head {
		t.Error("the branch moved")
	}
	again, _, err := f.Uploader.Files(t.Context(), fstest.MapFS{"b": {Data: []byte("b")}}, []string{"b"})
	if err != nil || gittest.Git(t, bare, "rev-parse", again+"^") != sha {
		t.Errorf("%s, %v", again, err)
	}
	if sha, _, err := f.Uploader.Files(t.Context(), files, []string{"gone"}); sha != "" || err != nil {
		t.Errorf("nothing to keep: %q, %v", sha, err)
	}
	// Somebody else's evidence is not overwritten.
	gittest.Git(t, bare, "update-ref", workorder.EvidenceRef("T-A1B2C3D4"), head)
	if _, _, err := f.Uploader.Files(t.Context(), files, paths); err == nil || f.remote(t, workorder.EvidenceRef("T-A1B2C3D4")) != head {
		t.Errorf("the ref was taken: %v", err)
	}
}
