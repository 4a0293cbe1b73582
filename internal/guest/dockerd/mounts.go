package dockerd

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/moby/sys/mountinfo"
)

// system is the machine as this package accesses it; tests redirect paths and record mounts.
type system struct {
	root    string // prefix of every path; "" is /
	mount   func(source, target, fstype string, flags uintptr, data string) error
	unmount func(target string, flags int) error
}

func realSystem(root string) system {
	return system{root: root, mount: unix.Mount, unmount: unix.Unmount}
}

// path returns p below the root.
func (s system) path(p string) string {
	if s.root == "" {
		return p
	}
	return filepath.Join(s.root, p)
}

// flags are the options that a bind remount has to repeat, because it replaces all of them.
func flags(m *mountinfo.Info) uintptr {
	var f uintptr
	for name, bit := range map[string]uintptr{
		"nosuid": unix.MS_NOSUID, "nodev": unix.MS_NODEV, "noexec": unix.MS_NOEXEC,
		"noatime": unix.MS_NOATIME, "nodiratime": unix.MS_NODIRATIME, "relatime": unix.MS_RELATIME,
	} {
		if slices.Contains(strings.Split(m.Options, ","), name) {
			f |= bit
		}
	}
	return f
}

// readOnly reports whether the mount is read-only, or only it.
func readOnly(m *mountinfo.Info) bool { return slices.Contains(strings.Split(m.Options, ","), "ro") }

func (s system) mounts() ([]*mountinfo.Info, error) {
	f, err := os.Open(s.path("/proc/self/mountinfo"))
	if err != nil {
		return nil, fmt.Errorf("read the mount table: %w", err)
	}
	defer f.Close()
	return mountinfo.GetMountsFromReader(f, nil)
}

// remountRW makes one mount writable by a bind remount: a plain one addresses the file system, which is busy.
func (s system) remountRW(m *mountinfo.Info) error {
	if err := s.mount("", s.path(m.Mountpoint), "", unix.MS_REMOUNT|unix.MS_BIND|flags(m), ""); err != nil {
		return fmt.Errorf("make %s writable: %w: start the sandbox with --cap-add SYS_ADMIN and --security-opt apparmor=unconfined",
			m.Mountpoint, err)
	}
	return nil
}

// prepareMounts makes the engine's directories writable and shares the mount tree, for binds with propagation.
func (s system) prepareMounts() ([]string, error) {
	all, err := s.mounts()
	if err != nil {
		return nil, err
	}
	var notes []string
	// Forwarding and the settings of bridges, but nothing else of /proc/sys, which belongs to the machine.
	const net = "/proc/sys/net"
	held := func(p string) bool {
		return slices.ContainsFunc(all, func(m *mountinfo.Info) bool { return m.Mountpoint == p && readOnly(m) })
	}
	if i := slices.IndexFunc(all, func(m *mountinfo.Info) bool { return m.Mountpoint == net }); held("/proc/sys") && i < 0 || held(net) {
		if err := s.mount(s.path(net), s.path(net), "", unix.MS_BIND, ""); err != nil {
			return notes, fmt.Errorf("bind %s: %w: start the sandbox with --cap-add SYS_ADMIN", net, err)
		}
		if err := s.remountRW(&mountinfo.Info{Mountpoint: net}); err != nil {
			return notes, err
		}
		notes = append(notes, net+" made writable")
	}
	if err := s.mount("", s.path("/"), "", unix.MS_SHARED|unix.MS_REC, ""); err != nil {
		return notes, fmt.Errorf(
			"share the mount tree: %w: start the sandbox with --cap-add SYS_ADMIN and --security-opt apparmor=unconfined", err,
		)
	}
	return notes, nil
}

// freshDir mounts an empty memory-backed directory at p: old pid files would name other processes.
func (s system) freshDir(p string, mode os.FileMode) error {
	dir := s.path(p)
	all, err := s.mounts()
	if err != nil {
		return err
	}
	if slices.ContainsFunc(all, func(m *mountinfo.Info) bool { return m.Mountpoint == p }) {
		if err := s.unmount(dir, unix.MNT_DETACH); err != nil {
			return fmt.Errorf("drop stale %s: %w", p, err)
		}
	}
	if err := os.MkdirAll(dir, mode); err != nil {
		return err
	}
	if err := s.mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, fmt.Sprintf("mode=%o", mode.Perm())); err != nil {
		return fmt.Errorf("mount a fresh %s: %w: start the sandbox with --cap-add SYS_ADMIN", p, err)
	}
	return nil
}
