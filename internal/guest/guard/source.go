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
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// dockerSockets are the paths at which containers look for the engine; in the box they lead to the guard.
var dockerSockets = []string{"/var/run/docker.sock", "/run/docker.sock"}

const newDirMode = 0o755

// bind checks the source of a bind and returns the path to forward: a mount point, or the Docker socket.
func (j *judge) bind(b bindRequest) (string, error) {
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
		if !j.g.binds.add(name, b) {
			_ = j.g.sweeps.sweep(ctx) // without an answer of the engine there is no room
			if !j.g.binds.add(name, b) {
				return refuse(ruleBindLimit, "there are %d binds of containers already", maxPoints)
			}
		}
		j.points = append(j.points, name)
		return j.g.bindTo(name, b, j.peer)
	})
	return j.g.binds.path(name), nil
}

func (g *Guard) isSocket(p string) bool {
	return p == g.cfg.Socket || slices.Contains(dockerSockets, p)
}

// bindSource is the position of a source: without links, below one of the directories for binds.
type bindSource struct {
	root, target string
	missing      bool
}

// SetBindDirs maps the directories for binds while clients see other directories there; nil resets the paths. Sources
// outside of them cannot be bound meanwhile.
func (g *Guard) SetBindDirs(places map[string]string) {
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

// bindDirs returns the directories for binds as the engine sees them, and the source in one of them.
func (g *Guard) bindDirs(source string) (roots []string, at string) {
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

func (g *Guard) find(source string) (bindSource, error) {
	roots, at := g.bindDirs(source)
	if at == "" {
		return bindSource{}, refuse(ruleBind, "%q cannot be bound into a container of a check", source)
	}
	target, missing, err := resolve(at)
	if err != nil {
		return bindSource{}, refuse(ruleBind, "the links of the source %q cannot be resolved (%v)", source, err)
	}
	for _, root := range roots {
		root, err := filepath.EvalSymlinks(root)
		if err == nil && within(root, target) {
			return bindSource{root, target, missing}, nil
		}
	}
	return bindSource{}, refuse(ruleBind, "%q cannot be bound into a container", source)
}

// resolve follows the links of a clean absolute path; the part that does not exist yet stays.
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

// makeDirAs creates a missing directory below root as the client, without following a link.
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

const (
	// pointsMode: only root has to enter the directory of mount points, because runtimes open sources as root.
	pointsMode = 0o700
	// pointsOptions are for a separate file system: it contains only the mount points.
	pointsOptions = "mode=700,size=1m"
)

// bindTo opens the source of a bind and mounts it, at the container's creation and before each start.
func (g *Guard) bindTo(name string, b bindRequest, who peer) error {
	at, err := g.find(b.source)
	if err != nil {
		return err
	}
	if at.missing && b.create {
		if err := g.makeDir(at.root, at.target, who); err != nil {
			return err
		}
	}
	fd, err := openBelow(at.root, at.target, g.cfg.GID)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		fd = -1 // the engine reports missing sources
	case err != nil:
		return refuse(ruleBind, "the source %q cannot be opened (%v)", b.source, err)
	default:
		defer func() { _ = unix.Close(fd) }()
	}
	if err := g.binds.put(name, fd, b.slave); err != nil {
		return refuse(ruleBind, "the source %q cannot be mounted (%v)", b.source, err)
	}
	return nil
}

// openBelow opens a path below root without following links. A directory of root on the way must be passable for the
// client's group or all users, because the descriptor is root's.
func openBelow(root, target string, gid int) (int, error) {
	const flags = unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC
	at, err := unix.Open(root, flags, 0)
	if err != nil {
		return -1, err
	}
	for name := range strings.SplitSeq(strings.TrimPrefix(target, root), "/") {
		if name == "" {
			continue
		}
		next := -1
		if err = passable(at, gid); err == nil {
			next, err = unix.Openat(at, name, flags, 0)
		}
		_ = unix.Close(at)
		if err != nil {
			return -1, err
		}
		at = next
	}
	var st unix.Stat_t
	err = unix.Fstat(at, &st)
	if err == nil && st.Mode&unix.S_IFMT == unix.S_IFLNK {
		err = unix.ELOOP // it was put there after the path was resolved
	}
	if err != nil {
		_ = unix.Close(at)
		return -1, err
	}
	return at, nil
}

func passable(dir, gid int) error {
	var st unix.Stat_t
	if err := unix.Fstat(dir, &st); err != nil {
		return err
	}
	byGroup := int(st.Gid) == gid && st.Mode&0o010 != 0
	if st.Mode&unix.S_IFMT == unix.S_IFDIR && st.Uid == 0 && st.Mode&0o001 == 0 && !byGroup {
		return unix.EACCES
	}
	return nil
}

func prepareBindMounts(dir string) error {
	if err := os.MkdirAll(dir, pointsMode); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, pointsOptions); err != nil {
		return fmt.Errorf("mount a directory for binds at %s: %w", dir, err)
	}
	return nil
}

// putBindMount mounts a descriptor with its source's options. The same file stays mounted, because the engine may be
// restarting a container.
func putBindMount(fd int, at string, slave bool) error {
	var want, have unix.Stat_t
	if err := unix.Fstat(fd, &want); err != nil {
		return err
	}
	if unix.Lstat(at, &have) == nil && have.Dev == want.Dev && have.Ino == want.Ino {
		return nil
	}
	if err := clearBindMount(at); err != nil {
		return err
	}
	// The engine shares all mounts of the box when it starts. New points are to appear nowhere else.
	if err := unix.Mount("", path.Dir(at), "", unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	err := makeBindTarget(at, want.Mode&unix.S_IFMT == unix.S_IFDIR)
	if err == nil {
		err = unix.Mount("/proc/self/fd/"+strconv.Itoa(fd), at, "", unix.MS_BIND|unix.MS_REC, "")
	}
	if err == nil {
		propagation := uintptr(unix.MS_PRIVATE)
		if slave {
			propagation = unix.MS_SLAVE
		}
		err = unix.Mount("", at, "", propagation|unix.MS_REC, "")
	}
	if err != nil {
		return errors.Join(err, clearBindMount(at))
	}
	return nil
}

func makeBindTarget(at string, dir bool) error {
	if dir {
		return os.Mkdir(at, pointsMode)
	}
	f, err := os.OpenFile(at, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

// clearBindMount never reads below the point, because the mounted files are the client's.
func clearBindMount(at string) error {
	err := unix.Unmount(at, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) { // EINVAL: nothing is mounted there
		return fmt.Errorf("unmount %s: %w", at, err)
	}
	if err := os.Remove(at); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// remove unmounts everything and removes the directory itself.
func (m *bindMounts) remove() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.ready {
		return nil
	}
	var errs []error
	for name := range m.all {
		errs = append(errs, m.system.clear(m.path(name)))
	}
	clear(m.all)
	m.ready = false
	return errors.Join(append(errs, m.system.clear(m.dir))...)
}
