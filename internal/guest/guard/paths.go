package guard

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// dockerSockets are the paths at which containers look for the engine; what is
// behind them in the box is the guard.
var dockerSockets = []string{"/var/run/docker.sock", "/run/docker.sock"}

// newDirMode is that of folders which the engine makes for binds.
const newDirMode = 0o755

// bind judges the source of a bind and returns the path that is forwarded: without
// links as long as nobody puts one there later, which only costs the client its own
// bind (see archive.go for where it would not).
func (j *judge) bind(source string, create bool) (string, error) {
	if !strings.HasPrefix(source, "/") {
		return "", refuse(ruleBind, "the source %q is not an absolute path", source)
	}
	clean := path.Clean(source)
	if clean == j.g.cfg.Socket || slices.Contains(dockerSockets, clean) {
		return clean, nil
	}
	target, missing, err := resolve(clean)
	if err != nil {
		return "", refuse(ruleBind, "the source %q cannot be followed (%v)", source, err)
	}
	for _, root := range j.g.cfg.Binds {
		root, err := filepath.EvalSymlinks(root)
		if err != nil || !within(root, target) {
			continue
		}
		if missing && create {
			j.later = append(j.later, func() error { return j.g.makeDir(root, target, j.peer) })
		}
		return target, nil
	}
	return "", refuse(ruleBind, "%q cannot be bound into a container", source)
}

// resolve follows the links of a clean absolute path; what does not exist yet is
// kept below its deepest parent that does.
func resolve(p string) (target string, missing bool, err error) {
	rest := ""
	for at := p; ; at = path.Dir(at) {
		target, err := filepath.EvalSymlinks(at)
		if err == nil {
			return path.Join(target, rest), rest != "", nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", false, err
		}
		if _, lerr := os.Lstat(at); lerr == nil {
			return "", false, fmt.Errorf("%s is a link to nothing", at)
		}
		rest = path.Join(path.Base(at), rest)
	}
}

func within(root, p string) bool {
	return p == root || strings.HasPrefix(p, strings.TrimSuffix(root, "/")+"/")
}

// makeDirAs makes a missing folder below root with the rights of the client, as
// which it then belongs to it, and without following a link.
func makeDirAs(root, dir string, who peer) error {
	done := make(chan error, 1)
	go func() {
		// The thread is given up: its identity is not that of the process any more.
		runtime.LockOSThread()
		done <- func() error {
			if err := become(who); err != nil {
				return err
			}
			return mkdirBelow(root, strings.TrimPrefix(dir, strings.TrimSuffix(root, "/")+"/"))
		}()
	}()
	if err := <-done; err != nil {
		return refuse(ruleBind, "%q does not exist and cannot be made (%v)", dir, err)
	}
	return nil
}

// become gives this thread the client's identity for files.
func become(who peer) error {
	if who.uid == 0 && who.gid == 0 {
		return nil
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETGROUPS, 0, 0, 0); e != 0 {
		return fmt.Errorf("drop groups: %w", e)
	}
	if err := unix.Setfsgid(int(who.gid)); err != nil {
		return fmt.Errorf("become group %d: %w", who.gid, err)
	}
	if err := unix.Setfsuid(int(who.uid)); err != nil {
		return fmt.Errorf("become user %d: %w", who.uid, err)
	}
	return nil
}

func mkdirBelow(root, rel string) error {
	at, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(at) }()
	for name := range strings.SplitSeq(rel, "/") {
		if err := unix.Mkdirat(at, name, newDirMode); err != nil && !errors.Is(err, unix.EEXIST) {
			return err
		}
		next, err := unix.Openat(at, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
		if err != nil {
			return err
		}
		_ = unix.Close(at)
		at = next
	}
	return nil
}

// steady reports whether the client cannot replace what is at the path: it is one of
// the folders for binds, all of its parents are root's alone, and it is not root's
// itself, so that it holds nothing that the client could not read.
func (g *Guard) steady(p string) bool {
	if p == g.cfg.Socket || slices.Contains(dockerSockets, p) {
		return true
	}
	if !slices.ContainsFunc(g.cfg.Binds, func(b string) bool { return path.Clean(b) == p }) {
		return false
	}
	for at := p; ; at = path.Dir(at) {
		fi, err := os.Lstat(at)
		if err != nil || !fi.IsDir() {
			return false
		}
		st, ok := fi.Sys().(*syscall.Stat_t)
		if !ok || (st.Uid == 0) != (at != p) || at != p && fi.Mode().Perm()&0o022 != 0 {
			return false
		}
		if at == "/" {
			return true
		}
	}
}
