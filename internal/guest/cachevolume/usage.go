package cachevolume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Usage returns the disk space of directories, in bytes, each file counted once. Files deleted meanwhile
// count as zero.
func Usage(ctx context.Context, dirs ...string) (int64, error) {
	type file struct{ dev, ino uint64 }
	seen := map[file]bool{}
	var sum int64
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			if err == nil {
				err = ctx.Err()
			}
			var st unix.Stat_t
			if err == nil {
				err = unix.Lstat(path, &st)
			}
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil {
				return err
			}
			if id := (file{st.Dev, st.Ino}); st.Nlink > 1 && st.Mode&unix.S_IFMT != unix.S_IFDIR {
				if seen[id] {
					return nil
				}
				seen[id] = true
			}
			sum += st.Blocks * 512 // the kernel's unit, independent of the file system
			return nil
		})
		if err != nil {
			return sum, fmt.Errorf("measure %s: %w", dir, err)
		}
	}
	return sum, nil
}
