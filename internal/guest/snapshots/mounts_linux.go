package snapshots

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

func isMount(path string) bool {
	var st unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BASIC_STATS, &st)
	return err == nil && st.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT != 0 && st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0
}

// bind mounts a directory at another path, which it creates. Later mounts on one do not appear on the other:
// an engine in the box makes root's mounts shared.
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

// overlay mounts layers, uppermost first, with an upper directory that is created below dir, with owner and
// mode of the directory model.
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
	// Directories of layers can be renamed (package managers do that); no other feature of the file system is
	// on, whatever the machine's defaults.
	options := "lowerdir=" + strings.Join(
		layers, ":",
	) + ",upperdir=" + upper + ",workdir=" + work + ",redirect_dir=on,index=off,metacopy=off,xino=off"
	if err := unix.Mount("overlay", at, "overlay", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return fmt.Errorf("mount layers below %s: %w", at, err)
	}
	return private(at)
}

// freeze makes an overlay read-only wherever it is mounted. It fails if a file stays open for writing: a
// process that ended a moment ago may still be closing its files.
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
func (s *Store) show(from, to string) error {
	return s.everywhere(func(in *proc.Place) error {
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
func (s *Store) hide(path string) error {
	return s.everywhere(func(in *proc.Place) error {
		return in.Do(func() error { return drop(path) })
	})
}

// drop unmounts the uppermost mount.
func drop(path string) error {
	err := unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	if errors.Is(err, unix.EINVAL) {
		return nil // nothing is mounted there
	}
	return err
}

func (s *Store) everywhere(do func(*proc.Place) error) error {
	if err := do(nil); err != nil || s.cfg.User == nil || s.cfg.User.Place == nil {
		return err
	}
	return do(s.cfg.User.Place)
}

// layAll mounts all places, each on the image's own directory.
func (s *Store) layAll() error {
	for _, p := range s.cfg.Places {
		if _, err := os.Lstat(p.Path); errors.Is(err, os.ErrNotExist) {
			continue // a user's own image may lack it
		}
		if err := bind(p.Path, s.at("image", p.Name), true); err != nil {
			return err
		}
		for _, a := range p.Apart {
			if err := bind(filepath.Join(p.Path, a), s.at("apart", p.Name, a), false); err != nil {
				return err
			}
		}
		l := &laid{Place: p}
		if s.has(p) {
			l.layers = append([]string{s.under.ID}, s.under.Layers[p.Name]...)
		}
		s.laid = append(s.laid, l)
		if err := s.lay(l); err != nil {
			return err
		}
	}
	return nil
}

// has reports whether a place starts with the content of the snapshot below.
func (s *Store) has(p Place) bool {
	switch {
	case s.under == nil:
		return false
	case p.Scratch:
		_, same := s.Fits()
		return same || s.fits && s.want.Installs
	}
	return s.fits || !p.Whole
}

// lay mounts a place's layers with a new upper directory over the existing one.
func (s *Store) lay(l *laid) error {
	l.upper = s.name(l)
	at, run := s.at("mounts", l.upper), s.at("run", l.upper)
	if err := overlay(at, run, l.Path, s.layers(l)); err != nil {
		return err
	}
	for _, a := range l.Apart {
		if err := makeLike(filepath.Join(l.Path, a), filepath.Join(at, a)); err != nil {
			return err
		}
		if err := bind(s.at("apart", l.Name, a), filepath.Join(at, a), false); err != nil {
			return err
		}
	}
	return s.showAll(at, l)
}

// name returns the name of a new upper directory.
func (s *Store) name(l *laid) string {
	s.uppers++
	return l.Name + "-" + strconv.Itoa(s.uppers)
}

func (s *Store) showAll(at string, l *laid) error {
	l.shown = true
	if err := s.show(at, l.Path); err != nil {
		return err
	}
	for _, a := range l.Apart { // a clone has no mounts below it
		if err := s.show(filepath.Join(at, a), filepath.Join(l.Path, a)); err != nil {
			return err
		}
	}
	return nil
}

// layers returns the directories below a place, without snapshots that have none for it.
func (s *Store) layers(l *laid) (dirs []string) {
	if l.set != "" {
		dirs = append(dirs, s.at("run", l.set, "upper"))
	}
	for _, id := range l.layers {
		dir := s.at("kept", id, l.Name)
		if _, err := os.Lstat(dir); err == nil {
			dirs = append(dirs, dir)
		}
	}
	if l.Whole {
		empty := s.at("run", "empty")
		_ = os.MkdirAll(empty, 0o755) // the mount reports an error
		return append(dirs, empty)
	}
	return append(dirs, s.at("image", l.Name))
}

// takeAway restores the original mounts of the places.
func (s *Store) takeAway() (err error) {
	for _, l := range s.laid {
		if l.shown {
			err = errors.Join(err, s.hide(l.Path))
		}
	}
	s.laid = nil
	return err
}

// at returns a path below root's directory, where the mounts are.
func (s *Store) at(p ...string) string { return filepath.Join(append([]string{s.cfg.Dir}, p...)...) }

// makeLike creates a directory with owner and mode of another.
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
