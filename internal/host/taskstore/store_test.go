package taskstore_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/host/taskstore"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

func TestFind(t *testing.T) {
	s := taskstore.New(t.TempDir())
	if list, err := s.List(); err != nil || len(list) != 0 {
		t.Errorf("empty store: %v, %v", list, err)
	}
	for i, id := range []string{"T-AAAA0001", "T-AAAA0002", "T-BBBB0001"} {
		lock, err := s.Create(&taskstore.Record{TaskID: id, CreatedAt: time.Unix(int64(i), 0)})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.TryLock(id); !errors.Is(err, taskstore.ErrLocked) {
			t.Errorf("a new task is nobody's: %v", err)
		}
		lock.Unlock()
	}
	if _, err := s.Create(&taskstore.Record{TaskID: "T-BBBB0001"}); !errors.Is(err, taskstore.ErrExists) {
		t.Error("the same task was made twice")
	}
	for in, want := range map[string]string{"T-AAAA0001": "T-AAAA0001", "t-b": "T-BBBB0001", "bbbb": "T-BBBB0001", "AAAA0002": "T-AAAA0002"} {
		if r, err := s.Find(in); err != nil || r.TaskID != want {
			t.Errorf("Find(%q) = %v, %v", in, r, err)
		}
	}
	var several *taskstore.AmbiguousError
	if _, err := s.Find("aaaa"); !errors.As(err, &several) || len(several.IDs) != 2 {
		t.Errorf("prefix of two: %v", err)
	}
	for _, in := range []string{"", "T-", "C", "T-CCCC0001", "../x"} {
		if _, err := s.Find(in); !errors.Is(err, taskstore.ErrNotFound) {
			t.Errorf("Find(%q): %v", in, err)
		}
	}
	list, err := s.List()
	if err != nil || len(list) != 3 || list[0].TaskID != "T-BBBB0001" {
		t.Errorf("list %v, %v: not the newest first", list, err)
	}
	if err := os.WriteFile(filepath.Join(s.TaskDir("T-AAAA0001"), "task.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if list, err := s.List(); err == nil || len(list) != 2 {
		t.Errorf("with a broken record: %v, %v", list, err)
	}
}

func TestRemove(t *testing.T) {
	s, out := taskstore.New(t.TempDir()), t.TempDir()
	r := &taskstore.Record{TaskID: "T-AAAA0001", Dir: filepath.Join(out, "T-AAAA0001")}
	if _, err := s.Create(r); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(out, "mine"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.Remove(r); err != nil {
		t.Fatal(err)
	}
	for _, gone := range []string{r.Dir, s.TaskDir(r.TaskID)} {
		if _, err := os.Stat(gone); err == nil {
			t.Errorf("%s is left", gone)
		}
	}
	if _, err := os.Stat(filepath.Join(out, "mine")); err != nil {
		t.Error("a file that is not the run's was removed")
	}
	// A record that was tampered with does not name what is deleted.
	keep := t.TempDir()
	if err := s.Remove(&taskstore.Record{TaskID: "T-AAAA0002", Dir: keep}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(keep); err != nil {
		t.Error("a folder without the task's name was removed")
	}
}

func TestLock(t *testing.T) {
	s := taskstore.New(t.TempDir())
	if _, err := s.TryLock("T-AAAA0001"); !errors.Is(err, taskstore.ErrNotFound) {
		t.Errorf("absent task: %v", err)
	}
	l, err := s.Create(&taskstore.Record{TaskID: "T-AAAA0001"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.TryLock("T-AAAA0001"); !errors.Is(err, taskstore.ErrLocked) {
		t.Errorf("second lock: %v", err)
	}
	l.Unlock()
	if l, err = s.TryLock("T-AAAA0001"); err != nil {
		t.Fatal(err)
	}
	l.Unlock()
}

func TestCreateLeavesNothing(t *testing.T) {
	s := taskstore.New(t.TempDir())
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Create(&taskstore.Record{TaskID: "T-AAAA0001", Dir: filepath.Join(file, "T-AAAA0001")}); err == nil {
		t.Fatal("a folder was made below a file")
	}
	if _, err := s.Create(&taskstore.Record{TaskID: "T-AAAA0001"}); err != nil {
		t.Errorf("the id is taken by nothing: %v", err)
	}
}

// A state folder that cannot be made is answered with how to choose another one.
func TestNoStateFolder(t *testing.T) {
	state := filepath.Join(t.TempDir(), "state")
	if err := os.Symlink("nowhere", state); err != nil {
		t.Fatal(err)
	}
	s := taskstore.New(state)
	_, made := s.Create(&taskstore.Record{TaskID: "T-A1B2C3D4"})
	_, owned := s.Owner(true)
	for _, err := range []error{made, owned} {
		if exiterr.Hint(err) == "" || exiterr.Code(err) != workorder.ExitGeneral {
			t.Errorf("%v: exit %d, hint %q", err, exiterr.Code(err), exiterr.Hint(err))
		}
	}
}
