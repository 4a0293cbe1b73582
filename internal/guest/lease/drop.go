package lease

import (
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// kept are what the guest of a lease needs, as that of a jail does: it becomes the user of commands, ends them, gives them a terminal and looks into their folders.
var kept = []uintptr{unix.CAP_SETUID, unix.CAP_SETGID, unix.CAP_KILL, unix.CAP_CHOWN, unix.CAP_FOWNER, unix.CAP_DAC_OVERRIDE}

// drop gives up all capabilities but kept, of all threads and for good.
func drop() error {
	var low, high uint32
	for _, c := range kept {
		if c < 32 {
			low |= 1 << c
		} else {
			high |= 1 << (c - 32)
		}
	}
	for c := uintptr(0); c <= unix.CAP_LAST_CAP; c++ {
		if c < 32 && low&(1<<c) != 0 || c >= 32 && high&(1<<(c-32)) != 0 {
			continue
		}
		// To ask costs nothing, while all threads stop to give one up. A kernel that does not know one has nothing to give up.
		if has, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, c, 0, 0, 0); err != nil || has == 0 {
			continue
		}
		if _, _, errno := syscall.AllThreadsSyscall(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, c, 0); errno != 0 {
			return fmt.Errorf("give up capability %d: %w", c, errno)
		}
	}
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	data := [2]unix.CapUserData{{Effective: low, Permitted: low}, {Effective: high, Permitted: high}}
	if _, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&head)), uintptr(unsafe.Pointer(&data[0])), 0); errno != 0 {
		return fmt.Errorf("give up capabilities: %w", errno)
	}
	return nil
}

// loopback lets programs of the lease talk to each other.
func loopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("start the loopback: %w", err)
	}
	defer unix.Close(fd)
	r, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	r.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, r); err != nil {
		return fmt.Errorf("start the loopback: %w", err)
	}
	return nil
}
