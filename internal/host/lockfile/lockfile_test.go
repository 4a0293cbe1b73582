package lockfile_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/lockfile"
)

// Whether the file is removed by its holder or not, one at a time has the lock.
func TestOneHolder(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	var wg sync.WaitGroup
	holders := make(chan int, 1)
	for i := range 20 {
		wg.Go(func() {
			l, err := lockfile.Take(t.Context(), path)
			if err != nil {
				t.Error(err)
				return
			}
			defer l.Release()
			select {
			case holders <- i:
			default:
				t.Error("two hold it")
			}
			<-holders
			if i%2 == 0 {
				l.Remove()
			}
		})
	}
	wg.Wait()
}

func TestTakeIsGivenUp(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	l, err := lockfile.Take(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := lockfile.Take(ctx, path); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	l.Remove()
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
	if _, err := lockfile.Take(t.Context(), filepath.Join(path, "x", "lock")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a folder: %v", err)
	}
}
