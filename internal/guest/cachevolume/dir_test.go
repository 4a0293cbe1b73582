package cachevolume

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func folder(t *testing.T, base, id string) *Dir {
	t.Helper()
	f := &Dir{Base: base, ID: id, Log: slog.New(slog.DiscardHandler)}
	if err := f.Open("shared"); err != nil {
		t.Fatal(err)
	}
	return f
}

func register(t *testing.T, f *Dir) (alive bool) {
	t.Helper()
	err := f.Exclusive(t.Context(), func() (err error) { alive, err = f.Register(); return err })
	if err != nil {
		t.Fatal(err)
	}
	return alive
}

// A dead box's folder is removed by the next box, a live one's never, and one that left is gone.
func TestRuns(t *testing.T) {
	t.Parallel()
	base := filepath.Join(t.TempDir(), "v1")
	a, b, c := folder(t, base, "a"), folder(t, base, "b"), folder(t, base, "c")
	if register(t, a) || !register(t, b) {
		t.Error("who else lives is not seen")
	}
	if live, err := b.Live(); err != nil || !slices.Equal(live, []string{"a", "b"}) {
		t.Errorf("%q, %v", live, err)
	}
	if err := a.Abandon(); err != nil { // it was killed
		t.Fatal(err)
	}
	if dead, err := b.Dead(); err != nil || !slices.Equal(dead, []string{a.Run()}) {
		t.Errorf("%q, %v", dead, err)
	}
	if !register(t, c) {
		t.Error("b lives")
	}
	if _, err := os.Stat(a.Run()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the dead box's folder: %v", err)
	}
	trash, err := c.Trash()
	if err != nil {
		t.Fatal(err)
	}
	c.EmptyTrash(trash)
	if left, err := os.ReadDir(c.Path("trash")); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
	if err := errors.Join(b.Leave(), c.Leave()); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(filepath.Join(base, "runs")); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
}

// Two boxes cannot have one name at once.
func TestSameName(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	a, b := folder(t, base, "a"), folder(t, base, "a")
	register(t, a)
	if err := b.Exclusive(t.Context(), func() error { _, err := b.Register(); return err }); !errors.Is(err, os.ErrExist) {
		t.Error(err)
	}
	if live, err := a.Live(); err != nil || len(live) != 1 {
		t.Errorf("%q, %v", live, err)
	}
}
