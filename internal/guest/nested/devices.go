package nested

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// devSize bounds the nested sandbox's /dev, which holds only nodes, links and empty directories.
const devSize = "64k"

// devices mounts a file system at target with new device nodes, links and directories of source, the sandbox's /dev.
// New ones, because any user may set the times of a node, which the next nested sandbox would read.
func devices(source, target string) error {
	if err := mount("dev", target, "tmpfs", unix.MS_NOSUID|unix.MS_NOEXEC, "mode=0755,size="+devSize); err != nil {
		return err
	}
	if err := copyDevices(source, target); err != nil {
		return fmt.Errorf("create devices: %w", err)
	}
	return mount("", target, "", unix.MS_REMOUNT|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NOEXEC, "mode=0755,size="+devSize)
}

func copyDevices(source, target string) error {
	entries, err := os.ReadDir(source)
	if err != nil {
		return err
	}
	for _, e := range entries {
		from, to := filepath.Join(source, e.Name()), filepath.Join(target, e.Name())
		st, err := os.Lstat(from)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		switch mode := st.Mode(); {
		case mode&fs.ModeSymlink != 0:
			var link string
			if link, err = os.Readlink(from); err == nil {
				err = os.Symlink(link, to)
			}
		case mode.IsDir():
			err = copyDirectory(from, to, st)
		case mode&fs.ModeDevice != 0:
			err = copyDevice(from, to, st)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// copyDirectory creates the directory, with its content unless the nested sandbox mounts another file system there.
func copyDirectory(from, to string, st fs.FileInfo) error {
	if err := os.Mkdir(to, st.Mode().Perm()); err != nil {
		return err
	}
	var above, below unix.Stat_t
	if err := errors.Join(unix.Stat(filepath.Dir(from), &above), unix.Stat(from, &below)); err != nil || above.Dev != below.Dev {
		return err
	}
	return copyDevices(from, to)
}

// copyDevice creates the same node, or binds the sandbox's own, whose times cannot be set.
func copyDevice(from, to string, st fs.FileInfo) error {
	s, ok := st.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	err := unix.Mknod(to, s.Mode, int(s.Rdev))
	if err == nil {
		return errors.Join(os.Chown(to, int(s.Uid), int(s.Gid)), unix.Chmod(to, s.Mode&0o7777))
	}
	if !errors.Is(err, unix.EPERM) {
		return err
	}
	if err := os.WriteFile(to, nil, 0o600); err != nil {
		return err
	}
	if err := mount(from, to, "", unix.MS_BIND, ""); err != nil {
		return err
	}
	return mount("", to, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NOEXEC, "")
}
