package nested

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/moby/sys/mountinfo"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/wire"
)

// Directories of the nested sandbox's own memory file system.
const (
	own  = wire.GuestDir + "/lease" // its mount point, only in the nested sandbox's mount namespace
	root = own + "/root"
)

// mount calls mount(2) and names the target in errors.
func mount(source, target, kind string, flags uintptr, data string) error {
	if err := unix.Mount(source, target, kind, flags, data); err != nil {
		return fmt.Errorf("mount %s: %w", strings.TrimPrefix(target, root), err)
	}
	return nil
}

// mountAll builds the nested sandbox's file system from the sandbox's, and enters it.
func mountAll(l wire.NestedConfig, uid, gid int) error {
	beside, err := mountPoints()
	if err != nil {
		return err
	}
	size, shm := "", int64(64<<20) // the engine's own size
	if l.Bytes > 0 {
		// Files use memory, and killing a process does not free it.
		size, shm = ",size="+strconv.FormatInt(l.Bytes/4*3, 10), min(shm, l.Bytes/8)
	}
	err = mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, "")
	if err == nil {
		err = os.Mkdir(own, 0o700) // it exists if there was an earlier nested sandbox
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := mount("lease", own, "tmpfs", unix.MS_NODEV|unix.MS_NOSUID, "mode=0700"+size); err != nil {
		return err
	}
	if err := os.Mkdir(root, 0o755); err != nil {
		return err
	}
	if err := overlay("/", root, 0); err != nil {
		return err
	}
	if err := system(shm); err != nil {
		return err
	}
	for i, p := range beside {
		if slices.Contains(l.Mounts, p) && slices.ContainsFunc(l.Mounts, func(m string) bool { return strings.HasPrefix(p, path.Clean(m)+"/") }) {
			continue // it was mounted with its parent, and its path may be writable for another sandbox
		}
		if err := bring(l, p, i+1); err != nil {
			return err
		}
	}
	dir := filepath.Join(root, path.Clean("/"+l.Dir))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make %s: %w", l.Dir, err)
	}
	if !slices.Contains(l.Mounts, l.Dir) {
		files := own + "/directory" // of the same file system: one size bounds both
		if err := errors.Join(os.Mkdir(files, 0o755), os.Chown(files, uid, gid)); err != nil {
			return err
		}
		if err := mount(files, dir, "", unix.MS_BIND, ""); err != nil {
			return err
		}
	}
	// The guest's directory must not be accessible in a nested sandbox: this process already runs its program.
	if err := mount(
		"none", root+wire.GuestDir, "tmpfs", unix.MS_RDONLY|unix.MS_NODEV|unix.MS_NOSUID|unix.MS_NOEXEC, "mode=0700,size=4k",
	); err != nil {
		return err
	}
	// The engine's filter forbids pivot_root. Only CAP_SYS_CHROOT, which is dropped, reaches the file system below.
	if err := errors.Join(unix.Chdir(root), unix.Mount(".", "/", "", unix.MS_MOVE, ""), unix.Chroot("."), unix.Chdir("/")); err != nil {
		return fmt.Errorf("enter the nested sandbox's files: %w", err)
	}
	return nil
}

// overlay mounts a directory of the nested sandbox over one of the sandbox.
func overlay(lower, target string, n int) error {
	upper, work := fmt.Sprintf("%s/%d-files", own, n), fmt.Sprintf("%s/%d-work", own, n)
	st, err := os.Stat(lower)
	if err != nil {
		return err
	}
	// The upper directory gets the mode of the lower one.
	if err := errors.Join(
		os.Mkdir(upper, 0o700), os.Mkdir(work, 0o700), os.Chmod(upper, st.Mode().Perm()|st.Mode()&(os.ModeSticky|os.ModeSetgid)),
	); err != nil {
		return err
	}
	if s, ok := st.Sys().(*syscall.Stat_t); ok {
		if err := os.Chown(upper, int(s.Uid), int(s.Gid)); err != nil {
			return err
		}
	}
	options := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", escape(lower), upper, work)
	return mount("overlay", target, "overlay", unix.MS_NODEV|unix.MS_NOSUID, options)
}

// escape encodes a path for overlay's options.
func escape(p string) string { return strings.NewReplacer(`\`, `\\`, ":", `\:`, ",", `\,`).Replace(p) }

// system mounts the standard file systems.
func system(shm int64) error {
	at := func(p string) string { return root + p }
	errs := []error{
		mount("proc", at("/proc"), "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""),
		mount("/sys", at("/sys"), "", unix.MS_BIND|unix.MS_REC, ""),
		devices("/dev", at("/dev")),
		mount("devpts", at("/dev/pts"), "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620,gid=5"),
		mount("shm", at("/dev/shm"), "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, fmt.Sprintf("mode=1777,size=%d", shm)),
	}
	if _, err := os.Stat(at("/dev/mqueue")); err == nil {
		errs = append(errs, mount("mqueue", at("/dev/mqueue"), "mqueue", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""))
	}
	for _, name := range proc.MaskedPaths {
		p := at(name)
		st, err := os.Lstat(p)
		switch {
		case err != nil: // this kernel has none
		case st.IsDir():
			errs = append(errs, mount("none", p, "tmpfs", unix.MS_RDONLY, "size=4k"))
		default:
			errs = append(errs, mount("/dev/null", p, "", unix.MS_BIND, ""))
		}
	}
	for _, name := range proc.ReadOnlyPaths {
		p := at(name)
		if _, err := os.Lstat(p); err != nil {
			continue
		}
		errs = append(errs, mount(p, p, "", unix.MS_BIND|unix.MS_REC, ""),
			mount(p, p, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""))
	}
	return errors.Join(errs...)
}

// bring mounts the sandbox's mount at p: directly if configured so, otherwise with writes that are discarded.
func bring(l wire.NestedConfig, p string, n int) error {
	target := root + p
	st, err := os.Stat(p)
	if err != nil {
		return err
	}
	if _, err := os.Lstat(target); err != nil {
		return fmt.Errorf("mount %s: %w", p, err)
	}
	if st.IsDir() && !slices.Contains(l.Mounts, p) {
		return overlay(p, target, n)
	}
	if err := mount(p, target, "", unix.MS_BIND|unix.MS_REC, ""); err != nil || slices.Contains(l.Mounts, p) {
		return err
	}
	return mount(target, target, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")
}

// mountPoints returns the mounts of this process except the root and the standard ones, parents first.
func mountPoints() ([]string, error) {
	mounts, err := mountinfo.GetMounts(nil)
	var all []string
	for _, m := range mounts {
		p := m.Mountpoint
		standard := slices.ContainsFunc([]string{"/proc", "/sys", "/dev"}, func(d string) bool { return p == d || strings.HasPrefix(p, d+"/") })
		if p != "/" && !standard {
			all = append(all, p)
		}
	}
	slices.Sort(all)
	return slices.Compact(all), err
}
