package credentials

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
)

// A pack is taken by git, and one that is none is an error of the writer, which does not wait.
func TestUnpacked(t *testing.T) {
	t.Parallel()
	from, dir := t.TempDir(), t.TempDir()
	gittest.Git(t, from, "init", "-q")
	if err := os.WriteFile(filepath.Join(from, "a"), []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	gittest.Git(t, from, "add", "-A")
	gittest.Git(t, from, "commit", "-q", "-m", "x")
	pack, err := git.Repo{Dir: from, Stdin: "HEAD\n"}.Output(t.Context(), "pack-objects", "--revs", "--stdout", "-q")
	if err != nil {
		t.Fatal(err)
	}
	gittest.Git(t, dir, "init", "-q", "--bare")
	write := func(content []byte) error {
		w, err := (&unpacked{ctx: t.Context(), dir: dir}).PackfileWriter()
		if err != nil {
			t.Fatal(err)
		}
		_, _ = w.Write(content) // its error is also that of Close
		return w.Close()
	}
	if err := write(pack); err != nil {
		t.Fatal(err)
	}
	if got := gittest.Git(t, dir, "cat-file", "blob", gittest.Git(t, from, "rev-parse", "HEAD:a")); got != "content" {
		t.Errorf("got %q", got)
	}
	if write(pack[:len(pack)-5]) == nil || write(make([]byte, 1<<20)) == nil {
		t.Error("a broken pack is taken")
	}
}
