package jail

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"syscall"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/lockfile"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/host/statedir"
	"github.com/sandbox-agent/sandbox-agent/internal/jailshim"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

const (
	startTime  = 20 * time.Second // by hand it takes some 15 ms
	maxAnswer  = 64 << 10         // bytes of a shim's answer
	hashLength = 32               // characters of the guest's hash in its file name
)

// guest returns the path of the guest program, and unpacks it if it is missing or damaged. The file can be executed but not
// read, so that other processes of its user cannot inspect it. A valid file is never replaced: other processes mount and execute it.
func (s *jails) guest(ctx context.Context) (string, error) {
	packed, err := s.o.Guest(ctx, goruntime.GOARCH)
	if err != nil {
		return "", fmt.Errorf("create the sandbox: %w", err)
	}
	if err := os.MkdirAll(s.o.State, 0o700); err != nil {
		return "", fmt.Errorf("create the state directory: %w", err)
	}
	if err := onlyOurs(s.o.State); err != nil {
		return "", fmt.Errorf("use the guest program in %s: %w", s.o.State, err)
	}
	path := filepath.Join(s.o.State, fmt.Sprintf("guest-%.*s", hashLength, packed.Hash))
	if isGuest(path, packed.Size) {
		return path, nil
	}
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	l, err := lockfile.Take(ctx, path+".lock")
	if err != nil {
		return "", fmt.Errorf("write the guest program: %w", err)
	}
	defer l.Remove()
	if isGuest(path, packed.Size) { // another process was faster
		return path, nil
	}
	b, err := packed.Unpack()
	if err != nil {
		return "", fmt.Errorf("create the sandbox: %w", err)
	}
	if err := writeGuest(path, b); err != nil {
		return "", fmt.Errorf("write the guest program: %w", err)
	}
	return path, nil
}

// writeGuest writes the guest program to path. The caller holds its lock. renameio would keep the mode of an existing file, and
// leave a file of another name when it is killed.
func writeGuest(path string, b []byte) error {
	// A child that is being started inherits the open file for a moment, and a file open for writing cannot be executed.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	part := path + ".new" // may be left from a killed process
	if err := os.Remove(part); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(part, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	// Synced: after a power failure, the size alone could match.
	if err = errors.Join(err, f.Chmod(guestMode), f.Sync(), f.Close()); err == nil {
		err = os.Rename(part, path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(part))
	}
	return nil
}

// guestMode allows only execution.
const guestMode = 0o111

// isGuest reports whether the file is a complete guest program of this user.
func isGuest(path string, size int64) bool {
	st, err := os.Lstat(path)
	return err == nil && st.Mode() == guestMode && st.Size() == size && st.Sys().(*syscall.Stat_t).Uid == uint32(os.Geteuid())
}

// onlyOurs returns an error if another user could replace a program in the directory. Its group is trusted by the owner.
func onlyOurs(dir string) error {
	st, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if owner := st.Sys().(*syscall.Stat_t).Uid; owner != uint32(os.Geteuid()) {
		return fmt.Errorf("the directory belongs to user %d, not to %d: set SANDBOX_AGENT_STATE_DIR to a directory of your own",
			owner, os.Geteuid())
	}
	if st.Mode().Perm()&0o002 != 0 && st.Mode()&fs.ModeSticky == 0 {
		return fmt.Errorf("the directory is writable for all users: chmod o-w %s", dir)
	}
	return nil
}

// start starts the shim of a sandbox, and waits until its guest serves. The caller holds the lock.
func (s *jails) start(ctx context.Context, f *sandboxDir, r record, guest string) error {
	if err := f.dirs(r); err != nil { // the user may have deleted them
		return fmt.Errorf("create the sandbox's directories: %w", err)
	}
	if s.kind == kindJail {
		held, config, err := runtime.Hold(r.Mounts, r.Config)
		if err != nil {
			return err
		}
		defer held.Close() // after the guest has verified them
		r.Config = config
	}
	plan, err := s.plan(f, r, guest)
	if err != nil {
		return err
	}
	if err := f.removeGroups(); err != nil {
		return err
	}
	listener, err := f.listen(ctx)
	if err != nil {
		return err
	}
	defer listener.Close()
	log, err := os.OpenFile(f.at(jailshim.LogFile), os.O_CREATE|os.O_WRONLY|os.O_APPEND|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return fmt.Errorf("open the sandbox's log: %w", err)
	}
	defer log.Close()
	// Files, not copied by this process: the shim outlives it.
	inR, inW, err := os.Pipe()
	if err != nil {
		return err
	}
	defer inW.Close()
	outR, outW, err := os.Pipe()
	if err != nil {
		_ = inR.Close()
		return err
	}
	defer outR.Close()
	p, err := proc.Start(context.WithoutCancel(ctx), proc.Spec{
		Argv: []string{guest, "keep"}, Dir: "/", Env: []string{}, Stdin: inR, Stdout: outW, Stderr: log, ExtraFiles: []*os.File{listener},
	})
	_, _ = inR.Close(), outW.Close()
	if err != nil {
		return fmt.Errorf("start the sandbox's shim: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _, _ = inW.Close(), outR.Close() })
	defer stop()
	k := shim{Process: *statedir.ProcessOf(p.PID())}
	for _, g := range plan.Groups {
		k.Groups = append(k.Groups, g.Dir)
	}
	err = f.write(shimFile, k, false)
	if err == nil {
		to := json.NewEncoder(inW)
		err = errors.Join(to.Encode(plan), to.Encode(jailshim.Go), inW.Close())
	}
	var answer jailshim.Ready
	if err == nil {
		err = json.NewDecoder(io.LimitReader(outR, maxAnswer)).Decode(&answer)
	}
	switch {
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case err != nil:
		err = fmt.Errorf("the sandbox's shim ended without an answer: %w", err)
	case answer.Error != "":
		err = fmt.Errorf("the sandbox exited: %s", strings.TrimSpace(answer.Error))
	default:
		return nil
	}
	return errors.Join(err, f.stop(context.WithoutCancel(ctx)))
}

// listen creates the guest's socket. Only this user can access the directory.
func (f *sandboxDir) listen(ctx context.Context) (*os.File, error) {
	if err := f.root.Remove(socketFile); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("create the sandbox's socket: %w", err)
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", f.at(socketFile))
	if err != nil {
		return nil, fmt.Errorf("create the sandbox's socket: %w", err)
	}
	u := l.(*net.UnixListener)
	u.SetUnlinkOnClose(false)
	defer u.Close()
	if err := f.root.Chmod(socketFile, 0o600); err != nil {
		return nil, fmt.Errorf("create the sandbox's socket: %w", err)
	}
	return u.File()
}

func (s *jails) plan(f *sandboxDir, r record, guest string) (jailshim.Config, error) {
	p := jailshim.Config{Dir: f.path, Throwaway: r.Throwaway, End: syscall.SIGKILL, Env: []string{}}
	config := r.Config
	at := findParents()
	var inside []string
	p.Groups, inside = at.groups(f.path, r.startConfig)
	if s.kind == kindMachine {
		config.Unisolated = true
		config.Dir = cmp.Or(config.Dir, filepath.Join(f.path, workspaceDir))
		p.Argv, p.End, p.Env = []string{guest, "jail"}, syscall.SIGTERM, s.environment()
	} else {
		config.Dir = cmp.Or(config.Dir, workspace)
		config.User = ""
		if os.Geteuid() == 0 {
			config.User = fmt.Sprintf("%d:%d", r.UID, r.GID)
		}
		if _, held := at["memory"]; !held && r.MemoryBytes > 0 { // the shim measures its use (internal/jailshim/watch_linux.go)
			p.WatchBytes, config.DataBytes = r.MemoryBytes, uint64(r.MemoryBytes)
		}
		if _, held := at["pids"]; !held && r.PIDs > 0 {
			config.Processes = uint64(r.PIDs)
		}
		filter, err := proc.CallFilter()
		if err != nil {
			return jailshim.Config{}, err
		}
		m, err := look(r.Root)
		if err != nil {
			return jailshim.Config{}, err
		}
		j := bwrapConfig{
			startConfig: r.startConfig, dir: f.path, guest: guest, root: os.Geteuid() == 0, machine: m, groups: p.Groups, groupsInside: inside,
		}
		bwrap, err := proc.Find(program)
		if err != nil {
			return jailshim.Config{}, noBubblewrap
		}
		p.Argv, p.Data = j.bubblewrap(bwrap, filter)
		// A setuid program would not get its privileges after such a restriction.
		if st, err := os.Stat(bwrap); err == nil {
			p.OwnSockets = st.Mode()&fs.ModeSetuid == 0
		}
	}
	var err error
	p.Config, err = json.Marshal(config)
	return p, err
}

// passed are the host's variables in a sandbox of runtime host.
var passed = []string{"PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "TMPDIR"}

func (s *jails) environment() []string {
	env := []string{}
	for _, name := range passed {
		if v := s.o.Getenv(name); v != "" {
			env = append(env, name+"="+v)
		}
	}
	return env
}
