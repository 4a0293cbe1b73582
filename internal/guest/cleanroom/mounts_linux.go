package cleanroom

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// own are file systems of shared memory: a room gets a new one of each.
var own = []struct{ path, fstype, data string }{
	{"/dev/shm", "tmpfs", "mode=1777,size=64m"}, // the outer engine's own size
	{"/dev/mqueue", "mqueue", ""},
}

// shared reports whether a directory is one of them.
func shared(path string) bool {
	for _, m := range own {
		if m.path == path {
			return true
		}
	}
	return false
}

// kernels are file systems without files, which show the kernel's state. Every other one counts as
// writable.
var kernels = []int64{
	unix.PROC_SUPER_MAGIC, unix.SYSFS_MAGIC, unix.CGROUP_SUPER_MAGIC, unix.CGROUP2_SUPER_MAGIC, unix.DEVPTS_SUPER_MAGIC, unix.SECURITYFS_MAGIC,
	unix.DEBUGFS_MAGIC, unix.TRACEFS_MAGIC, unix.BPF_FS_MAGIC, unix.NSFS_MAGIC, unix.BINFMTFS_MAGIC, unix.EFIVARFS_MAGIC, unix.PSTOREFS_MAGIC,
	unix.SELINUX_MAGIC,
}

func interfaceOfKernel(path string) (bool, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		if errors.Is(err, unix.ENOENT) {
			return true, nil
		}
		return false, fmt.Errorf("read the mounts of %s: %w", path, err)
	}
	return slices.Contains(kernels, int64(st.Type)), nil
}

// cover mounts the fresh directories and files over the places, in the room's own mount namespace.
func cover(lies map[string]string) error {
	for path, fresh := range lies {
		if err := unix.Mount(fresh, path, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("cover %s: %w", path, err)
		}
	}
	for _, m := range own {
		err := unix.Mount(m.fstype, m.path, m.fstype, unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, m.data)
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("cover %s: %w", m.path, err)
		}
	}
	return nil
}
