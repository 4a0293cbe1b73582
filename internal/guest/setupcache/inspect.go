package setupcache

import (
	"cmp"
	"context"
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
	"github.com/sandbox-agent/sandbox-agent/internal/safeopen"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
)

const (
	// maxKept bounds the entries of a snapshot: more cannot be examined in an acceptable time.
	maxKept = 2_000_000
	// lookTime bounds the search for secrets, which reads some 200 MB in a second.
	lookTime = 2 * time.Minute
)

// CheckQuiet refuses while processes that setup left are running: they could continue to write, or hold the old
// directories open. Containers that bind a directory would keep the old one, too.
func (s *Store) CheckQuiet(ctx context.Context) error {
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
	// lingering bounds the wait for processes that setup left: some end by themselves after a fraction of a second.
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

// inspector decides whether the files of the mounted directories may be stored.
type inspector struct {
	mounts *mounts
	cfg    *Config
}

// check refuses to store secrets, more than can be examined, and anything if the disk is nearly full.
func (i inspector) check(ctx context.Context, from []written) error {
	var st unix.Statfs_t
	if err := unix.Statfs(i.mounts.path("run"), &st); err != nil {
		return fmt.Errorf("read the free disk space: %w", err)
	}
	if st.Bavail*uint64(st.Bsize) < lowDisk {
		return fmt.Errorf("the disk has %d MiB free, %d are required", st.Bavail*uint64(st.Bsize)>>20, lowDisk>>20)
	}
	for _, l := range from {
		if err := errors.Join(i.complete(l), i.plain(l)); err != nil {
			return err
		}
	}
	if i.cfg.Secret == nil {
		return nil
	}
	if len(i.cfg.Unseen) > 0 {
		return fmt.Errorf("secrets are too short to be searched for: %s", strings.Join(i.cfg.Unseen, ", "))
	}
	ctx, cancel := context.WithTimeoutCause(ctx, lookTime, fmt.Errorf("the search for secrets takes more than %s", lookTime))
	defer cancel()
	entries := 0
	for _, l := range from {
		top := i.mounts.path("run", l.name, "upper")
		err := safeopen.Walk(top, func(path string, info fs.FileInfo, err error) error {
			err = cmp.Or(err, context.Cause(ctx))
			if entries++; err == nil && entries > maxKept {
				err = fmt.Errorf("it has more than %d files", maxKept)
			}
			if err != nil {
				return err
			}
			return i.clean(ctx, l.mountedDir, strings.TrimPrefix(path, top+"/"), path, info)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// complete refuses a work tree with files whose repository is separate, within the work tree's own, which no
// snapshot has: without it a submodule looks damaged.
func (i inspector) complete(l written) error {
	for _, a := range l.Apart {
		root, err := os.OpenRoot(filepath.Join(l.apart, a))
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
func (i inspector) plain(l written) error {
	for _, o := range l.Own {
		info, err := os.Lstat(filepath.Join(i.mounts.path("run", l.name, "upper"), o))
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
func (i inspector) clean(ctx context.Context, l *mountedDir, name, path string, info fs.FileInfo) error {
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
		in = io.MultiReader(in, strings.NewReader("\n"), &ctxReader{ctx, f})
	}
	switch found, err := i.cfg.Secret(in); {
	case err != nil:
		return fmt.Errorf("search for secrets in %s: %w", name, err)
	case found:
		return fmt.Errorf("setup wrote a secret to %s", name)
	}
	return nil
}

// attributes returns the extended attributes of a file, into which tools write addresses and users.
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

// ctxReader ends reading with a context: a file may be sparse and of any size.
type ctxReader struct {
	ctx context.Context
	in  io.Reader
}

func (u *ctxReader) Read(p []byte) (int, error) {
	if u.ctx.Err() != nil {
		return 0, context.Cause(u.ctx)
	}
	return u.in.Read(p)
}
