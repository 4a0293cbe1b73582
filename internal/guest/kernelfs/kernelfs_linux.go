// Package kernelfs takes the settings of the machine's kernel out of the box's sight: a box shares the kernel with the host, and
// root in it could otherwise change the host with one write (what runs at a crash, say). The knobs of the box's own network are set as checks need them.
//
// It holds against a write, not against root who mounts /proc anew: that takes a user namespace of the box's own, which an OCI
// runtime such as sysbox gives.
package kernelfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

// readOnly are directories and files whose writes reach beyond the box. They are those of the outer engine's default, and /sys.
var readOnly = append([]string{"/sys"}, proc.ReadOnlyPaths...)

// writable are parts of readOnly that belong to the box's own network namespace.
var writable = []string{"/proc/sys/net"}

// settings are those of the box's own network namespace.
var settings = map[string]string{
	// For a minute the kernel would refuse the port of a server that closed its last connection to the next one (TIME_WAIT): a check
	// that starts a server would fail for what ran before it, the proof's other side or the agent.
	"/proc/sys/net/ipv4/tcp_max_tw_buckets": "0",
}

// masked are those that tell of the machine, as the outer engine masks them by default.
var masked = append([]string{"/sys/devices/virtual/powercap", "/sys/firmware"}, proc.MaskedPaths...)

// spare is the folder with a whole /proc and /sys that nothing covers. A kernel mounts either in a user namespace, as inner containers have,
// only where the mount namespace has one that shows all of it. No process can reach these: an empty folder is mounted over their parent.
const spare = "/var/lib/sandbox-agent/spare"

// Hold covers what has to be covered. PID 1 calls it once, before anything else runs; it stays as long as the box.
func Hold() error {
	if err := mountSpare(); err != nil {
		return fmt.Errorf("hold kernel settings: %w", err)
	}
	for _, p := range writable { // first, while its parent is writable
		if err := bind(p, 0); err != nil {
			return fmt.Errorf("hold kernel settings: %w", err)
		}
	}
	for p, value := range settings {
		if err := os.WriteFile(p, []byte(value), 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("set %s: %w", p, err)
		}
	}
	for _, p := range readOnly {
		if err := bind(p, unix.MS_RDONLY); err != nil {
			return fmt.Errorf("hold kernel settings: %w", err)
		}
	}
	for _, p := range masked {
		if err := mask(p); err != nil {
			return fmt.Errorf("hold kernel settings: %w", err)
		}
	}
	return nil
}

func mountSpare() error {
	for name, fstype := range map[string]string{"proc": "proc", "sys": "sysfs"} {
		p := filepath.Join(spare, name)
		if err := os.MkdirAll(p, 0o700); err != nil {
			return err
		}
		if err := unix.Mount(fstype, p, fstype, unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
			return fmt.Errorf("mount a spare %s: %w", fstype, err)
		}
	}
	if err := unix.Mount("tmpfs", spare, "tmpfs", unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "size=4k,mode=700"); err != nil {
		return fmt.Errorf("cover %s: %w", spare, err)
	}
	return nil
}

// bind makes p a mount point of itself with the flags. A path that this kernel does not have is no error.
func bind(p string, flags uintptr) error {
	const kept = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	// Recursive: what is mounted below stays in sight, and keeps its own flags.
	err := unix.Mount(p, p, "", unix.MS_BIND|unix.MS_REC, "")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = unix.Mount("", p, "", unix.MS_BIND|unix.MS_REMOUNT|kept|flags, "")
	}
	if err != nil {
		return fmt.Errorf("bind %s: %w", p, err)
	}
	return nil
}

// mask puts an empty file or folder over p.
func mask(p string) error {
	st, err := os.Stat(p)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case st.IsDir():
		err = unix.Mount("tmpfs", p, "tmpfs", unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "size=4k")
	default:
		err = unix.Mount(os.DevNull, p, "", unix.MS_BIND, "")
	}
	if err != nil {
		return fmt.Errorf("mask %s: %w", p, err)
	}
	return nil
}
