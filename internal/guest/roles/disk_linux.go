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
	// diskPause is the minimum time between two measurements of the disk. One measurement in every diskShare times
	// its own duration is made: 25,000 files take a third of a second.
	diskPause = 5 * time.Second
	diskShare = 20
	// diskBlock is the unit of st_blocks: stat(2).
	diskBlock = 512
)

// watchDisk measures the directories, each without other file systems below it, until ctx ends, and calls exceeded
// once when they have grown by more than limit bytes since it began. Unreadable entries count as zero. An engine
// limits a box's use of the disk only on few file systems, so the box measures it itself.
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

// diskUsage returns the size of all files in bytes. A file with several names counts once, and a sparse one with
// its allocated blocks. Its memory use is bounded: each name of a file counts for its fraction.
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
