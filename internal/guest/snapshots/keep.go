package snapshots

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/internal/untrusted"
)

const (
	// maxIndex bounds git's index, in bytes: one of a million files has some 100 MiB. It is read into memory,
	// here and in each later box.
	maxIndex = 128 << 20
	// maxKept bounds the entries of a snapshot: more cannot be examined in an acceptable time.
	maxKept = 2_000_000
	// lookTime bounds the search for secrets: some 200 MB are read in a second, and a larger result of setup is
	// rarely worth the wait.
	lookTime = 2 * time.Minute
)

// Keep makes a snapshot of the current content of the places (of temporary files: the content before
// SetAside), and mounts new private directories of the box above it. Call it after setup, before any code
// that must not write to it. whole means that setup changed nothing outside the places. why is the reason if
// nothing was stored. After an error the places are unusable.
func (s *Store) Keep(ctx context.Context, whole bool) (why error, err error) {
	kept := s.laid
	if len(kept) == 0 || s.fits {
		return nil, nil
	}
	if why := errors.Join(s.Quiet(ctx), s.nothingBeside(ctx)); why != nil {
		return why, nil
	}
	whole = whole && s.settled()
	for i, l := range kept {
		if why := freeze(ctx, s.at("mounts", l.upper)); why != nil {
			return why, s.thaw(kept[:i])
		}
	}
	if why := s.fit(ctx); why != nil {
		return why, s.thaw(kept)
	}
	m, why := s.put(whole)
	if why != nil {
		return why, s.thaw(kept)
	}
	s.under, s.fits = m, true
	for _, l := range kept {
		l.layers = append([]string{m.ID}, l.layers...)
		l.set = ""
		old := l.upper
		if err := s.renew(l); err != nil {
			return nil, err
		}
		if err := s.carry(l, old); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// renew mounts a place with a new directory above its layers.
func (s *Store) renew(l *laid) error {
	err := errors.Join(s.hide(l.Path), drop(s.at("mounts", l.upper)))
	if err == nil {
		err = s.lay(l)
	}
	if err != nil {
		return fmt.Errorf("mount %s again: %w", l.Path, err)
	}
	return nil
}

// SetAside separates later writes to the places of temporary files from those of setup. Called again, it
// removes the later ones.
func (s *Store) SetAside() error {
	for _, l := range s.laid {
		if !l.Scratch {
			continue
		}
		if l.set == "" {
			l.set = l.upper
		}
		if err := s.renew(l); err != nil {
			return err
		}
	}
	return nil
}

// ClearScratch resets the places of temporary files to the image's content, for a setup that runs once more.
func (s *Store) ClearScratch() error {
	for _, l := range s.laid {
		if !l.Scratch {
			continue
		}
		l.layers, l.set = nil, ""
		if err := s.renew(l); err != nil {
			return err
		}
	}
	return nil
}

// Empty resets the places as if nothing were stored: a work tree without files, and the image's home. The box
// stores nothing from then on.
func (s *Store) Empty() error {
	s.under, s.fits, s.emptied = nil, false, true
	for _, l := range s.laid {
		l.layers, l.set = nil, ""
		if err := s.renew(l); err != nil {
			return err
		}
	}
	return nil
}

// Quiet refuses while processes that setup left are running: they could continue to write, or hold the old
// directories open. Containers that bind a directory would keep the old one, too.
func (s *Store) Quiet(ctx context.Context) error {
	if s.cfg.User != nil {
		if err := ended(ctx, s.cfg.User.UID); err != nil {
			return err
		}
	}
	if s.cfg.Binding == nil {
		return nil
	}
	n, err := s.cfg.Binding(ctx)
	if err == nil && n > 0 {
		err = fmt.Errorf("setup left %d containers that bind directories of the sandbox", n)
	}
	return err
}

const (
	// lingering bounds the wait for processes that setup left. Tools leave some that end by themselves: one of
	// `go mod download` that counts its use lives for a fraction of a second, and slow machines are several
	// times slower.
	lingering = 5 * time.Second
	// lookAgain is the interval of checks for them.
	lookAgain = 50 * time.Millisecond
)

// ended waits for a user's processes to end, and names a remaining one.
func ended(ctx context.Context, uid uint32) error {
	for by := time.Now().Add(lingering); ; {
		left := proc.OfUser(uid)
		switch {
		case len(left) == 0:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case time.Now().After(by):
			return fmt.Errorf(
				"setup left %d processes, which were still running after %s, among them %d: %s", len(left), lingering, left[0], command(left[0]),
			)
		}
		time.Sleep(lookAgain)
	}
}

// command returns the command line of a process.
func command(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if line := strings.TrimSpace(strings.ReplaceAll(string(b), "\x00", " ")); err == nil && line != "" {
		return text.Name(line, maxName)
	}
	b, _ = os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)) // it has ended: use its name
	return text.Name(strings.TrimSpace(string(b)), maxName)
}

// thaw makes the places writable again.
func (s *Store) thaw(all []*laid) error {
	for _, l := range all {
		if err := thaw(s.at("mounts", l.upper)); err != nil {
			return err
		}
	}
	return nil
}

// wrote returns the name of the directory with setup's writes to a place.
func (l *laid) wrote() string { return cmp.Or(l.set, l.upper) }

// upper returns that directory relative to the root of the volume's directory.
func (s *Store) upper(l *laid) string { return filepath.Join("runs", s.cfg.ID, l.wrote(), "upper") }

// fit refuses to store secrets, more than can be examined, and anything if the disk is nearly full.
func (s *Store) fit(ctx context.Context) error {
	var st unix.Statfs_t
	if err := unix.Statfs(s.at("run"), &st); err != nil {
		return fmt.Errorf("read the free disk space: %w", err)
	}
	if st.Bavail*uint64(st.Bsize) < lowDisk {
		return fmt.Errorf("the disk has %d MiB free, %d are required", st.Bavail*uint64(st.Bsize)>>20, lowDisk>>20)
	}
	for _, l := range s.laid {
		if err := errors.Join(s.complete(l), s.plain(l)); err != nil {
			return err
		}
	}
	if s.cfg.Secret == nil {
		return nil
	}
	if len(s.cfg.Unseen) > 0 {
		return fmt.Errorf("secrets are too short to be searched for: %s", strings.Join(s.cfg.Unseen, ", "))
	}
	ctx, cancel := context.WithTimeoutCause(ctx, lookTime, fmt.Errorf("the search for secrets takes more than %s", lookTime))
	defer cancel()
	entries := 0
	for _, l := range s.laid {
		top := s.at("run", l.wrote(), "upper")
		err := untrusted.Walk(top, func(path string, info fs.FileInfo, err error) error {
			if err == nil {
				err = context.Cause(ctx)
			}
			if entries++; err == nil && entries > maxKept {
				err = fmt.Errorf("it has more than %d files", maxKept)
			}
			if err != nil {
				return err
			}
			return s.clean(ctx, l, strings.TrimPrefix(path, top+"/"), path, info)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// complete refuses a work tree with files whose repository is separate, within the work tree's own, which no
// snapshot has: without it a submodule looks damaged.
func (s *Store) complete(l *laid) error {
	for _, a := range l.Apart {
		root, err := os.OpenRoot(s.at("apart", l.Name, a))
		if err != nil {
			return err
		}
		var found error
		for name, what := range map[string]string{"modules": "a submodule", "worktrees": "another work tree of the repository"} {
			if _, err := root.Lstat(name); err == nil {
				found = fmt.Errorf("setup made %s", what)
			}
		}
		if err := errors.Join(found, root.Close()); err != nil {
			return err
		}
	}
	return nil
}

// plain refuses if one of the box's own files cannot be carried to another directory.
func (s *Store) plain(l *laid) error {
	for _, o := range l.Own {
		info, err := os.Lstat(filepath.Join(s.at("run", l.wrote(), "upper"), o))
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return err
		case !info.Mode().IsRegular() || info.Size() > maxOwn:
			return fmt.Errorf("setup replaced %s, which must be a small file", o)
		}
	}
	return nil
}

// clean refuses an entry with a secret in its name, its content, its target or its attributes.
func (s *Store) clean(ctx context.Context, l *laid, name, path string, info fs.FileInfo) error {
	texts, err := attributes(path)
	if err != nil {
		return fmt.Errorf("search for secrets in the attributes of %s: %w", name, err)
	}
	texts = append(texts, name)
	if info.Mode()&fs.ModeSymlink != 0 {
		target, err := os.Readlink(path)
		if err != nil {
			return err
		}
		texts = append(texts, target)
	}
	var in io.Reader = strings.NewReader(strings.Join(texts, "\n"))
	if info.Mode().IsRegular() && info.Size() > 0 && !slices.Contains(l.Own, name) {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		in = io.MultiReader(in, strings.NewReader("\n"), &until{ctx, f})
	}
	switch found, err := s.cfg.Secret(in); {
	case err != nil:
		return fmt.Errorf("search for secrets in %s: %w", name, err)
	case found:
		return fmt.Errorf("setup wrote a secret to %s", name)
	}
	return nil
}

// attributes returns the extended attributes of a file, into which tools write addresses and users. A link
// has none that a user may write.
func attributes(path string) (texts []string, err error) {
	names := make([]byte, 64<<10) // the kernel's limits of a list, and of a value
	n, err := unix.Llistxattr(path, names)
	if errors.Is(err, unix.ENOTSUP) {
		return nil, nil
	}
	if err != nil || n == 0 {
		return nil, err
	}
	value := make([]byte, 64<<10)
	for name := range strings.SplitSeq(strings.TrimSuffix(string(names[:n]), "\x00"), "\x00") {
		n, err := unix.Lgetxattr(path, name, value)
		if err != nil && !errors.Is(err, unix.ENODATA) {
			return nil, err
		}
		texts = append(texts, name, string(value[:max(n, 0)]))
	}
	return texts, nil
}

// until ends reading with a context: a file may be sparse and of any size.
type until struct {
	ctx context.Context
	in  io.Reader
}

func (u *until) Read(p []byte) (int, error) {
	if u.ctx.Err() != nil {
		return 0, context.Cause(u.ctx)
	}
	return u.in.Read(p)
}

// put moves the places' own directories to the snapshots. The description is written last: without it there
// is no snapshot.
func (s *Store) put(whole bool) (m *Meta, err error) {
	id := strings.ToLower(rand.Text()[:12])
	dir := filepath.Join("kept", s.project, id)
	m = &Meta{
		ID: id, Key: s.want.Key, Tree: s.want.Tree, Layers: map[string][]string{}, Whole: whole, Made: time.Now().UTC(), Project: s.want.Project,
	}
	if err := s.root.Mkdir(dir, 0o700); err != nil {
		return nil, fmt.Errorf("store the files of setup: %w", err)
	}
	var moved []*laid
	err = func() error {
		for _, l := range s.laid {
			if err := s.index(l, dir); err != nil {
				return err
			}
			used, err := s.usedScratch(l)
			if err != nil {
				return err
			}
			m.Scratch = m.Scratch || used
			if err := s.root.Rename(s.upper(l), filepath.Join(dir, l.Name)); err != nil {
				return err
			}
			moved = append(moved, l)
			m.Layers[l.Name] = l.layers
			if err := s.apart(l, filepath.Join(dir, l.Name)); err != nil {
				return err
			}
		}
		if len(s.attach) > 0 {
			if err := s.root.WriteFile(filepath.Join(dir, attachFile), s.attach, 0o600); err != nil {
				return err
			}
		}
		b, err := json.Marshal(m)
		if err != nil {
			return err
		}
		if err := s.root.WriteFile(filepath.Join(dir, ".new"), b, 0o600); err != nil {
			return err
		}
		return s.root.Rename(filepath.Join(dir, ".new"), filepath.Join(dir, metaFile))
	}()
	if err != nil {
		for _, l := range moved {
			err = errors.Join(err, s.root.Rename(filepath.Join(dir, l.Name), s.upper(l)))
		}
		return nil, fmt.Errorf("store the files of setup: %w", err)
	}
	return m, nil
}

// usedScratch reports whether setup has written to a scratch directory.
func (s *Store) usedScratch(l *laid) (bool, error) {
	if !l.Scratch {
		return false, nil
	}
	entries, err := os.ReadDir(s.at("run", l.wrote(), "upper"))
	return len(entries) > 0, err
}

// apart removes the box's own files from a snapshot.
func (s *Store) apart(l *laid, dir string) error {
	for _, a := range l.Apart { // contains only a mount point
		if err := s.root.Remove(filepath.Join(dir, a)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	for _, o := range l.Own {
		if err := s.root.Rename(filepath.Join(dir, o), filepath.Join("runs", s.cfg.ID, l.upper, o)); err != nil &&
			!errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// carry copies the box's own files to its new directory.
func (s *Store) carry(l *laid, from string) error {
	for _, o := range l.Own {
		err := copyOwn(filepath.Join(s.at("run", from), o), filepath.Join(s.at("mounts", l.upper), o))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("copy %s to %s: %w", o, l.Path, err)
		}
	}
	return nil
}

// maxOwn bounds one of the box's own files, in bytes: it has some variables.
const maxOwn = 1 << 20

// copyOwn copies a small file with its owner and mode.
func copyOwn(from, to string) error {
	root, err := os.OpenRoot(filepath.Dir(from))
	if err != nil {
		return err
	}
	defer root.Close()
	b, err := untrusted.Read(root, filepath.Base(from), nil, maxOwn)
	if err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Lstat(from, &st); err != nil {
		return err
	}
	f, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	return errors.Join(err, f.Chown(int(st.Uid), int(st.Gid)), f.Chmod(os.FileMode(st.Mode&0o777)), f.Close())
}

// index stores git's index of a work tree, which is separate.
func (s *Store) index(l *laid, dir string) error {
	for _, a := range l.Apart {
		root, err := os.OpenRoot(s.at("apart", l.Name, a))
		if err != nil {
			return err
		}
		b, err := untrusted.Read(root, indexFile, nil, maxIndex)
		if cerr := root.Close(); err == nil {
			err = cerr
		}
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if err := s.root.WriteFile(filepath.Join(dir, indexFile), b, 0o600); err != nil {
			return err
		}
	}
	return nil
}
