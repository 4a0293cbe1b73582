package launch_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/job"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/outcome"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// nothingLeft checks that a job which was refused is no task: it has no record, no output and no lock.
func nothingLeft(t *testing.T, f *fixture, j *job.Job) {
	t.Helper()
	if list, err := f.Store.List(); err != nil || len(list) > 0 {
		t.Errorf("tasks %v, %v", list, err)
	}
	for _, path := range []string{f.Store.TaskDir(j.Order.TaskID), j.OutDir} {
		if _, err := os.Lstat(path); path != "" && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is left: %v", path, err)
		}
	}
}

// TestRefusedLeavesOthersAlone: a folder that was there before goes on to have what it had, also one of the task's name.
func TestRefusedLeavesOthersAlone(t *testing.T) {
	t.Parallel()
	f := setup(t, happy)
	f.fake.SetDown(true)
	j := newJob()
	j.OutDir = t.TempDir()
	mine := filepath.Join(j.OutDir, j.Order.TaskID, "mine")
	if _, err := f.Run(t.Context(), nil, j); exiterr.Code(err) != workorder.ExitBox {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(j.OutDir); err != nil || len(left) > 0 {
		t.Fatalf("%v, %v", left, err)
	}
	if err := errors.Join(os.Mkdir(filepath.Dir(mine), 0o700), os.WriteFile(mine, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Run(t.Context(), nil, j); exiterr.Code(err) != workorder.ExitBox {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(filepath.Dir(mine)); err != nil || len(left) != 1 || left[0].Name() != "mine" {
		t.Errorf("%v, %v", left, err)
	}
	if list, err := f.Store.List(); err != nil || len(list) > 0 {
		t.Errorf("tasks %v, %v", list, err)
	}
	// Files of the run's names that were there are somebody's, too: of a task whose record is on another machine.
	theirs := []string{outcome.HostEventsFile, "mine", workorder.ResultFile, workorder.OrderFile}
	for _, name := range theirs {
		if err := os.WriteFile(filepath.Join(filepath.Dir(mine), name), []byte("{}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := f.Run(t.Context(), nil, j); exiterr.Code(err) != workorder.ExitBox {
		t.Fatal(err)
	}
	var left []string
	entries, err := os.ReadDir(filepath.Dir(mine))
	for _, e := range entries {
		left = append(left, e.Name())
	}
	if result, rerr := os.ReadFile(filepath.Join(filepath.Dir(mine), workorder.ResultFile)); errors.Join(err, rerr) != nil || !slices.Equal(left, theirs) || string(result) != "{}\n" {
		t.Errorf("%q, %q, %v, %v", left, result, err, rerr)
	}
	// The id is free: the same command begins when what was wrong is mended.
	f.fake.SetDown(false)
	if _, err := f.Run(t.Context(), nil, j); err != nil {
		t.Error(err)
	}
}
