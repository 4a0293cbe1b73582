package setupcache

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

// mounts are the mounted directories of one box.
type mounts struct {
	root   string           // root's directory, in which the mounts are
	user   *proc.Credential // the directories are mounted in this user's mount namespace, too
	dirs   []*mountedDir
	uppers int // number of upper directories created so far
}

type mountedDir struct {
	Dir
	layers []string // ids of snapshots, uppermost first
	upper  string   // name of its directory in the run's directory
	shown  bool     // its path shows the layers
}

func isMount(path string) bool {
	var st unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BASIC_STATS, &st)
	return err == nil && st.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT != 0 && st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0
}

// bind mounts a directory at another path, which it creates, without later mounts on the original.
func bind(from, to string, readOnly bool) error {
	if err := os.MkdirAll(to, 0o700); err != nil {
		return err
	}
	if err := unix.Mount(from, to, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind %s to %s: %w", from, to, err)
	}
	if err := private(to); err != nil || !readOnly {
		return err
	}
	if err := unix.Mount("", to, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""); err != nil {
		return errors.Join(fmt.Errorf("make %s read-only: %w", to, err), unix.Unmount(to, unix.MNT_DETACH))
	}
	return nil
}

func private(at string) error {
	if err := unix.Mount("", at, "", unix.MS_PRIVATE, ""); err != nil {
		return errors.Join(fmt.Errorf("make the mount at %s private: %w", at, err), unix.Unmount(at, unix.MNT_DETACH))
	}
	return nil
}

// overlay mounts layers, uppermost first, with an upper directory below dir that is like the directory model.
func overlay(at, dir, model string, layers []string) error {
	upper, work := filepath.Join(dir, "upper"), filepath.Join(dir, "work")
	for _, d := range []string{dir, upper, work, at} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return err
		}
	}
	var st unix.Stat_t
	if err := unix.Stat(model, &st); err != nil {
		return fmt.Errorf("stat %s: %w", model, err)
	}
	if err := errors.Join(os.Lchown(upper, int(st.Uid), int(st.Gid)), unix.Chmod(upper, st.Mode&0o7777)); err != nil {
		return err
	}
	// Directories of layers can be renamed, as package managers do.
	options := "lowerdir=" + strings.Join(
		layers, ":",
	) + ",upperdir=" + upper + ",workdir=" + work + ",redirect_dir=on,index=off,metacopy=off,xino=off"
	if err := unix.Mount("overlay", at, "overlay", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return fmt.Errorf("mount layers below %s: %w", at, err)
	}
	return private(at)
}

// freeze makes an overlay read-only wherever it is mounted. It fails if a file stays open for writing.
func freeze(ctx context.Context, at string) error {
	for by := time.Now().Add(busy); ; time.Sleep(lookAgain) {
		err := unix.Mount("", at, "", unix.MS_REMOUNT|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV, "")
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, unix.EBUSY) || ctx.Err() != nil || time.Now().After(by):
			return fmt.Errorf("make %s read-only: %w", at, err)
		}
	}
}

// busy bounds the wait for files that are open for writing.
const busy = 2 * time.Second

// thaw undoes freeze.
func thaw(at string) error {
	if err := unix.Mount("", at, "", unix.MS_REMOUNT|unix.MS_NOSUID|unix.MS_NODEV, ""); err != nil {
		return fmt.Errorf("make %s writable again: %w", at, err)
	}
	return nil
}

// show mounts the tree at from over to, here and in the user's mount namespace.
func (m *mounts) show(from, to string) error {
	return m.everywhere(func(in *proc.Namespace) error {
		fd, err := unix.OpenTree(unix.AT_FDCWD, from, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
		if err != nil {
			return fmt.Errorf("open the mount at %s: %w", from, err)
		}
		defer unix.Close(fd)
		return in.Do(func() error {
			if err := unix.MoveMount(fd, "", unix.AT_FDCWD, to, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
				return fmt.Errorf("mount %s: %w", to, err)
			}
			return nil
		})
	})
}

// hide unmounts the uppermost mount, here and in the user's mount namespace.
func (m *mounts) hide(path string) error {
	return m.everywhere(func(in *proc.Namespace) error { return in.Do(func() error { return drop(path) }) })
}

// drop unmounts the uppermost mount.
func drop(path string) error {
	err := unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	if errors.Is(err, unix.EINVAL) {
		return nil // nothing is mounted there
	}
	return err
}

func (m *mounts) everywhere(do func(*proc.Namespace) error) error {
	if err := do(nil); err != nil || m.user == nil || m.user.Namespace == nil {
		return err
	}
	return do(m.user.Namespace)
}

// mount mounts the layers of a directory over it, with a new upper directory.
func (m *mounts) mount(l *mountedDir) error {
	l.upper = m.newUpper(l)
	at, run := m.path("mounts", l.upper), m.path("run", l.upper)
	if err := overlay(at, run, l.Path, m.layers(l)); err != nil {
		return err
	}
	for _, a := range l.Apart {
		if err := makeLike(filepath.Join(l.Path, a), filepath.Join(at, a)); err != nil {
			return err
		}
		if err := bind(m.path("apart", l.Name, a), filepath.Join(at, a), false); err != nil {
			return err
		}
	}
	return m.showAll(at, l)
}

func (m *mounts) remount(l *mountedDir) error {
	err := errors.Join(m.hide(l.Path), drop(m.path("mounts", l.upper)))
	if err == nil {
		err = m.mount(l)
	}
	if err != nil {
		return fmt.Errorf("mount %s again: %w", l.Path, err)
	}
	return nil
}

func (m *mounts) newUpper(l *mountedDir) string {
	m.uppers++
	return l.Name + "-" + strconv.Itoa(m.uppers)
}

func (m *mounts) showAll(at string, l *mountedDir) error {
	l.shown = true
	if err := m.show(at, l.Path); err != nil {
		return err
	}
	for _, a := range l.Apart { // a clone has no mounts below it
		if err := m.show(filepath.Join(at, a), filepath.Join(l.Path, a)); err != nil {
			return err
		}
	}
	return nil
}

// layers returns the layers of a directory, without snapshots that have none for it.
func (m *mounts) layers(l *mountedDir) (dirs []string) {
	for _, id := range l.layers {
		dir := m.path("kept", id, l.Name)
		if _, err := os.Lstat(dir); err == nil {
			dirs = append(dirs, dir)
		}
	}
	if l.Whole {
		empty := m.path("run", "empty")
		_ = os.MkdirAll(empty, 0o755) // the mount reports an error
		return append(dirs, empty)
	}
	return append(dirs, m.path("image", l.Name))
}

// thaw makes the directories writable again.
func (m *mounts) thaw(all []written) error {
	for _, l := range all {
		if err := thaw(m.path("mounts", l.name)); err != nil {
			return err
		}
	}
	return nil
}

// unmountAll restores the original mounts of the directories.
func (m *mounts) unmountAll() (err error) {
	for _, l := range m.dirs {
		if l.shown {
			err = errors.Join(err, m.hide(l.Path))
		}
	}
	m.dirs = nil
	return err
}

// path returns a path below root's directory, where the mounts are.
func (m *mounts) path(p ...string) string { return filepath.Join(append([]string{m.root}, p...)...) }

func makeLike(model, dir string) error {
	var st unix.Stat_t
	if err := unix.Stat(model, &st); err != nil {
		return fmt.Errorf("stat %s: %w", model, err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return errors.Join(os.Lchown(dir, int(st.Uid), int(st.Gid)), unix.Chmod(dir, st.Mode&0o7777))
}
