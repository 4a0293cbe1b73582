package disk

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestUsed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	empty := used(t.Context(), []string{dir})
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
	if got := used(t.Context(), []string{dir}) - empty; got < 1<<20 || got > 1<<20+64<<10 {
		t.Errorf("%d bytes, want one MiB", got)
	}
}

// What was there before does not count, and what is beyond the limit is said once.
func TestWatch(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "before"), bytes.Repeat([]byte("x"), 4<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	said := make(chan string, 2)
	done := make(chan struct{})
	go func() {
		Watch(ctx, []string{dir}, 1<<20, func(text string) { said <- text })
		close(done)
	}()
	select {
	case text := <-said:
		t.Fatalf("at the beginning: %s", text)
	default:
	}
	for i := 0; i < 600; i++ { // until a look has seen what came after the first one
		if err := os.WriteFile(filepath.Join(dir, "after"), bytes.Repeat([]byte("x"), 8<<20), 0o600); err != nil {
			t.Fatal(err)
		}
		select {
		case <-said:
			<-done
			return
		case <-t.Context().Done():
			t.Fatal("nothing was said")
		case <-done:
			t.Fatal("it ended without a word")
		case <-time.After(100 * time.Millisecond):
		}
	}
	t.Fatal("nothing was said")
}
