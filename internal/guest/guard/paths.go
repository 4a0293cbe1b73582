package guard

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// dockerSockets are the paths at which containers look for the engine; in
// the box they lead to the guard.
var dockerSockets = []string{"/var/run/docker.sock", "/run/docker.sock"}

// newDirMode is the mode of directories that the engine creates for binds.
const newDirMode = 0o755

// bind checks the source of a bind and returns the path to forward: a mount
// point (see points), or the Docker socket, whose path is root's.
func (j *judge) bind(b bound) (string, error) {
	if !strings.HasPrefix(b.source, "/") {
		return "", refuse(ruleBind, "the source %q is not an absolute path", b.source)
	}
	b.source = path.Clean(b.source)
	if j.g.isSocket(b.source) {
		return b.source, nil
	}
	if _, err := j.g.find(b.source); err != nil {
		return "", err
	}
	name := newName()
	j.later = append(j.later, func(ctx context.Context) error {
		if !j.g.points.add(name, b) {
			_ = j.g.sweeps.sweep(ctx) // without an answer of the engine there is no room
			if !j.g.points.add(name, b) {
				return refuse(ruleBindLimit, "there are %d binds of containers already", maxPoints)
			}
		}
		j.points = append(j.points, name)
		return j.g.bindTo(name, b, j.peer)
	})
	return j.g.points.path(name), nil
}

func (g *Guard) isSocket(p string) bool {
	return p == g.cfg.Socket || slices.Contains(dockerSockets, p)
}

// place is the position of a source: without links, below one of the directories for binds.
type place struct {
	root, target string
	missing      bool
}

// Relocate sets new paths for the directories for binds, while clients see other directories there than the
// engine does. Sources outside these directories cannot be bound meanwhile. nil resets the paths.
func (g *Guard) Relocate(places map[string]string) {
	if places == nil {
		g.places.Store(nil)
		return
	}
	lie := map[string]string{}
	for _, root := range g.cfg.Binds {
		if at, ok := places[root]; ok {
			lie[root] = at
		}
	}
	g.places.Store(&lie)
}

// folders returns the directories for binds as the engine sees them, and the source in one of them.
func (g *Guard) folders(source string) (roots []string, at string) {
	lie := g.places.Load()
	if lie == nil {
		return g.cfg.Binds, source
	}
	for root, place := range *lie {
		roots = append(roots, place)
		if within(root, source) {
			at = path.Join(place, strings.TrimPrefix(source, root))
		}
	}
	return roots, at
}

func (g *Guard) find(source string) (place, error) {
	roots, at := g.folders(source)
	if at == "" {
		return place{}, refuse(ruleBind, "%q cannot be bound into a container of a check", source)
	}
	target, missing, err := resolve(at)
	if err != nil {
		return place{}, refuse(ruleBind, "the links of the source %q cannot be resolved (%v)", source, err)
	}
	for _, root := range roots {
		root, err := filepath.EvalSymlinks(root)
		if err == nil && within(root, target) {
			return place{root, target, missing}, nil
		}
	}
	return place{}, refuse(ruleBind, "%q cannot be bound into a container", source)
}

// resolve follows the links of a clean absolute path; it keeps the part that does not exist
// yet, below its deepest existing parent.
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
			return "", false, fmt.Errorf("dangling link %s", at)
		}
		rest = path.Join(path.Base(at), rest)
	}
}

func within(root, p string) bool {
	return p == root || strings.HasPrefix(p, strings.TrimSuffix(root, "/")+"/")
}

// makeDirAs creates a missing directory below root with the client's identity, so that the client owns it,
// and without following a link.
func makeDirAs(root, dir string, who peer) error {
	done := make(chan error, 1)
	go func() {
		// The thread ends: its identity differs from the process's.
		runtime.LockOSThread()
		done <- func() error {
			if err := become(who); err != nil {
				return err
			}
			return mkdirBelow(root, strings.TrimPrefix(dir, strings.TrimSuffix(root, "/")+"/"))
		}()
	}()
	if err := <-done; err != nil {
		return refuse(ruleBind, "%q does not exist and cannot be created (%v)", dir, err)
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
