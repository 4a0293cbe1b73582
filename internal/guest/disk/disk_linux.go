// Package disk watches how much of the disk a box uses. An engine limits that only on few file systems, so
// the box measures it itself.
package disk

import (
	"context"
	"fmt"
	"io/fs"
	"syscall"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/untrusted"
)

const (
	// least is the minimum time between two measurements, and share the fraction of time that they may take:
	// 25,000 files take a third of a second.
	least = 5 * time.Second
	share = 20
	// block is the unit of st_blocks: stat(2).
	block = 512
)

// Watch measures the directories, each without other file systems below it, until ctx ends, and calls over
// once when they have grown by more than limit bytes since it began. Unreadable entries count as zero.
func Watch(ctx context.Context, folders []string, limit int64, over func(text string)) {
	before := used(ctx, folders)
	for {
		start := time.Now()
		if now := used(ctx, folders) - before; ctx.Err() == nil && now > limit {
			over(fmt.Sprintf("the task uses %d MiB of the disk, limits.disk is %d MiB", now>>20, limit>>20))
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(max(least, share*time.Since(start))):
		}
	}
}

// used returns the size of all files in bytes. A file with several names counts once, and a sparse one with
// its allocated blocks. Its memory use is bounded: each name of a file counts for its fraction.
func used(ctx context.Context, folders []string) (sum int64) {
	for _, folder := range folders {
		var device uint64
		_ = untrusted.Walk(folder, func(path string, info fs.FileInfo, err error) error {
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
			if path == folder {
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
				sum += st.Blocks * block / int64(names)
			}
			return nil
		})
	}
	return sum
}
