package layercache

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/sandbox-agent/sandbox-agent/internal/atomicfile"
)

type kernel struct{}

// IsMount reports whether path is on another device than its parent, or is the root of a volume on the same device.
func (kernel) IsMount(path string) bool {
	var st unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BASIC_STATS, &st)
	return err == nil && st.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT != 0 && st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0
}

func (kernel) Bind(source, target string, readOnly bool) error {
	if err := os.MkdirAll(target, 0o711); err != nil {
		return err
	}
	if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind %s to %s: %w", source, target, err)
	}
	if !readOnly {
		return nil
	}
	if err := unix.Mount("", target, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""); err != nil {
		return errors.Join(fmt.Errorf("make %s read-only: %w", target, err), unix.Unmount(target, unix.MNT_DETACH))
	}
	return nil
}

func (kernel) Detach(target string) error { return unix.Unmount(target, unix.MNT_DETACH) }

func mkdirs(dirs ...string) error {
	for _, d := range dirs {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return err
		}
	}
	return nil
}

// exchange swaps two names in one step, so that neither is ever missing.
func exchange(a, b string) error {
	return unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
}

func mkdirLike(model, dir string) error {
	err := os.Mkdir(dir, 0o700)
	if err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return like(model, dir)
}

func like(model, path string) error {
	var m, p unix.Stat_t
	if err := unix.Lstat(model, &m); err != nil {
		return fmt.Errorf("stat %s: %w", model, err)
	}
	if err := unix.Lstat(path, &p); err != nil {
		return fmt.Errorf("stat %s: %w", path, err)
	}
	if m.Uid != p.Uid || m.Gid != p.Gid {
		if err := os.Lchown(path, int(m.Uid), int(m.Gid)); err != nil {
			return err
		}
	}
	if m.Mode&0o7777 != p.Mode&0o7777 {
		return os.Chmod(path, os.FileMode(m.Mode&0o777))
	}
	return nil
}

// copyFile copies a small file; it keeps an existing one.
func copyFile(from, to string) error {
	if _, err := os.Lstat(to); err == nil {
		return nil
	}
	st, err := os.Stat(from)
	if err != nil {
		return err
	}
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return atomicfile.Write(to, b, st.Mode().Perm())
}
