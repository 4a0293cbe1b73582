package git_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
)

func TestChanges(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, content string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	commit := func(message string) string {
		gittest.Git(t, dir, "add", "-A")
		gittest.Git(t, dir, "commit", "-q", "--allow-empty", "-m", message)
		return gittest.Git(t, dir, "rev-parse", "HEAD")
	}
	gittest.Git(t, dir, "init", "-q", "-b", "main")
	write("a", "1\n2\n")
	base := commit("base")
	write("a", "1\n3\n4\n")
	write("b\tc\nd", "x\n")
	write("bin", "\x00\x01")
	one := commit("one")
	empty := commit("\x01no change")
	write("a", "")
	last := commit("last")
	r := git.Repo{Dir: dir}
	got, err := r.Changes(t.Context(), base, last, 10, 2)
	want := map[string][]git.FileChange{
		one:  {{Path: "a", Added: 2, Deleted: 1}, {Path: "b\tc\nd", Added: 1}},
		last: {{Path: "a", Deleted: 3}},
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil || got[empty] != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if all, err := r.Changes(t.Context(), "", last, 1, 10); err != nil || len(all) != 1 || all[last] == nil {
		t.Errorf("%v, %v", all, err)
	}
}
