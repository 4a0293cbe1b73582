package jail

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/jailshim"
	"github.com/sandbox-agent/sandbox-agent/internal/safeopen"
	"github.com/sandbox-agent/sandbox-agent/wire"
)

const (
	// endTime bounds the end of a shim: it kills its processes, and removes the directory of a throwaway sandbox.
	endTime = 15 * time.Second
	endLook = 200 * time.Microsecond
	maxLog  = 1 << 20 // bytes of a shim's log
)

// jails is the runtime jail or host.
type jails struct {
	kind string
	o    Options
	dir  string // of all sandboxes in the state directory, of both kinds

	mu   sync.Mutex
	fits bool // a trial succeeded
}

var (
	_ runtime.SandboxRuntime = (*jails)(nil)
	_ runtime.LocalFiles     = (*jails)(nil)
)

func newRuntime(kind string, o Options) runtime.SandboxRuntime {
	return &jails{kind: kind, o: o, dir: filepath.Join(o.State, "sandboxes")}
}

func (s *jails) Capabilities(ctx context.Context) ([]runtime.Capability, error) {
	if s.kind == kindMachine {
		if err := s.o.Allowed(); err != nil {
			return nil, err
		}
		return append(held(), runtime.CapNetworkFull, runtime.CapPersistent), nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.fits {
		if err := s.tried(ctx); err != nil {
			return nil, err
		}
		s.fits = true
	}
	all := append(
		held(), runtime.CapNetworkNone, runtime.CapNetworkProxy, runtime.CapNetworkFull, runtime.CapPersistent, runtime.CapMounts,
		runtime.CapRootFS, runtime.CapRepository,
	)
	if !slices.Contains(all, runtime.CapMemory) {
		all = append(all, runtime.CapMemory) // enforced by the shim
	}
	if !slices.Contains(all, runtime.CapPIDs) && os.Geteuid() != 0 && countsByNamespace() {
		all = append(all, runtime.CapPIDs)
	}
	return all, nil
}

// held returns the limits that cgroups can enforce here.
func held() (all []runtime.Capability) {
	p := findParents()
	for c, limit := range map[string]runtime.Capability{"memory": runtime.CapMemory, "pids": runtime.CapPIDs, "cpu": runtime.CapCPUs} {
		if _, ok := p[c]; ok {
			all = append(all, limit)
		}
	}
	slices.Sort(all)
	return all
}

// countsByNamespace reports whether the kernel limits processes by user namespace: since Linux 5.14.
func countsByNamespace() bool {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return false
	}
	var major, minor int
	if _, err := fmt.Sscanf(unix.ByteSliceToString(u.Release[:]), "%d.%d", &major, &minor); err != nil {
		return false
	}
	const fifth, fourteenth = 5, 14
	return major > fifth || major == fifth && minor >= fourteenth
}

func (s *jails) Create(ctx context.Context, spec runtime.SandboxSpec) (string, error) {
	s.sweep(ctx)
	r := record{Kind: s.kind, Labels: spec.Labels, Created: time.Now(), startConfig: startConfig{
		Config:      spec.Config,
		Root:        spec.Root,
		NetworkNone: spec.NetworkNone,
		Limits:      spec.Limits,
		Mounts:      spec.Mounts,
		Throwaway:   spec.Throwaway,
	}}
	var err error
	if r.UID, r.GID, err = s.userOf(filepath.Join(s.dir, spec.Name), spec.Mounts); err != nil {
		return "", fmt.Errorf("create the sandbox: %w", err)
	}
	guest, err := s.guest(ctx)
	if err != nil {
		return "", err
	}
	f, err := s.make(spec.Name, r)
	if err != nil {
		return "", err
	}
	defer f.close()
	if err := s.start(ctx, f, r, guest); err != nil {
		return "", errors.Join(fmt.Errorf("create the sandbox: %w", err), s.doubt(ctx), s.remove(context.WithoutCancel(ctx), f))
	}
	return spec.Name, nil
}

// userOf returns the user of a sandbox's commands. For root's jails it is never root, who can write kernel settings without a
// capability: it is the owner of the first writable mount, or a user of the sandbox's own.
func (s *jails) userOf(path string, mounts []runtime.Mount) (uid, gid int, err error) {
	if os.Geteuid() != 0 || s.kind == kindMachine {
		return os.Geteuid(), os.Getegid(), nil
	}
	own := runtime.UIDFor(path)
	held, _, err := runtime.Hold(mounts, wire.Config{})
	if err != nil {
		return 0, 0, err
	}
	defer held.Close()
	for i, m := range mounts {
		if m.ReadOnly {
			continue
		}
		if at := held.Owners[i]; at.UID != 0 {
			if gid = int(at.GID); gid == 0 {
				gid = own
			}
			return int(at.UID), gid, nil
		}
		break
	}
	return own, own, nil
}

func (s *jails) Start(ctx context.Context, id string) error {
	f, err := s.open(id)
	if err != nil {
		return err
	}
	defer f.close()
	if f.serves(ctx) {
		return nil
	}
	if err := f.lock(ctx); err != nil {
		return err
	}
	if f.serves(ctx) { // another command was faster
		return nil
	}
	if err := f.stop(ctx); err != nil { // a shim outlives its guest until all of its processes have ended
		return err
	}
	r, err := f.record()
	if err != nil {
		return err
	}
	guest, err := s.guest(ctx)
	if err != nil {
		return err
	}
	if err := s.start(ctx, f, r, guest); err != nil {
		return errors.Join(fmt.Errorf("restart the sandbox: %w", err), s.doubt(ctx))
	}
	return nil
}

// serves reports whether the sandbox's guest accepts connections: an ended one refuses them.
func (f *sandboxDir) serves(ctx context.Context) bool {
	if !f.shim().Alive() {
		return false
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", f.at(socketFile))
	if err == nil {
		_ = conn.Close()
	}
	return !errors.Is(err, syscall.ECONNREFUSED)
}

func (s *jails) open(id string) (*sandboxDir, error) {
	f, err := openDir(filepath.Join(s.dir, id))
	if err != nil {
		return nil, fmt.Errorf("open the sandbox's directory %s: %w", filepath.Join(s.dir, id), err)
	}
	return f, nil
}

func (s *jails) Stream(ctx context.Context, id string) (io.ReadWriteCloser, error) {
	f, err := s.open(id)
	if err != nil {
		return nil, err
	}
	defer f.close()
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", f.at(socketFile))
	if err != nil {
		return nil, fmt.Errorf("connect to the sandbox's guest: %w: %w", runtime.ErrExited, errors.Unwrap(err))
	}
	return conn, nil
}

// Instances implements runtime.SandboxRuntime. It includes sandboxes with damaged records.
func (s *jails) Instances(_ context.Context, labels map[string]string) ([]runtime.Instance, error) {
	names, err := s.names(labels[runtime.LabelSandbox])
	if err != nil {
		return nil, fmt.Errorf("list sandboxes: %w", err)
	}
	var all []runtime.Instance
	for _, name := range names {
		b, err := s.box(name, labels)
		switch {
		case errors.Is(err, runtime.ErrNotFound): // removed meanwhile
		case err != nil && s.kind == kindJail: // listed once, since its kind is unknown
			all = append(
				all,
				runtime.Instance{ID: name, Name: name, Labels: map[string]string{runtime.LabelSandbox: name}, State: "damaged", Damaged: err},
			)
		case b != nil:
			all = append(all, *b)
		}
	}
	return all, nil
}

// names returns the directories of sandboxes, or one if it exists.
func (s *jails) names(one string) (all []string, err error) {
	if one != "" {
		if _, err := os.Lstat(filepath.Join(s.dir, one)); errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		return []string{one}, nil
	}
	entries, err := os.ReadDir(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") {
			all = append(all, e.Name())
		}
	}
	return all, err
}

// box returns the sandbox in a directory; nil if it is of another kind or lacks a label.
func (s *jails) box(name string, labels map[string]string) (*runtime.Instance, error) {
	f, err := s.open(name)
	if err != nil {
		return nil, err
	}
	defer f.close()
	r, err := f.record()
	if err != nil && !f.there() {
		return nil, runtime.ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	for k, v := range labels {
		if have, ok := r.Labels[k]; !ok || v != "" && have != v {
			return nil, nil
		}
	}
	if r.Kind != s.kind {
		return nil, nil
	}
	b := &runtime.Instance{ID: name, Name: name, Labels: r.Labels, State: "exited", Created: r.Created}
	if f.shim().Alive() {
		b.State = "running"
	}
	return b, nil
}

func (s *jails) FilesGone(id string) bool {
	f, err := s.open(id)
	if err != nil {
		return false
	}
	defer f.close()
	_, err = f.root.Lstat(workspaceDir)
	return errors.Is(err, fs.ErrNotExist) && f.there()
}

// Logs implements runtime.SandboxRuntime. It has the output of the guest and its shim.
func (s *jails) Logs(_ context.Context, id string, o runtime.LogOptions) error {
	f, err := s.open(id)
	if err != nil {
		return err
	}
	defer f.close()
	me := uint32(os.Geteuid())
	if st, err := f.root.Lstat(jailshim.LogFile); err == nil && st.ModTime().Before(o.Since) {
		return nil
	}
	b, err := safeopen.Read(f.root, jailshim.LogFile, &me, maxLog)
	if errors.Is(err, fs.ErrNotExist) || o.Stderr == nil {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the log of the sandbox: %w", err)
	}
	lines := bytes.SplitAfter(b, []byte("\n"))
	if n := len(lines); n > 0 && len(lines[n-1]) == 0 {
		lines = lines[:n-1]
	}
	if o.Tail > 0 {
		lines = lines[max(0, len(lines)-o.Tail):]
	}
	_, err = o.Stderr.Write(bytes.Join(lines, nil))
	return err
}

// Stop implements runtime.SandboxRuntime. A shim kills at once and ignores the grace.
func (s *jails) Stop(ctx context.Context, id string, _ time.Duration) error {
	f, err := s.open(id)
	if errors.Is(err, runtime.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.close()
	if err := f.lock(ctx); err != nil && !errors.Is(err, runtime.ErrNotFound) {
		return err
	}
	return f.stop(ctx)
}

// stop ends the shim with all of its processes. The caller holds the lock.
func (f *sandboxDir) stop(ctx context.Context) error {
	k := f.shim()
	ctx, cancel := context.WithTimeout(ctx, endTime)
	defer cancel()
	for _, sig := range []unix.Signal{unix.SIGTERM, unix.SIGKILL} {
		if err := k.Signal(sig); errors.Is(err, os.ErrProcessDone) {
			return nil
		} else if err != nil {
			return fmt.Errorf("end the sandbox's shim: %w", err)
		}
		until := time.After(endTime / 3)
		for waiting := true; waiting; {
			if !k.Alive() {
				return nil
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("wait for the end of the sandbox's shim: %w", context.Cause(ctx))
			case <-until:
				waiting = false
			case <-time.After(endLook):
			}
		}
	}
	return fmt.Errorf("the sandbox's shim, process %d, survives SIGKILL", k.PID)
}

func (s *jails) Remove(ctx context.Context, id string) error {
	f, err := s.open(id)
	if errors.Is(err, runtime.ErrNotFound) {
		return nil
	}
	if errors.Is(err, safeopen.ErrUnsafe) {
		path := filepath.Join(s.dir, id)
		if st, serr := os.Lstat(path); serr == nil && !st.IsDir() { // a file or link in place of the directory
			return os.Remove(path)
		}
	}
	if err != nil {
		return err
	}
	defer f.close()
	if err := f.lock(ctx); errors.Is(err, runtime.ErrNotFound) {
		return nil
	} else if err != nil {
		return err
	}
	return s.remove(ctx, f)
}

// remove stops and removes a sandbox. The caller holds the lock.
func (s *jails) remove(ctx context.Context, f *sandboxDir) error {
	if err := f.stop(ctx); err != nil {
		return err
	}
	errs := []error{f.removeGroups()}
	// Renamed first: the name is free at once, and a partly removed directory is not a sandbox.
	away := filepath.Join(s.dir, goingAway+filepath.Base(f.path))
	if err := errors.Join(jailshim.RemoveAll(away), os.Rename(f.path, away)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(append(errs, fmt.Errorf("remove the sandbox's directory: %w", err))...)
	}
	return errors.Join(append(errs, jailshim.RemoveAll(away))...)
}

// freshTime is the age at which a directory's creation or removal must have been interrupted.
const freshTime = 10 * time.Minute

// sweep removes leftovers of killed commands: partly created or removed directories, and throwaway sandboxes whose shim was killed.
func (s *jails) sweep(ctx context.Context) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		f, err := s.open(e.Name())
		if err != nil {
			continue // removed, or another user's
		}
		if s.stale(f) && f.tryLock() && f.there() && s.stale(f) {
			_ = s.remove(ctx, f) // the next sweep tries again
		}
		f.close()
	}
}

func (s *jails) stale(f *sandboxDir) bool {
	if name := filepath.Base(f.path); strings.HasPrefix(name, beginning) || strings.HasPrefix(name, goingAway) {
		st, err := f.dir.Stat()
		return err == nil && time.Since(st.ModTime()) > freshTime
	}
	r, err := f.record()
	return err == nil && r.Throwaway && r.Kind == s.kind && !f.shim().Alive()
}
