package jail

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/jailshim"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/wire"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const program = "bwrap" // bubblewrap's

const ( // directories of a jail whose files stay
	workspace = workorder.Workspace
	home      = "/home/sandbox"
)

const tryTime = 10 * time.Second // by hand it takes 5 ms

const noBubblewrap = unavailableError("bubblewrap is missing: install the package bubblewrap")

// forbidding are kernel settings that can forbid user namespaces.
var forbidding = []string{"kernel/apparmor_restrict_unprivileged_userns", "kernel/unprivileged_userns_clone", "user/max_user_namespaces"}

// tryBubblewrap creates an empty jail: there is no other test whether this user may do so.
func tryBubblewrap(ctx context.Context) error {
	if ctx.Err() != nil { // the trial may be faster than the end of ctx
		return context.Cause(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, tryTime)
	defer cancel()
	argv := append([]string{program}, namespaces(os.Geteuid() == 0, true)...)
	_, err := proc.Output(ctx, proc.Spec{Argv: append(argv, "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "true")})
	switch {
	case err == nil:
		return nil
	case proc.Missing(err) == program:
		return noBubblewrap
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	said := err.Error()
	if e, ok := errors.AsType[*proc.ExitError](err); ok {
		said = strings.TrimSpace(e.Stderr)
	}
	if os.Geteuid() == 0 {
		return unavailableError("root cannot create namespaces here, as in an ordinary container: " + said)
	}
	for _, name := range forbidding {
		if b, err := os.ReadFile("/proc/sys/" + name); err == nil {
			said += fmt.Sprintf("; %s is %s", strings.ReplaceAll(name, "/", "."), strings.TrimSpace(string(b)))
		}
	}
	return unavailableError("this user cannot create namespaces: " + said)
}

// namespaces returns the options for all namespaces. Root creates no user namespace: its root would be the host's root, who can
// write kernel settings without a capability. Root's jails run commands as another user instead.
func namespaces(root, networkNone bool) []string {
	if !root {
		all := []string{"--unshare-all", "--unshare-user"}
		if !networkNone {
			all = append(all, "--share-net")
		}
		return all
	}
	all := []string{"--unshare-ipc", "--unshare-pid", "--unshare-uts", "--unshare-cgroup-try"}
	if networkNone {
		all = append(all, "--unshare-net")
	}
	return all
}

// guestCaps are the capabilities of root's guest: it becomes the user of commands, ends them, gives them a terminal and reads
// their directories. Commands have none.
var guestCaps = []string{"CAP_SETUID", "CAP_SETGID", "CAP_KILL", "CAP_CHOWN", "CAP_FOWNER", "CAP_DAC_OVERRIDE"}

// hostFiles are the files of the host, or of another root directory, that a jail shows.
type hostFiles struct {
	root   string       // "" means this machine's
	top    []topDir     // directories beside /usr
	etc    []string     // directories below /etc to mount
	files  []etcFile    // files of /etc to copy, which is cheaper than a mount
	resolv []byte       // /etc/resolv.conf
	masked []maskedPath // of /proc
}

type maskedPath struct {
	path string
	dir  bool
}

type etcFile struct{ path, content string }

type topDir struct{ path, link string } // link is empty for a directory

var topDirs = []string{"/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"}

// Directories of /etc to mount and files to copy: programs need them, and they are the same for all users.
var (
	shownEtc = []string{"/etc/alternatives", "/etc/ssl/certs", "/etc/pki/tls/certs", "/etc/pki/ca-trust/extracted", "/etc/fonts"}
	// Debian's matplotlib does not start without the last one.
	copiedEtc = []string{"/etc/ld.so.cache", "/etc/ssl/openssl.cnf", "/etc/services", "/etc/protocols", "/etc/matplotlibrc"}
)

const maxCopied = 4 << 20 // bytes of a copied file; a linker's cache has some 100 KB

// tree is a file system with programs: this machine's, or another root directory, of which no link leads out.
type tree interface {
	Lstat(name string) (fs.FileInfo, error)
	Stat(name string) (fs.FileInfo, error)
	Readlink(name string) (string, error)
	ReadFile(name string) ([]byte, error)
}

type hostFS struct{}

func (hostFS) Lstat(name string) (fs.FileInfo, error) { return os.Lstat("/" + name) }
func (hostFS) Stat(name string) (fs.FileInfo, error)  { return os.Stat("/" + name) }
func (hostFS) Readlink(name string) (string, error)   { return os.Readlink("/" + name) }
func (hostFS) ReadFile(name string) ([]byte, error)   { return os.ReadFile("/" + name) }

// look reads this machine's directories, or those of another root directory.
func look(root string) (hostFiles, error) {
	if root == "" {
		return lookAt(hostFS{}, "")
	}
	r, err := os.OpenRoot(root)
	if err != nil {
		return hostFiles{}, fmt.Errorf("the root directory: %w", err)
	}
	defer r.Close()
	st, err := r.Lstat("usr")
	if err == nil && !st.IsDir() { // a link could lead anywhere
		err = errors.New("usr is not a directory")
	}
	if err != nil {
		return hostFiles{}, fmt.Errorf("the root directory: %w", err)
	}
	return lookAt(r, root)
}

func lookAt(t tree, root string) (hostFiles, error) {
	m := hostFiles{root: root}
	for _, p := range topDirs {
		st, err := t.Lstat(p[1:])
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return m, err
		case st.Mode()&fs.ModeSymlink != 0:
			to, err := t.Readlink(p[1:])
			if err != nil {
				return m, err
			}
			m.top = append(m.top, topDir{p, to})
		case st.IsDir():
			m.top = append(m.top, topDir{path: p})
		}
	}
	for _, p := range shownEtc {
		if st, err := t.Stat(p[1:]); err == nil && st.IsDir() {
			m.etc = append(m.etc, p)
		}
	}
	for _, p := range copiedEtc {
		if b, err := t.ReadFile(p[1:]); err == nil && len(b) <= maxCopied {
			m.files = append(m.files, etcFile{p, string(b)})
		}
	}
	m.resolv, _ = os.ReadFile("/etc/resolv.conf") // if missing, no names resolve
	for _, p := range proc.MaskedPaths {
		if st, err := os.Stat(p); err == nil {
			m.masked = append(m.masked, maskedPath{p, st.IsDir()})
		}
	}
	return m, nil
}

// bwrapConfig has the bubblewrap arguments of one sandbox.
type bwrapConfig struct {
	startConfig
	dir, guest   string
	root         bool
	machine      hostFiles
	groups       []jailshim.Group
	groupsInside []string
}

// bubblewrap returns bubblewrap's command line, and the data that it reads from descriptors. Most arguments are data, too: a jail
// can read the command line of its first process, and must not learn paths of the host.
func (j bwrapConfig) bubblewrap(program string, filter []byte) (argv []string, data [][]byte) {
	args, data := j.arguments(filter)
	data = append(data, []byte(strings.Join(args, "\x00")+"\x00"))
	return []string{program, "--args", strconv.Itoa(jailshim.FirstData + len(data) - 1), "--", wire.GuestFile, "jail"}, data
}

// arguments returns bubblewrap's arguments, and the data that they name by descriptors.
func (j bwrapConfig) arguments(filter []byte) (argv []string, data [][]byte) {
	argv = namespaces(j.root, j.NetworkNone)
	add := func(args ...string) { argv = append(argv, args...) }
	fd := func(content []byte) string {
		data = append(data, content)
		return strconv.Itoa(jailshim.FirstData + len(data) - 1)
	}
	file := func(path, content string) { add("--perms", "0644", "--file", fd([]byte(content)), path) }
	made := map[string]bool{"/": true}
	// Directories that bubblewrap creates implicitly are accessible only to its user.
	var above func(p string)
	above = func(p string) {
		if p = path.Dir(p); !made[p] {
			above(p)
			add("--perms", "0755", "--dir", p)
			made[p] = true
		}
	}
	if !j.root {
		add("--uid", strconv.Itoa(j.UID), "--gid", strconv.Itoa(j.GID))
	}
	// The guest is the first process: commands, which run as bubblewrap's user, could trace bubblewrap's own first process, and
	// programs that they make it start would outlive them.
	add(
		"--as-pid-1", "--die-with-parent", "--new-session", "--hostname", "sandbox", "--clearenv", "--setenv", "LANG",
		"C.UTF-8", "--cap-drop", "ALL",
	)
	if j.root {
		for _, c := range guestCaps {
			add("--cap-add", c)
		}
	}
	add("--ro-bind", j.machine.root+"/usr", "/usr")
	for _, t := range j.machine.top {
		if t.link != "" {
			add("--symlink", t.link, t.path)
		} else {
			add("--ro-bind", j.machine.root+t.path, t.path)
		}
	}
	add("--proc", "/proc")
	if j.root {
		add("--ro-bind", "/proc/sys", "/proc/sys") // bubblewrap does so only if its user cannot write to it
	}
	for _, p := range j.machine.masked {
		if p.dir {
			add("--size", "4096", "--tmpfs", p.path, "--remount-ro", p.path)
		} else {
			add("--dev-bind", os.DevNull, p.path) // with nodev, it could not be read as empty
		}
	}
	add("--dev", "/dev")
	for _, f := range []struct {
		path  string
		share int64
	}{{"/dev/shm", 4}, {"/tmp", 2}} {
		add("--perms", "1777")
		if j.MemoryBytes > 0 {
			size := j.MemoryBytes // no group counts it
			if len(j.groups) > 0 {
				size /= f.share // files count as memory that no end of a process frees: the guest would be killed for them
			}
			add("--size", strconv.FormatInt(size, 10))
		}
		add("--tmpfs", f.path)
	}
	above("/run/x")
	above("/var/x")
	add("--symlink", "../tmp", "/var/tmp", "--symlink", "../run", "/var/run")
	above("/etc/x")
	file(
		"/etc/passwd",
		fmt.Sprintf(
			"root:x:0:0:root:/root:/usr/sbin/nologin\nsandbox:x:%d:%d::%s:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
			j.UID, j.GID, home,
		),
	)
	file("/etc/group", fmt.Sprintf("root:x:0:\nsandbox:x:%d:\nnogroup:x:65534:\n", j.GID))
	file("/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\nservices: files\nprotocols: files\n")
	file("/etc/hosts", "127.0.0.1 localhost sandbox\n::1 localhost\n")
	file("/etc/hostname", "sandbox\n")
	if !j.NetworkNone {
		file("/etc/resolv.conf", string(j.machine.resolv))
	}
	for _, f := range j.machine.files {
		above(f.path)
		file(f.path, f.content)
	}
	for _, p := range j.machine.etc {
		above(p)
		add("--ro-bind", j.machine.root+p, p)
	}
	for i, g := range j.groups {
		above(j.groupsInside[i])
		add("--ro-bind", g.Dir, j.groupsInside[i])
	}
	above(home)
	add("--bind", filepath.Join(j.dir, workspaceDir), workspace, "--bind", filepath.Join(j.dir, homeDir), home)
	// With an ordinary user, commands own the guest's directory, too: it has only the program.
	add("--perms", "0700", "--dir", wire.GuestDir, "--ro-bind", j.guest, wire.GuestFile)
	for _, dir := range []string{"/usr", "/proc", "/dev", "/tmp", workspace, home} {
		made[dir] = true
	}
	for _, m := range j.Mounts {
		above(path.Clean(m.Target))
		made[path.Clean(m.Target)] = true
		add(mountOption(m), m.Source, path.Clean(m.Target))
	}
	add("--remount-ro", "/dev", "--remount-ro", "/", "--seccomp", fd(filter), "--chdir", "/")
	return argv, data
}

func mountOption(m runtime.Mount) string {
	if m.ReadOnly {
		return "--ro-bind"
	}
	return "--bind"
}
