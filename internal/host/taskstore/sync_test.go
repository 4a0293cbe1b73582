package taskstore

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// synced notes the folders that are synced, and what each has at that moment.
func synced(t *testing.T) (folders map[string][]string) {
	t.Helper()
	folders = map[string][]string{}
	was := syncDir
	t.Cleanup(func() { syncDir = was })
	syncDir = func(dir string) error {
		entries, err := os.ReadDir(dir)
		for _, e := range entries {
			folders[dir] = append(folders[dir], e.Name())
		}
		return errors.Join(err, was(dir))
	}
	return folders
}

// TestDurable: a name is on disk only when its folder is. A renamed file that is not synced may be gone after a crash of the
// machine, and the old name with it.
func TestDurable(t *testing.T) {
	seen := synced(t)
	s, r := finished(t)
	if !slices.Contains(seen[s.Dir()], r.TaskID) {
		t.Errorf("a new task: %v", seen)
	}
	clear(seen)
	if err := s.NextAttempt(r, &Record{TaskID: task}); err != nil {
		t.Fatal(err)
	}
	to := r.attemptDir(1)
	if !slices.Contains(seen[to], "result.json") || seen[r.Dir] == nil || !slices.Contains(seen[filepath.Dir(to)], "1") {
		t.Errorf("an output that is moved away: %v", seen)
	}
}
