package taskstore_test

import (
	"os"
	"slices"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/taskstore"
)

// A command that is killed before it writes the record leaves a directory with a lock at most.
func TestUnbegun(t *testing.T) {
	t.Parallel()
	s := taskstore.New(t.TempDir())
	for id, file := range map[string]string{"T-AAAAAAAA": "", "T-BBBBBBBB": "lock", "T-CCCCCCCC": "task.json", "other": "lock"} {
		if err := os.Mkdir(s.TaskDir(id), 0o700); err != nil {
			t.Fatal(err)
		}
		if file == "" {
			continue
		}
		if err := os.WriteFile(s.TaskDir(id)+"/"+file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if ids := s.Unbegun(time.Now().Add(-time.Minute)); ids != nil {
		t.Errorf("%q may be beginning now", ids)
	}
	ids := s.Unbegun(time.Now().Add(time.Minute))
	if slices.Sort(ids); !slices.Equal(ids, []string{"T-AAAAAAAA", "T-BBBBBBBB"}) {
		t.Errorf("%q", ids)
	}
	lock, err := s.TryLock("T-BBBBBBBB")
	if err != nil {
		t.Fatal(err)
	}
	if s.RemoveUnbegun("T-BBBBBBBB") == nil {
		t.Error("a task that a command holds is removed")
	}
	lock.Unlock()
	if err := s.RemoveUnbegun("T-BBBBBBBB"); err != nil {
		t.Error(err)
	}
	if ids := s.Unbegun(time.Now().Add(time.Minute)); len(ids) != 1 {
		t.Errorf("%q", ids)
	}
}
