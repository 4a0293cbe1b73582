package dockerd

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gofrs/flock"

	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
)

const (
	lockFile = ".sandbox-agent.lock"
	trashDir = ".sandbox-agent.trash"
	// minFree is the least space with which the engine's own databases are reliable.
	minFree = 64 << 20
	lowFree = 2 << 30
)

var errInUse = errors.New("in use by another engine")

// lockRoot locks the data root until the returned lock is closed. dockerd has no such lock: a second daemon on one data
// root hangs or destroys the layers.
func lockRoot(root string) (*flock.Flock, error) {
	if err := os.MkdirAll(root, 0o711); err != nil {
		return nil, fmt.Errorf("create data root: %w", err)
	}
	f := flock.New(filepath.Join(root, lockFile), flock.SetFlag(os.O_CREATE|os.O_RDWR), flock.SetPermissions(0o600))
	locked, err := f.TryLock()
	switch {
	case err != nil:
		return nil, fmt.Errorf("lock data root: %w", err)
	case !locked:
		return nil, fmt.Errorf("data root %s is %w: give this sandbox a separate volume", root, errInUse)
	}
	return f, nil
}

// checkSpace rejects a full disk and reports a nearly full one.
func checkSpace(root string) (note string, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(root, &st); err != nil {
		return "", fmt.Errorf("read the free space of %s: %w", root, err)
	}
	free := st.Bavail * uint64(st.Bsize)
	switch {
	case free < minFree:
		return "", fmt.Errorf(
			"%s has %d MiB free, the inner engine needs at least %d: free space on the host's Docker disk", root, free>>20, minFree>>20,
		)
	case free < lowFree:
		return fmt.Sprintf("%s has only %d MiB free", root, free>>20), nil
	}
	return "", nil
}

// remapped matches the data root that userns-remap puts inside the data root.
var remapped = lazyregexp.New(`^[0-9]+\.[0-9]+$`)

// scrub removes all state of earlier runs except image layers: containers, networks, volumes with another task's data,
// half-loaded layers. With keep it removes only leftovers of a killed daemon. The caller holds the lock. scrub moves
// the state aside; the returned function deletes it and may run later.
func scrub(root string, keep bool) (empty func() error, err error) {
	trash := filepath.Join(root, trashDir)
	empty = func() error { return removeAll(trash) }
	roots := []string{root}
	entries, err := os.ReadDir(root)
	if err != nil {
		return empty, fmt.Errorf("scrub data root: %w", err)
	}
	for _, e := range entries {
		if e.IsDir() && remapped.MatchString(e.Name()) {
			roots = append(roots, filepath.Join(root, e.Name()))
		}
	}
	if err := os.MkdirAll(trash, 0o700); err != nil {
		return empty, fmt.Errorf("scrub data root: %w", err)
	}
	s := scrubber{trash: trash}
	for _, r := range roots {
		s.state(r, keep)
		if keep {
			continue
		}
		drivers, _ := filepath.Glob(filepath.Join(r, "image", "*", "layerdb"))
		for _, db := range drivers {
			s.layers(r, filepath.Base(filepath.Dir(db)), db)
		}
	}
	if s.err != nil {
		return empty, fmt.Errorf("scrub data root: %w", s.err)
	}
	return empty, nil
}

type scrubber struct {
	trash string
	err   error
}

// drop moves p aside. It ignores a missing p.
func (s *scrubber) drop(p string) {
	// The name is new: an earlier trash may still have entries that could not be deleted.
	err := os.Rename(p, filepath.Join(s.trash, rand.Text()))
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err != nil {
		err = removeAll(p) // a mount point, which cannot be moved
	}
	s.err = errors.Join(s.err, err)
}

// removeAll deletes a directory with mounts in it, which may disappear later than the engine.
func removeAll(p string) error {
	err := os.RemoveAll(p)
	if !errors.Is(err, unix.EBUSY) {
		return err
	}
	mounts, merr := realSystem("").mounts()
	if merr != nil {
		return errors.Join(err, merr)
	}
	for _, m := range slices.Backward(mounts) { // the innermost first
		if m.Mountpoint != p && !strings.HasPrefix(m.Mountpoint, p+"/") {
			continue
		}
		// it may have disappeared by itself
		if uerr := unix.Unmount(m.Mountpoint, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); uerr != nil && !errors.Is(uerr, unix.EINVAL) {
			return errors.Join(err, fmt.Errorf("unmount %s: %w", m.Mountpoint, uerr))
		}
	}
	return os.RemoveAll(p)
}

func (s *scrubber) state(root string, keep bool) {
	left := []string{"swarm", "runtimes", "plugins/tmp", "tmp", "containerd"}
	if !keep {
		left = append(left, "network", "containers", "volumes")
	}
	for _, p := range left {
		s.drop(filepath.Join(root, p))
	}
	trials, _ := filepath.Glob(filepath.Join(root, trialPrefix+"*"))
	for _, p := range trials {
		s.drop(p)
	}
}

// layers drops every layer directory that no complete image layer refers to.
func (s *scrubber) layers(root, driver, db string) {
	s.drop(filepath.Join(db, "mounts"))
	s.drop(filepath.Join(db, "tmp"))
	keep := map[string]bool{"l": true}
	ids, err := filepath.Glob(filepath.Join(db, "*", "*", "cache-id"))
	s.err = errors.Join(s.err, err)
	for _, f := range ids {
		b, err := os.ReadFile(f)
		if err != nil {
			s.err = errors.Join(s.err, err)
			return // an unreadable record must not cost a layer
		}
		keep[strings.TrimSpace(string(b))] = true
	}
	home := filepath.Join(root, driver)
	if driver == VFS {
		home = filepath.Join(home, "dir")
	}
	layers, err := os.ReadDir(home)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.err = errors.Join(s.err, err)
	}
	for _, l := range layers {
		if !keep[l.Name()] {
			s.drop(filepath.Join(home, l.Name()))
		}
	}
	links, _ := os.ReadDir(filepath.Join(home, "l"))
	for _, l := range links {
		p := filepath.Join(home, "l", l.Name())
		if _, err := os.Stat(p); errors.Is(err, fs.ErrNotExist) {
			s.err = errors.Join(s.err, os.Remove(p))
		}
	}
}
