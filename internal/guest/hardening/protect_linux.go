package hardening

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

// readOnly are paths whose writes have effects outside the box: the outer engine's defaults, and /sys.
var readOnly = append([]string{"/sys"}, proc.ReadOnlyPaths...)

// writable are parts of readOnly that belong to the box's own network namespace.
var writable = []string{"/proc/sys/net"}

// settings belong to the box's own network namespace.
var settings = map[string]string{
	// By default the kernel blocks the port of a server that closed its last connection for a minute (TIME_WAIT). A
	// check would fail because of an earlier server.
	"/proc/sys/net/ipv4/tcp_max_tw_buckets": "0",
}

// masked are paths that reveal details of the machine, as the outer engine masks them by default.
var masked = append([]string{"/sys/devices/virtual/powercap", "/sys/firmware"}, proc.MaskedPaths...)

// spare is the directory with an uncovered /proc and /sys: a kernel mounts either in a user namespace only if the mount
// namespace has a fully visible one. An empty directory is mounted over their parent.
const spare = "/var/lib/sandbox-agent/spare"

// protectKernel hides the settings of the machine's kernel from the box, in which root could otherwise change the host,
// and sets the parameters of the box's own network. PID 1 calls it once, first. It does not protect against root that
// mounts /proc again: that takes a user namespace for the box.
func protectKernel() error {
	if err := mountSpare(); err != nil {
		return fmt.Errorf("protect kernel settings: %w", err)
	}
	for _, p := range writable { // first, while its parent is writable
		if err := bind(p, 0); err != nil {
			return fmt.Errorf("protect kernel settings: %w", err)
		}
	}
	for p, value := range settings {
		if err := os.WriteFile(p, []byte(value), 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("set %s: %w", p, err)
		}
	}
	for _, p := range readOnly {
		if err := bind(p, unix.MS_RDONLY); err != nil {
			return fmt.Errorf("protect kernel settings: %w", err)
		}
	}
	for _, p := range masked {
		if err := mask(p); err != nil {
			return fmt.Errorf("protect kernel settings: %w", err)
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

// bind makes p a mount point of itself with the flags. A path that this kernel lacks is not an error.
func bind(p string, flags uintptr) error {
	const kept = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	// Recursive: mounts below stay visible and keep their own flags.
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

// mask mounts an empty file or directory over p.
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
