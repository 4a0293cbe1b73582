package safeopen

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandbox-agent/sandbox-agent/wire"
)

// bootFile names the kernel that runs: a sandbox with another kernel has other numbers for the same files.
const bootFile = "/proc/sys/kernel/random/boot_id"

// Hold opens the sources of mounts without following a link.
func Hold(mounts []Mount) (h *Held, err error) {
	h = &Held{}
	defer func() {
		if err != nil {
			h.Close()
		}
	}()
	if boot, err := os.ReadFile(bootFile); err == nil {
		h.Kernel = string(boot)
	}
	for _, m := range mounts {
		fd, err := open(m.Source)
		if err != nil {
			return h, fmt.Errorf("%s: %w", m.Source, err)
		}
		h.fds = append(h.fds, fd)
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return h, fmt.Errorf("%s: %w", m.Source, err)
		}
		h.IDs = append(h.IDs, wire.MountID{Target: m.Target, Device: st.Dev, Inode: st.Ino, ReadOnly: m.ReadOnly})
		h.Owners = append(h.Owners, Owner{st.Uid, st.Gid})
	}
	return h, nil
}

// Close lets go of the sources.
func (h *Held) Close() {
	for _, fd := range h.fds {
		_ = unix.Close(fd)
	}
	h.fds = nil
}

// errLink is of a path that has a link in it.
var errLink = errors.New("a link is in its path")

// open opens an absolute path for its identity alone, and follows no link.
func open(path string) (int, error) {
	fd, err := unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS})
	if errors.Is(err, unix.ENOSYS) { // before Linux 5.6
		fd, err = steps(path)
	}
	if errors.Is(err, unix.ELOOP) {
		return -1, errLink
	}
	return fd, err
}

// steps opens one component after the other.
func steps(path string) (int, error) {
	const flags = unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC
	at, err := unix.Open("/", flags|unix.O_DIRECTORY, 0)
	for part := range strings.SplitSeq(strings.Trim(filepath.Clean(path), "/"), "/") {
		if err != nil || part == "" {
			break
		}
		var fd int
		fd, err = unix.Openat(at, part, flags, 0)
		_ = unix.Close(at)
		at = fd
		var st unix.Stat_t
		if err == nil {
			err = unix.Fstat(at, &st)
		}
		if err == nil && st.Mode&unix.S_IFMT == unix.S_IFLNK {
			_ = unix.Close(at)
			err = unix.ELOOP
		}
	}
	return at, err
}

// Verify returns an error unless each mount of this process is what the host held under the same kernel. Numbers of
// another kernel say nothing.
func Verify(want []wire.MountID, kernel string) error {
	boot, err := os.ReadFile(bootFile)
	if len(want) == 0 || err != nil || string(boot) != kernel {
		return nil
	}
	for _, m := range want {
		if err := verify(m, want); err != nil {
			return fmt.Errorf("what is mounted at %s is not what was to be mounted: %w: another sandbox may have changed the path "+
				"meanwhile; nothing has run", m.Target, err)
		}
	}
	return nil
}

func verify(m wire.MountID, all []wire.MountID) error {
	// An image may have a link on the way. In another mount there is none.
	path, err := filepath.EvalSymlinks(m.Target)
	if err != nil {
		return err
	}
	if path != filepath.Clean(m.Target) && slices.ContainsFunc(all, func(o wire.MountID) bool {
		return o.Target != m.Target && strings.HasPrefix(path, filepath.Clean(o.Target)+"/")
	}) {
		return errLink
	}
	fd, err := open(path)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	var fs unix.Statfs_t
	if err := errors.Join(unix.Fstat(fd, &st), unix.Fstatfs(fd, &fs)); err != nil {
		return err
	}
	if st.Dev != m.Device || st.Ino != m.Inode {
		return errors.New("it is another file")
	}
	if m.ReadOnly && fs.Flags&unix.ST_RDONLY == 0 {
		return errors.New("it can be written to")
	}
	above, err := open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer unix.Close(above)
	own, err := mountOf(fd)
	if err != nil {
		return err
	}
	outer, err := mountOf(above)
	if err == nil && own == outer {
		err = errors.New("nothing is mounted there")
	}
	return err
}

// mountOf is the number of the mount that an open file is on.
func mountOf(fd int) (string, error) {
	info, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", fd))
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(info)) {
		if id, ok := strings.CutPrefix(line, "mnt_id:"); ok {
			return strings.TrimSpace(id), nil
		}
	}
	return "", errors.New("the kernel does not say on which mount it is")
}
