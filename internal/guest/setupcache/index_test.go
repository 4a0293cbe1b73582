package setupcache

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
)

// An index by which git leaves a file alone is not used.
func TestHonest(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args   []string
		want   bool
		sha256 bool
	}{
		"plain":           {[]string{"status"}, true, false},
		"sha256":          {[]string{"status"}, true, true},
		"sha256, assumed": {[]string{"update-index", "--assume-unchanged", "a"}, false, true},
		"intent":          {[]string{"add", "-N", "new"}, true, false},
		"assumed":         {[]string{"update-index", "--assume-unchanged", "b/long-name-of-a-file"}, false, false},
		"skipped":         {[]string{"update-index", "--skip-worktree", "a"}, false, false},
		"split":           {[]string{"update-index", "--split-index"}, false, false},
		"version 4":       {[]string{"update-index", "--index-version", "4"}, false, false},
	} {
		dir := t.TempDir()
		format, id := "sha1", 20
		if c.sha256 {
			format, id = "sha256", 32
		}
		gittest.Git(t, dir, "init", "-q", "-b", "main", "--template=", "--object-format="+format)
		commit(t, dir, map[string]string{"a": "1", "ab": "1", "abc": "1", "b/long-name-of-a-file": "1", "é": "1"})
		if err := os.WriteFile(filepath.Join(dir, "new"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		gittest.Git(t, dir, c.args...)
		b, err := os.ReadFile(filepath.Join(dir, ".git/index"))
		if err != nil || honest(b, id) != c.want {
			t.Errorf("%s: %v, %v", name, honest(b, id), err)
		}
		if c.want && (honest(b[:len(b)/2], id) || honest(nil, id)) {
			t.Errorf("%s: half of it counts", name)
		}
	}
}
