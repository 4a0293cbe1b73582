package provision

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// lockPoll is how often a waiting process looks again: builds take minutes.
const lockPoll = 200 * time.Millisecond

// lock takes the lock of the state folder by which processes build one after
// the other. The kernel drops it when its holder dies, so none can be stale.
func lock(ctx context.Context, dir string, progress func(workorder.Event)) (unlock func(), waited bool, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, false, fmt.Errorf("make the state folder: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "image.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, false, fmt.Errorf("open the lock of image builds: %w", err)
	}
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			unlock = func() {
				// A child that was forked meanwhile has the file until it becomes another program.
				_ = unix.Flock(int(f.Fd()), unix.LOCK_UN)
				_ = f.Close()
			}
			return unlock, waited, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			_ = f.Close()
			return nil, waited, fmt.Errorf("lock %s: %w", f.Name(), err)
		}
		if !waited {
			waited = true
			progress(workorder.Event{Time: time.Now(), Type: workorder.EventOutput, Name: StepImage, Text: "another process builds the image: waiting for it"})
		}
		select {
		case <-ctx.Done():
			_ = f.Close()
			return nil, waited, fmt.Errorf("wait for the image that another process builds: %w", context.Cause(ctx))
		case <-time.After(lockPoll):
		}
	}
}
