package roles

import (
	"context"
	"fmt"
	"io/fs"
	"syscall"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/safeopen"
)

const (
	// diskPause is the minimum time between two measurements of the disk, and diskShare times a measurement's duration.
	diskPause = 5 * time.Second
	diskShare = 20
	// diskBlock is the unit of st_blocks: stat(2).
	diskBlock = 512
)

// watchDisk measures the directories until ctx ends, and calls exceeded once when they have grown by more than limit
// bytes. Unreadable entries count as zero. Engines limit the disk only on few file systems.
func watchDisk(ctx context.Context, dirs []string, limit int64, exceeded func(text string)) {
	before := diskUsage(ctx, dirs)
	for {
		start := time.Now()
		if now := diskUsage(ctx, dirs) - before; ctx.Err() == nil && now > limit {
			exceeded(fmt.Sprintf("the task uses %d MiB of the disk, limits.disk is %d MiB", now>>20, limit>>20))
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(max(diskPause, diskShare*time.Since(start))):
		}
	}
}

// diskUsage returns the size of all files in bytes; sparse ones count with their allocated blocks. Each name of a file
// counts for its fraction.
func diskUsage(ctx context.Context, dirs []string) (sum int64) {
	for _, dir := range dirs {
		var device uint64
		_ = safeopen.Walk(dir, func(path string, info fs.FileInfo, err error) error {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err != nil {
				return nil
			}
			st, ok := info.Sys().(*syscall.Stat_t)
			if !ok {
				return nil
			}
			if path == dir {
				device = st.Dev
			}
			names := uint64(1)
			if !info.IsDir() {
				names = max(1, uint64(st.Nlink))
			}
			switch {
			case st.Dev != device && info.IsDir():
				return fs.SkipDir
			case st.Dev == device:
				sum += st.Blocks * diskBlock / int64(names)
			}
			return nil
		})
	}
	return sum
}
