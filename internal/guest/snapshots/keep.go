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
	// maxIndex bounds git's index, in bytes: one of a million files has some 100 MiB. It is read into memory, here and in each later box.
	maxIndex = 128 << 20
	// maxKept bounds the entries of a snapshot: more cannot be looked through in a time that a run can spend.
	maxKept = 2_000_000
	// lookTime bounds the look for secrets: some 200 MB are read in a second, and a setup that leaves more than that is rarely worth the wait.
	lookTime = 2 * time.Minute
)

// Keep makes a snapshot of what the places have now (of temporary files, what they had before SetAside), and lays new folders of the box's own above
// it. Call it after setup, before any
// code that must not write to it. Whole says that setup did nothing beside the places. It returns why nothing was kept. An error
// means that the places cannot be used any more.
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

// renew lays a place with a new folder above its layers.
func (s *Store) renew(l *laid) error {
	err := errors.Join(s.hide(l.Path), drop(s.at("mounts", l.upper)))
	if err == nil {
		err = s.lay(l)
	}
	if err != nil {
		return fmt.Errorf("lay %s anew: %w", l.Path, err)
	}
	return nil
}

// SetAside takes what is written to the places of temporary files from now on apart from what setup wrote there. Called again, it removes that.
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

// ClearScratch makes the places of temporary files what they are in the image, for setup that runs once more.
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

// Empty lays the places as if nothing were kept: a work tree without files, and the image's home. The box keeps nothing from then on.
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

// Quiet refuses while processes run that setup left: they could go on writing, or have the old folders open.
// Containers that bind a folder would have the old one, too.
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
		err = fmt.Errorf("setup left %d containers that bind folders of the sandbox", n)
	}
	return err
}

const (
	// lingering bounds the wait for processes that setup left. Tools leave some that end by themselves: one of `go mod download` that counts its
	// use lives for part of a second, and slow machines are several times slower.
	lingering = 5 * time.Second
	// lookAgain is the time between two looks at them.
	lookAgain = 50 * time.Millisecond
)

// ended waits for a user's processes to end, and names one that stays.
func ended(ctx context.Context, uid uint32) error {
	for by := time.Now().Add(lingering); ; {
		left := proc.OfUser(uid)
		switch {
		case len(left) == 0:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case time.Now().After(by):
			return fmt.Errorf("setup left %d processes, which still ran after %s, among them %d: %s", len(left), lingering, left[0], command(left[0]))
		}
		time.Sleep(lookAgain)
	}
}

// command is the command line of a process.
func command(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if line := strings.TrimSpace(strings.ReplaceAll(string(b), "\x00", " ")); err == nil && line != "" {
		return text.Name(line, maxName)
	}
	b, _ = os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)) // it has ended: its name is enough
	return text.Name(strings.TrimSpace(string(b)), maxName)
}

// thaw lets the box write again.
func (s *Store) thaw(all []*laid) error {
	for _, l := range all {
		if err := thaw(s.at("mounts", l.upper)); err != nil {
			return err
		}
	}
	return nil
}

// wrote is the name of the folder that has what setup wrote to a place.
func (l *laid) wrote() string { return cmp.Or(l.set, l.upper) }

// upper is that folder as the root of the volume's folder knows it.
func (s *Store) upper(l *laid) string { return filepath.Join("runs", s.cfg.ID, l.wrote(), "upper") }

// fit refuses what must not be kept: secrets, more than can be looked at, and all of it when the disk is nearly full.
func (s *Store) fit(ctx context.Context) error {
	var st unix.Statfs_t
	if err := unix.Statfs(s.at("run"), &st); err != nil {
		return fmt.Errorf("see what is free on the disk: %w", err)
	}
	if st.Bavail*uint64(st.Bsize) < lowDisk {
		return fmt.Errorf("the disk has %d MiB free, %d are wanted", st.Bavail*uint64(st.Bsize)>>20, lowDisk>>20)
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
		return fmt.Errorf("secrets are too short to be looked for: %s", strings.Join(s.cfg.Unseen, ", "))
	}
	ctx, cancel := context.WithTimeoutCause(ctx, lookTime, fmt.Errorf("to look for secrets in all of it takes more than %s", lookTime))
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

// complete refuses a work tree with files whose repository lies apart, in the work tree's own, which no snapshot has: without it a
// submodule is taken for a damaged one.
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

// plain refuses where a file of the box's own is none that can be carried to another folder.
func (s *Store) plain(l *laid) error {
	for _, o := range l.Own {
		info, err := os.Lstat(filepath.Join(s.at("run", l.wrote(), "upper"), o))
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return err
		case !info.Mode().IsRegular() || info.Size() > maxOwn:
			return fmt.Errorf("setup made %s something else than a small file", o)
		}
	}
	return nil
}

// clean refuses an entry with a secret in its name, its content, its target or its attributes.
func (s *Store) clean(ctx context.Context, l *laid, name, path string, info fs.FileInfo) error {
	texts, err := attributes(path)
	if err != nil {
		return fmt.Errorf("look for secrets in the attributes of %s: %w", name, err)
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
		return fmt.Errorf("look for secrets in %s: %w", name, err)
	case found:
		return fmt.Errorf("setup wrote a secret to %s", name)
	}
	return nil
}

// attributes are the extended ones of a file, which tools write addresses and users into. A link has none of its own that a user may write.
func attributes(path string) (texts []string, err error) {
	names := make([]byte, 64<<10) // the kernel's bound of a list, and of a value
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

// put moves the places' own folders to where snapshots are. The description is written last: without it there is no snapshot.
func (s *Store) put(whole bool) (m *Meta, err error) {
	id := strings.ToLower(rand.Text()[:12])
	dir := filepath.Join("kept", s.project, id)
	m = &Meta{ID: id, Key: s.want.Key, Tree: s.want.Tree, Layers: map[string][]string{}, Whole: whole, Made: time.Now().UTC(), Project: s.want.Project}
	if err := s.root.Mkdir(dir, 0o700); err != nil {
		return nil, fmt.Errorf("keep what setup left: %w", err)
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
		return nil, fmt.Errorf("keep what setup left: %w", err)
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

// apart takes from a snapshot what is the box's own.
func (s *Store) apart(l *laid, dir string) error {
	for _, a := range l.Apart { // only a mount point is there
		if err := s.root.Remove(filepath.Join(dir, a)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	for _, o := range l.Own {
		if err := s.root.Rename(filepath.Join(dir, o), filepath.Join("runs", s.cfg.ID, l.upper, o)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// carry brings the box's own files to where it works now.
func (s *Store) carry(l *laid, from string) error {
	for _, o := range l.Own {
		err := copyOwn(filepath.Join(s.at("run", from), o), filepath.Join(s.at("mounts", l.upper), o))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("bring %s to %s: %w", o, l.Path, err)
		}
	}
	return nil
}

// maxOwn bounds a file of the box's own, in bytes: it has some variables.
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

// index keeps git's index of a work tree, which lies apart.
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
