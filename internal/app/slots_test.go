package app

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/host/statedir"
	"github.com/sandbox-agent/sandbox-agent/sandbox/pool"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// What runs and what starts count together; what has a slot needs no other, and a killed command leaves none.
func TestSlots(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	runs := map[string]bool{"task T-1": true, "sandbox ended": false}
	s := slots{
		Limits: statedir.Limits{Sandboxes: 2}, file: "config.yaml", dir: filepath.Join(t.TempDir(), "slots"), note: func(string) {},
		running: func(context.Context) map[string]bool {
			mu.Lock()
			defer mu.Unlock()
			return maps.Clone(runs)
		},
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.dir, "sandbox killed"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	release, err := s.take(t.Context(), "sandbox a")
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.take(t.Context(), "sandbox b")
	var full *fullError
	if !errors.As(err, &full) || !errors.Is(err, pool.ErrPoolFull) || exiterr.Code(err) != workorder.ExitBox ||
		!slices.Equal(full.by, []string{"sandbox a", "task T-1"}) {
		t.Errorf("at the limit: %v", err)
	}
	if _, err := s.take(t.Context(), "task T-1"); err != nil {
		t.Errorf("what runs: %v", err)
	}
	release()
	release, err = s.take(t.Context(), "sandbox b")
	if err != nil {
		t.Fatalf("a free slot: %v", err)
	}
	release()
	mu.Lock()
	runs["sandbox b"] = true
	mu.Unlock()
	s.Wait, s.note = time.Hour, func(string) {
		mu.Lock()
		defer mu.Unlock()
		runs["task T-1"] = false
	}
	if release, err = s.take(t.Context(), "sandbox c"); err != nil {
		t.Fatalf("after a wait: %v", err)
	}
	release()
	gone, cancel := context.WithCancel(t.Context())
	runs["task T-1"] = true
	s.note = func(string) { cancel() }
	if _, err = s.take(gone, "sandbox c"); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
}
