package jail

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/host/statedir"
	"github.com/sandbox-agent/sandbox-agent/internal/jailshim"
	"github.com/sandbox-agent/sandbox-agent/internal/safeopen"
	"github.com/sandbox-agent/sandbox-agent/wire"
)

// Names in a sandbox's directory; jailshim.LogFile is another one.
const (
	recordFile   = "record.json"
	shimFile     = "keeper.json"
	socketFile   = "wire.sock"
	workspaceDir = "workspace"
	homeDir      = "home"
)

// Prefixes of directories that are being created or removed; sandboxes cannot have such names.
const (
	beginning = ".new-"
	goingAway = ".gone-"
)

const (
	maxRecord = 8 << 20          // bytes; the environment is the largest part
	lockTime  = 60 * time.Second // another command may be starting or stopping the sandbox
	lockLook  = 5 * time.Millisecond
)

// record is the spec of a sandbox. It is written once.
type record struct {
	Kind    string            `json:"kind"`
	Labels  map[string]string `json:"labels"`
	Created time.Time         `json:"created"`
	startConfig
}

// startConfig is the part of a runtime.SandboxSpec that a restart needs.
type startConfig struct {
	Config      wire.Config `json:"config"`
	Root        string      `json:"root,omitempty"`
	NetworkNone bool        `json:"network_none,omitempty"`
	runtime.Limits
	Mounts    []runtime.Mount `json:"mounts,omitempty"`
	Throwaway bool            `json:"throwaway,omitempty"`
	UID       int             `json:"uid"` // of commands
	GID       int             `json:"gid"`
}

// sandboxDir is a sandbox's open directory. The holder of its lock may start, stop or remove the sandbox.
type sandboxDir struct {
	path string
	dir  *os.File
	root *os.Root
}

func (f *sandboxDir) close() {
	_ = f.root.Close()
	_ = f.dir.Close() // with the lock
}

// openDir opens an existing directory. It returns safeopen.ErrUnsafe for a link, or a directory of another user.
func openDir(path string) (*sandboxDir, error) {
	dir, err := os.OpenFile(path, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, runtime.ErrNotFound
	}
	if errors.Is(err, syscall.ELOOP) || errors.Is(err, syscall.ENOTDIR) {
		return nil, safeopen.ErrUnsafe
	}
	if err != nil {
		return nil, err
	}
	st, err := dir.Stat()
	if err == nil && st.Sys().(*syscall.Stat_t).Uid != uint32(os.Geteuid()) {
		err = safeopen.ErrUnsafe
	}
	var root *os.Root
	if err == nil {
		root, err = os.OpenRoot(fmt.Sprintf("/proc/self/fd/%d", dir.Fd()))
	}
	if err != nil {
		_ = dir.Close()
		return nil, err
	}
	return &sandboxDir{path, dir, root}, nil
}

// lock waits for the directory's lock and checks that the directory still exists.
func (f *sandboxDir) lock(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lockTime)
	defer cancel()
	for !f.tryLock() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for another command that starts or stops the sandbox: %w", context.Cause(ctx))
		case <-time.After(lockLook):
		}
	}
	if !f.there() {
		return runtime.ErrNotFound
	}
	return nil
}

// there reports whether the directory still has its name.
func (f *sandboxDir) there() bool {
	there, err := os.Lstat(f.path)
	if err != nil {
		return false
	}
	here, err := f.dir.Stat()
	return err == nil && os.SameFile(here, there)
}

func (f *sandboxDir) tryLock() bool {
	return unix.Flock(int(f.dir.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil
}

// record reads the directory's record.
func (f *sandboxDir) record() (r record, err error) {
	err = f.read(recordFile, &r)
	if err == nil && (r.Kind != kindJail && r.Kind != kindMachine || r.Labels[runtime.LabelSandbox] != filepath.Base(f.path)) {
		err = fmt.Errorf("read %s: not the record of this sandbox", filepath.Join(f.path, recordFile))
	}
	return r, err
}

func (f *sandboxDir) read(name string, v any) error {
	me := uint32(os.Geteuid())
	b, err := safeopen.Read(f.root, name, &me, maxRecord)
	if err == nil {
		err = json.Unmarshal(b, v)
	}
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		err = e.Err // without the path in the open directory
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", filepath.Join(f.path, name), err)
	}
	return nil
}

// write replaces a file of the directory atomically. With durable it survives a power failure, at about the cost of a start.
func (f *sandboxDir) write(name string, v any, durable bool) error {
	b, err := json.Marshal(v)
	if err == nil {
		err = f.writeFile(name+".new", b, durable)
	}
	if err == nil {
		err = f.root.Rename(name+".new", name)
	}
	if err == nil && durable {
		err = syncFile(f.dir)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", filepath.Join(f.path, name), err)
	}
	return nil
}

func (f *sandboxDir) writeFile(name string, b []byte, durable bool) error {
	to, err := f.root.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = to.Write(b)
	if err == nil && durable {
		err = syncFile(to)
	}
	return errors.Join(err, to.Close())
}

// syncFile syncs a file or directory if the file system can. It is a variable for tests.
var syncFile = func(f *os.File) error {
	if err := f.Sync(); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOTSUP) {
		return err
	}
	return nil
}

// at returns a short path to a name in the directory: a socket's path has at most 108 bytes.
func (f *sandboxDir) at(name string) string {
	return fmt.Sprintf("/proc/self/fd/%d/%s", f.dir.Fd(), name)
}

// shim is the parent process of the jail.
type shim struct {
	statedir.Process
	Groups []string `json:"groups,omitempty"` // the cgroups that it creates, relative to those of the process that started it
}

// shim returns the last shim, or a dead one if there was none.
func (f *sandboxDir) shim() *shim {
	k := &shim{}
	if f.read(shimFile, k) != nil {
		return &shim{}
	}
	return k
}

// removeGroups removes the cgroups of a shim that was killed.
func (f *sandboxDir) removeGroups() error {
	var errs []error
	for _, dir := range f.shim().Groups {
		errs = append(errs, jailshim.RemoveGroup(dir))
	}
	return errors.Join(errs...)
}

// dirs creates the missing directories for a sandbox's files.
func (f *sandboxDir) dirs(r record) error {
	for _, sub := range []string{workspaceDir, homeDir} {
		err := f.root.Mkdir(sub, 0o755)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err == nil && os.Geteuid() == 0 {
			err = f.root.Chown(sub, r.UID, r.GID)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// make creates and locks the directory of a new sandbox. A name in use is a runtime.ErrConflict.
func (s *jails) make(name string, r record) (*sandboxDir, error) {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, fmt.Errorf("create the directory of sandboxes: %w", err)
	}
	path := filepath.Join(s.dir, beginning+strings.ToLower(rand.Text()))
	if err := os.Mkdir(path, 0o700); err != nil {
		return nil, fmt.Errorf("create the sandbox's directory: %w", err)
	}
	f, err := openDir(path)
	if err != nil {
		return nil, errors.Join(err, os.Remove(path))
	}
	f.tryLock()                                // no other process knows it
	err = f.write(recordFile, r, !r.Throwaway) // a throwaway sandbox does not survive a power failure
	if err == nil {
		err = f.dirs(r)
	}
	if err == nil {
		f.path = filepath.Join(s.dir, name)
		if err = unix.Renameat2(unix.AT_FDCWD, path, unix.AT_FDCWD, f.path, unix.RENAME_NOREPLACE); errors.Is(err, fs.ErrExist) {
			err = fmt.Errorf("create the sandbox: %w", runtime.ErrConflict)
		}
	}
	if err != nil {
		f.close()
		return nil, errors.Join(err, os.RemoveAll(path))
	}
	return f, nil
}
