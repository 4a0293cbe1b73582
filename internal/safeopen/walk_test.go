package safeopen_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/safeopen"
)

func TestWalk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, d := range []string{"a/b", "skipped/x", "empty"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "a/b/f"), nil, 0o600), os.Symlink(dir, filepath.Join(dir, "a/loop"))); err != nil {
		t.Fatal(err)
	}
	var got []string
	err := safeopen.Walk(dir, func(path string, info fs.FileInfo, err error) error {
		if err != nil {
			return err
		}
		if info.Name() == "skipped" {
			return fs.SkipDir
		}
		got = append(got, path[len(dir):])
		return nil
	})
	if slices.Sort(got); err != nil || !slices.Equal(got, []string{"", "/a", "/a/b", "/a/b/f", "/a/loop", "/empty"}) {
		t.Errorf("%q, %v", got, err)
	}
	stop := errors.New("stop")
	if err := safeopen.Walk(dir, func(string, fs.FileInfo, error) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("a walk that was stopped: %v", err)
	}
	if err := safeopen.Walk(dir+"/none", func(_ string, _ fs.FileInfo, err error) error { return err }); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what is not there: %v", err)
	}
}

// A folder of many entries is not held in memory, which filepath.WalkDir does: some 80 bytes and the name for each.
func TestWalkOfALargeFolder(t *testing.T) {
	dir := t.TempDir()
	const n = 20_000
	first := filepath.Join(dir, "0")
	if err := os.WriteFile(first, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for i := 1; i < n; i++ { // names of one file are made faster than files
		if err := os.Link(first, filepath.Join(dir, strconv.Itoa(i))); err != nil {
			t.Fatal(err)
		}
	}
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before, most, seen := heap(), uint64(0), 0
	err := safeopen.Walk(dir, func(string, fs.FileInfo, error) error {
		if seen++; seen == n/2 {
			now := heap()
			most = now - min(before, now)
		}
		return nil
	})
	if err != nil || seen != n+1 || most > n*20 {
		t.Errorf("%d entries, %d bytes, %v", seen, most, err)
	}
}

func TestWalkOfADeepFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	deep := dir
	for range 1010 {
		deep += "/d"
	}
	if err := os.MkdirAll(deep, 0o755); err != nil {
		t.Fatal(err)
	}
	said := 0
	err := safeopen.Walk(dir, func(_ string, _ fs.FileInfo, err error) error {
		if errors.Is(err, safeopen.ErrTooDeep) {
			said++
		}
		return nil
	})
	if err != nil || said != 1 {
		t.Errorf("%d times, %v", said, err)
	}
}
