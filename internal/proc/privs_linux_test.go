package proc

import (
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// The first thread is what the whole process looks like from outside, and does not end with its goroutine.
func TestFirstThreadIsNeverThrownAway(t *testing.T) {
	t.Parallel()
	var first atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 500 {
				_ = onThrowawayThread(func() error {
					if unix.Gettid() == unix.Getpid() {
						first.Add(1)
					}
					return nil
				})
			}
		})
	}
	wg.Wait()
	if n := first.Load(); n > 0 {
		t.Errorf("the first thread was used %d times", n)
	}
}
