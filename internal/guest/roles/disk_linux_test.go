package roles

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"
)

func TestDiskUsage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	empty := diskUsage(t.Context(), []string{dir})
	name := func(s string) string { return filepath.Join(dir, s) }
	if err := os.WriteFile(name("a"), bytes.Repeat([]byte("x"), 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(name("a"), name("b")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name("sparse"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(name("sparse"), 1<<40); err != nil {
		t.Fatal(err)
	}
	if got := diskUsage(t.Context(), []string{dir}) - empty; got < 1<<20 || got > 1<<20+64<<10 {
		t.Errorf("%d bytes, want one MiB", got)
	}
}

// Many names of files take no memory: each was remembered by its number before.
func TestDiskUsageWithManyNames(t *testing.T) {
	dir := t.TempDir()
	const n = 20_000
	for i := range n / 2 {
		a, b := filepath.Join(dir, strconv.Itoa(i)), filepath.Join(dir, strconv.Itoa(i)+"b")
		if err := errors.Join(os.WriteFile(a, nil, 0o600), os.Link(a, b)); err != nil {
			t.Fatal(err)
		}
	}
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before, most := heap(), uint64(0)
	// Looked at in the middle of the walk, by the question whether it is to go on.
	ctx := &countingContext{Context: t.Context(), every: n / 2, do: func() { now := heap(); most = max(most, now-min(before, now)) }}
	if diskUsage(ctx, []string{dir}); ctx.times < n || most > 20*n {
		t.Errorf("%d bytes after %d questions", most, ctx.times)
	}
}

type countingContext struct {
	context.Context
	times, every int
	do           func()
}

func (a *countingContext) Err() error {
	if a.times++; a.times%a.every == 0 {
		a.do()
	}
	return nil
}

// Earlier contents do not count, and going beyond the limit is reported once.
func TestWatchDisk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "before"), bytes.Repeat([]byte("x"), 4<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	said := make(chan string, 2) // closed when the watch has ended: what it said is read first
	go func() {
		defer close(said)
		watchDisk(ctx, []string{dir}, 1<<20, func(text string) { said <- text })
	}()
	select {
	case text := <-said:
		t.Fatalf("at the beginning: %s", text)
	default:
	}
	for i := range 600 { // until a look has seen what came after the first one, whenever that was
		if err := os.WriteFile(filepath.Join(dir, strconv.Itoa(i)), bytes.Repeat([]byte("x"), 2<<20), 0o600); err != nil {
			t.Fatal(err)
		}
		select {
		case _, ok := <-said:
			if !ok {
				t.Fatal("it ended without a word")
			}
			return
		case <-t.Context().Done():
			t.Fatal("nothing was said")
		case <-time.After(100 * time.Millisecond):
		}
	}
	t.Fatal("nothing was said")
}
