package provision

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// lockPoll is the time between two tries for the lock: builds take minutes.
const lockPoll = 200 * time.Millisecond

// imageLock is the lock file of the default image and its base.
const imageLock = "image.lock"

// lock takes a lock of the state folder, so that processes which build the same do it one after the other.
// The kernel releases it when its holder dies, so no lock is stale.
func lock(ctx context.Context, dir, name string, progress func(workorder.Event)) (unlock func(), waited bool, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, false, fmt.Errorf("make the state folder: %w", err)
	}
	f := flock.New(filepath.Join(dir, name), flock.SetFlag(os.O_CREATE|os.O_RDWR), flock.SetPermissions(0o600))
	locked, err := f.TryLock()
	if err == nil && !locked {
		waited = true
		progress(workorder.Event{Time: time.Now(), Type: workorder.EventOutput, Name: StepImage, Text: "another process builds the image: waiting for it"})
		locked, err = f.TryLockContext(ctx, lockPoll)
	}
	switch {
	case !locked && ctx.Err() != nil:
		return nil, waited, fmt.Errorf("wait for the image that another process builds: %w", context.Cause(ctx))
	case err != nil:
		return nil, waited, fmt.Errorf("take the lock of image builds %s: %w", f.Path(), err)
	}
	// Unlock unlocks before it closes: a child that was forked meanwhile has the file until it becomes another program.
	return func() { _ = f.Unlock() }, waited, nil
}
