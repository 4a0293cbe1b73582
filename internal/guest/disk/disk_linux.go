// Package disk watches how much of the disk a box takes. An engine bounds that only on few file systems, so that the box looks itself.
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
	// least is the time between two looks, and share what a look may take of the time: 25,000 files take a third of a second.
	least = 5 * time.Second
	share = 20
	// block is the unit of st_blocks: stat(2).
	block = 512
)

// Watch looks at the folders, each without other file systems below it, until ctx ends, and calls over once when they have taken more than limit
// bytes since it began. Whatever cannot be read counts as nothing.
func Watch(ctx context.Context, folders []string, limit int64, over func(text string)) {
	before := used(ctx, folders)
	for {
		start := time.Now()
		if now := used(ctx, folders) - before; ctx.Err() == nil && now > limit {
			over(fmt.Sprintf("the task takes %d MiB of the disk, limits.disk is %d MiB", now>>20, limit>>20))
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(max(least, share*time.Since(start))):
		}
	}
}

// used is what files take, in bytes; one with several names counts once, and a sparse one what it has. It takes little memory whatever the
// folders hold: each name of a file counts for its part.
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
