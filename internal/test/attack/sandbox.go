package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

// sandboxConfig is of attempts in a standalone sandbox.
type sandboxConfig struct {
	Loopback string `json:"loopback"` // a port of the machine's
	// LoopbackWorks says that the sandbox has the machine's network.
	LoopbackWorks bool   `json:"loopback_works"`
	Abstract      string `json:"abstract"` // a socket of the machine's without a path
	State         string `json:"state"`    // the machine's state folder
	Other         string `json:"other"`    // a file of another sandbox
}

// inSandbox tries what a command in a standalone sandbox must not be able to do, as any of its users.
func inSandbox(file string, each func(Row) error) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var c sandboxConfig
	if err := json.Unmarshal(b, &c); err != nil {
		return err
	}
	for _, a := range sandboxAttempts(c) {
		if err := each(a.row(&Config{})); err != nil {
			return err
		}
	}
	return nil
}

func sandboxAttempts(c sandboxConfig) []attempt {
	a := func(name string, w want, run func() (string, bool)) attempt {
		return attempt{group: "a standalone sandbox", name: name, want: always(w), run: func(*Config) (string, bool) { return run() }}
	}
	opens := func(flags int, paths ...string) func() (string, bool) {
		return func() (string, bool) {
			got := "none is there"
			for _, p := range paths {
				f, err := os.OpenFile(p, flags, 0)
				if err == nil {
					f.Close()
					return p + " is open", true
				}
				got = short(err)
			}
			return got, false
		}
	}
	succeeds := func(f func() error) func() (string, bool) {
		return func() (string, bool) {
			if err := f(); err != nil {
				return short(err), false
			}
			return "done", true
		}
	}
	loopback := refused
	if c.LoopbackWorks {
		loopback = works
	}
	return []attempt{
		a("write into its own folders (control)", works, succeeds(func() error {
			home, err := os.UserHomeDir()
			if err != nil {
				return err
			}
			return errors.Join(os.WriteFile("/tmp/harmless", nil, 0o600), os.WriteFile(filepath.Join(home, "harmless"), nil, 0o600))
		})),
		a("talk to itself over its loopback (control)", works, succeeds(ownLoopback)),
		a("write the kernel's settings", refused, opens(os.O_WRONLY, "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/hostname",
			"/proc/sysrq-trigger", "/proc/sys/vm/drop_caches")),
		a("read the kernel's log and memory", refused, opens(os.O_RDONLY, "/dev/kmsg", "/proc/kcore", "/dev/mem")),
		a("read the kernel's log by its call", refused,
			succeeds(func() error { _, err := unix.Klogctl(unix.SYSLOG_ACTION_READ_ALL, make([]byte, 1<<10)); return err })),
		a("write into the machine's programs", refused, succeeds(func() error { return os.WriteFile("/usr/bin/harm", nil, 0o600) })),
		a("write into /etc, / and /dev", refused, succeeds(func() error {
			return firstOf(os.WriteFile("/etc/harm", nil, 0o600), os.WriteFile("/harm", nil, 0o600), os.WriteFile("/dev/harm", nil, 0o600))
		})),
		a("read the machine's passwords", refused, opens(os.O_RDONLY, "/etc/shadow", "/etc/sudoers", "/root/.ssh")),
		a("open the machine's state folder", refused, opens(os.O_RDONLY, c.State, filepath.Join(c.State, "sandboxes"))),
		a("open another sandbox's file", refused, opens(os.O_RDONLY, c.Other)),
		a("find the wire's socket", refused, findSocket),
		a("read the guest's program", refused, opens(os.O_RDONLY, "/.sandbox-agent/guest", "/.sandbox-agent/config.json")),
		a("read the guest's memory", refused, ofGuest(func(pid int) error {
			return canRead(fmt.Sprintf("/proc/%d/mem", pid), fmt.Sprintf("/proc/%d/environ", pid))
		})),
		a("list the guest's descriptors", refused,
			ofGuest(func(pid int) error { _, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid)); return err })),
		a("take a descriptor of the guest", refused, ofGuest(takeDescriptor)),
		a("trace the guest", refused, ofGuest(func(pid int) error { return unix.PtraceSeize(pid) })),
		a("trace the first process", refused, succeeds(func() error { return firstOf(unix.PtraceSeize(1), canRead("/proc/1/mem")) })),
		a("read what tells of the whole machine", refused, func() (string, bool) {
			var all []string
			for _, p := range proc.MaskedPaths {
				if tells(p) {
					all = append(all, p)
				}
			}
			return strings.Join(append(all, fmt.Sprintf("%d of %d", len(all), len(proc.MaskedPaths))), " "), len(all) > 0
		}),
		a("have a descriptor of the guest's by inheritance", refused, inherited),
		a("see the machine's processes", refused, func() (string, bool) {
			all, _ := filepath.Glob("/proc/[0-9]*")
			const most = 30
			return fmt.Sprintf("%d processes", len(all)), len(all) > most
		}),
		a("become root", refused, succeeds(func() error { return unix.Setuid(0) })),
		a("have a capability, or gain privileges", refused, privileges),
		a("make a user namespace", refused, succeeds(func() error { return unix.Unshare(unix.CLONE_NEWUSER) })),
		a("mount", refused, succeeds(func() error { return unix.Mount("tmpfs", "/tmp", "tmpfs", 0, "") })),
		a("make a device", refused, succeeds(func() error { return unix.Mknod("/tmp/device", unix.S_IFBLK|0o600, int(unix.Mkdev(254, 0))) })),
		a("use bpf, io_uring, keys and vsock", refused, succeeds(func() error {
			_, _, bpf := unix.Syscall(unix.SYS_BPF, 0, 0, 0)
			_, _, ring := unix.Syscall(unix.SYS_IO_URING_SETUP, 1, 0, 0)
			_, _, keys := unix.Syscall(unix.SYS_KEYCTL, 0, 0, 0)
			_, vsock := unix.Socket(unix.AF_VSOCK, unix.SOCK_STREAM, 0)
			forbidden := func(err error) bool {
				return errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EAFNOSUPPORT)
			}
			for _, err := range []error{bpf, ring, keys, vsock} {
				if !forbidden(err) {
					return nil
				}
			}
			return errors.Join(bpf, ring, keys, vsock)
		})),
		a("raise its limits", refused, succeeds(func() error {
			groups, _ := filepath.Glob("/sys/fs/cgroup/*")
			inside, _ := filepath.Glob("/sys/fs/cgroup/*/*")
			for _, p := range append(groups, inside...) {
				if f, err := os.OpenFile(p, os.O_WRONLY, 0); err == nil {
					f.Close()
					return nil
				}
			}
			return unix.Setrlimit(unix.RLIMIT_NPROC, &unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY})
		})),
		a("reach the machine's loopback", loopback, succeeds(func() error { return reach("tcp", c.Loopback) })),
		a("reach a socket of the machine's without a path", refused, succeeds(func() error { return reach("unix", c.Abstract) })),
	}
}

// tells reports whether a file has content, or a directory an entry.
func tells(path string) bool {
	if entries, err := os.ReadDir(path); err == nil {
		return len(entries) > 0
	}
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	n, _ := f.Read(make([]byte, 1))
	return n > 0
}

// firstOf is nil if any is.
func firstOf(errs ...error) error {
	for _, err := range errs {
		if err == nil {
			return nil
		}
	}
	return errors.Join(errs...)
}

const reachTime = 2 * time.Second

func reach(network, address string) error {
	conn, err := (&net.Dialer{Timeout: reachTime}).DialContext(context.Background(), network, address)
	if err == nil {
		conn.Close()
	}
	return err
}

func ownLoopback() error {
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer l.Close()
	return reach("tcp", l.Addr().String())
}

// findSocket looks for any socket that it could connect to.
func findSocket() (string, bool) {
	var found string
	_ = filepath.WalkDir("/", func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return nil
		case path == "/proc" || path == "/usr" || path == "/sys":
			return fs.SkipDir
		case e.Type() == fs.ModeSocket && reach("unix", path) == nil:
			found = path
		}
		return nil
	})
	if found != "" {
		return found, true
	}
	return "there is none", false
}

// ofGuest tries something on each process of the guest's.
func ofGuest(try func(pid int) error) func() (string, bool) {
	return func() (string, bool) {
		all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		got := "no guest was found"
		for _, p := range all {
			b, err := os.ReadFile(p)
			role := strings.TrimRight(string(b), "\x00")
			role = role[strings.LastIndexByte(role, 0)+1:]
			if err != nil || role != "jail" && role != "lease" && role != "serve" && role != "reap" && role != "init" {
				continue
			}
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(p)))
			if err != nil {
				continue
			}
			if strings.HasPrefix(string(b), "/usr/") { // bubblewrap's own, which has nothing of the guest's
				continue
			}
			if err = try(pid); err == nil {
				return fmt.Sprintf("process %d, %s", pid, role), true
			}
			got = role + ": " + short(err)
		}
		return got, got == "no guest was found"
	}
}

// canRead reports the first error, of each path.
func canRead(paths ...string) error {
	var errs []error
	for _, p := range paths {
		f, err := os.Open(p)
		if err == nil {
			f.Close()
			return nil
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func takeDescriptor(pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	const last = 20
	for theirs := range last {
		got, terr := unix.PidfdGetfd(fd, theirs, 0)
		if terr == nil {
			unix.Close(got)
			return nil
		}
		err = terr
	}
	return err
}

// inherited looks for descriptors beyond the standard ones that are no file of this program's own.
func inherited() (string, bool) {
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return short(err), true
	}
	for _, e := range all {
		to, err := os.Readlink("/proc/self/fd/" + e.Name())
		if n, nerr := strconv.Atoi(e.Name()); err == nil && nerr == nil && n > 2 && (strings.HasPrefix(to, "socket:") ||
			strings.HasPrefix(to, "pipe:") || strings.HasPrefix(to, "/memfd:")) {
			return e.Name() + " is " + to, true
		}
	}
	return fmt.Sprintf("%d descriptors, all its own", len(all)), false
}

func privileges() (string, bool) {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return short(err), true
	}
	var got []string
	through := false
	for line := range strings.Lines(string(b)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		value = strings.TrimSpace(value)
		switch name {
		case "CapEff", "CapPrm", "CapAmb":
			through = through || strings.Trim(value, "0") != ""
		case "NoNewPrivs":
			through = through || value != "1"
		case "Seccomp":
			through = through || value != "2"
		default:
			continue
		}
		got = append(got, name+" "+value)
	}
	return strings.Join(got, ", "), through
}
