package taskstore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const task = "T-AAAA0001"

// outputs is the content of every file of an output folder by its name.
func outputs(t *testing.T, dir string) map[string]string {
	t.Helper()
	m := map[string]string{}
	err := filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, p)
		if err != nil {
			return err
		}
		if first, _, _ := strings.Cut(rel, "/"); stays[first] {
			return nil
		}
		b, err := os.ReadFile(p)
		m[rel] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// finished makes a store with a task whose first attempt left an output.
func finished(t *testing.T) (*Store, *Record) {
	t.Helper()
	s := New(t.TempDir())
	r := &Record{TaskID: task, AttemptID: "00000000000000a1", Attempt: 1, Collected: true, Status: workorder.StatusTimeout, EndedBy: workorder.EndedByTimeout, Box: "box"}
	lock, err := s.Create(r)
	if err != nil {
		t.Fatal(err)
	}
	lock.Unlock()
	for _, name := range []string{"result.json", "events.jsonl", "host-events.jsonl", "workorder.json", "work.bundle", "logs/a.log", "evidence/x/y"} {
		full := filepath.Join(r.Dir, name)
		if err := os.MkdirAll(filepath.Dir(full), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte("1 "+name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return s, r
}

func TestNextAttempt(t *testing.T) {
	s, first := finished(t)
	if err := s.RequestStop(task, StopSoft); err != nil {
		t.Fatal(err)
	}
	left := outputs(t, first.Dir)
	if err := s.NextAttempt(first, &Record{TaskID: task, AttemptID: "00000000000000a2"}); err != nil {
		t.Fatal(err)
	}
	r, err := s.Load(task)
	if err != nil || r.Number() != 2 || r.Collected || len(r.PastAttempts) != 1 || r.Dir != first.Dir || !r.Knows("00000000000000a1") || r.Knows("") {
		t.Fatalf("%+v, %v", r, err)
	}
	if s.StopRequest(task) != "" {
		t.Error("the second attempt is stopped before it began")
	}
	if now := outputs(t, r.Dir); len(now) != 0 {
		t.Errorf("the output still shows %v", now)
	}
	past, err := r.At(1)
	if err != nil || past.Status != workorder.StatusTimeout || past.Box != "box" || fmt.Sprint(outputs(t, past.Dir)) != fmt.Sprint(left) {
		t.Errorf("%+v, %v", past, err)
	}
	if _, err := r.At(3); !errors.Is(err, ErrNotFound) {
		t.Errorf("an attempt that is not there: %v", err)
	}
}

// TestDiesWhileMoving: whatever the moment, the next one who holds the lock finds
// the last attempt whole, and can go on.
func TestDiesWhileMoving(t *testing.T) {
	_, r := finished(t)
	entries, err := os.ReadDir(r.Dir)
	if err != nil {
		t.Fatal(err)
	}
	entries = slices.DeleteFunc(entries, func(e os.DirEntry) bool { return stays[e.Name()] })
	for done := range len(entries) + 1 {
		for _, mended := range []bool{true, false} {
			s, r := finished(t)
			left := outputs(t, r.Dir)
			// NextAttempt's own steps, as far as they came.
			r.Moving = 1
			if err := s.Save(r); err != nil {
				t.Fatal(err)
			}
			if err := os.MkdirAll(r.attemptDir(1), 0o700); err != nil {
				t.Fatal(err)
			}
			for _, e := range entries[:done] {
				if err := os.Rename(filepath.Join(r.Dir, e.Name()), filepath.Join(r.attemptDir(1), e.Name())); err != nil {
					t.Fatal(err)
				}
			}
			r, err := s.Load(task)
			if err != nil {
				t.Fatal(err)
			}
			if mended {
				if err := s.FinishMove(r); err != nil {
					t.Fatal(err)
				}
				if got := outputs(t, r.Dir); fmt.Sprint(got) != fmt.Sprint(left) || r.Moving != 0 {
					t.Errorf("after %d renames: %v, want %v", done, got, left)
				}
			}
			if err := s.NextAttempt(r, &Record{TaskID: task}); err != nil {
				t.Fatal(err)
			}
			if r, err = s.Load(task); err != nil {
				t.Fatal(err)
			}
			if past, err := r.At(1); err != nil || fmt.Sprint(outputs(t, past.Dir)) != fmt.Sprint(left) || len(outputs(t, r.Dir)) != 0 {
				t.Errorf("after %d renames, mended %v: the first attempt is not whole: %v", done, mended, err)
			}
		}
	}
}

// TestMoveFails: an attempt that cannot begin leaves the last one as it was.
func TestMoveFails(t *testing.T) {
	s, r := finished(t)
	left := outputs(t, r.Dir)
	// A folder with content is in the way of the last name.
	if err := os.MkdirAll(filepath.Join(r.attemptDir(1), "workorder.json", "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := s.NextAttempt(r, &Record{TaskID: task}); err == nil {
		t.Fatal("moved over a folder")
	}
	for name, content := range left {
		if got := outputs(t, r.Dir)[name]; got != content && name != "workorder.json" {
			t.Errorf("%s is %q", name, got)
		}
	}
	if r, err := s.Load(task); err != nil || r.Number() != 1 || !r.Collected {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestAdopt: a folder whose maker died before the record was there is nobody's.
func TestAdopt(t *testing.T) {
	s := New(t.TempDir())
	if err := os.Mkdir(s.TaskDir(task), 0o700); err != nil {
		t.Fatal(err)
	}
	lock, err := s.TryLock(task)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Create(&Record{TaskID: task}); !errors.Is(err, ErrExists) {
		t.Errorf("its maker lives: %v", err)
	}
	lock.Unlock()
	if lock, err = s.Create(&Record{TaskID: task}); err != nil {
		t.Fatal(err)
	}
	lock.Unlock()
	if _, err := s.Create(&Record{TaskID: task}); !errors.Is(err, ErrExists) {
		t.Errorf("it has a record: %v", err)
	}
}
