// Package usershell runs shells of the machine's user in a box, as the agent's user with the agent's restrictions.
//
// Boot writes the agent's environment and mount namespace to a file while the agent works. The file is in memory and readable by root only,
// so that it is in no layer of the box.
package usershell

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

// Dir is the directory of the entry file, which root creates before the agent runs.
const Dir = "/dev/shm/sandbox-agent-shell"

const (
	file = "agent.json"
	// closeTime bounds the wait for a shell that is about to start: that takes milliseconds.
	closeTime = 2 * time.Second
	closePoll = 5 * time.Millisecond
)

// ErrClosed means that no agent is working in the box.
var ErrClosed = errors.New("no agent is working in the sandbox now: a shell is available only while one works, and ends with it")

// Agent is the part of the agent's state that a shell shares.
type Agent struct {
	Env       []string `json:"env"`
	Dir       string   `json:"dir"`
	Namespace string   `json:"place,omitempty"` // see proc.Namespace.Name; "" means the box's own
}

// EntryFile lets user shells join the agent's namespace while it is published.
type EntryFile struct{ dir string }

// New creates an entry file that is not published.
func New(dir string) (*EntryFile, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create the directory of the shells' entry file: %w", err)
	}
	return &EntryFile{dir}, nil
}

// Publish lets shells enter.
func (e *EntryFile) Publish(a Agent) error {
	if e == nil {
		return nil
	}
	b, err := json.Marshal(a)
	if err == nil {
		err = os.WriteFile(filepath.Join(e.dir, file), b, 0o600)
	}
	if err != nil {
		return fmt.Errorf("publish the entry file for shells: %w", err)
	}
	return nil
}

// Withdraw prevents new shells. Shells that are starting have become the agent's user when it returns, so that killing
// the agent's processes includes them.
func (e *EntryFile) Withdraw() error {
	if e == nil {
		return nil
	}
	f, err := os.Open(filepath.Join(e.dir, file))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("withdraw the entry file for shells: %w", err)
	}
	defer func() { _ = f.Close() }()
	if err := os.Remove(f.Name()); err != nil {
		return fmt.Errorf("withdraw the entry file for shells: %w", err)
	}
	for end := time.Now().Add(closeTime); ; time.Sleep(closePoll) {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) || time.Now().After(end) {
			return fmt.Errorf("withdraw the entry file for shells: one is starting: %w", err)
		}
	}
}

// ReadEntry reads the state for a shell. Withdraw waits until in is closed, or the process executes another program.
func ReadEntry(dir string) (a Agent, in *os.File, err error) {
	st, err := os.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return a, nil, ErrClosed
	}
	if err != nil {
		return a, nil, fmt.Errorf("enter the sandbox: %w", err)
	}
	if sys, ok := st.Sys().(*syscall.Stat_t); !ok || !st.IsDir() || st.Mode().Perm() != 0o700 || int(sys.Uid) != os.Geteuid() {
		return a, nil, fmt.Errorf("enter the sandbox: %s does not belong to root", dir)
	}
	if in, err = os.Open(filepath.Join(dir, file)); errors.Is(err, fs.ErrNotExist) {
		return a, nil, ErrClosed
	} else if err != nil {
		return a, nil, fmt.Errorf("enter the sandbox: %w", err)
	}
	if err = unix.Flock(int(in.Fd()), unix.LOCK_SH|unix.LOCK_NB); err != nil {
		return a, nil, errors.Join(ErrClosed, in.Close()) // it is being closed
	}
	if st, err := in.Stat(); err != nil || st.Sys().(*syscall.Stat_t).Nlink == 0 {
		return a, nil, errors.Join(ErrClosed, in.Close())
	}
	if err = json.NewDecoder(in).Decode(&a); err != nil {
		return a, nil, errors.Join(fmt.Errorf("enter the sandbox: %w", err), in.Close())
	}
	return a, in, nil
}

// program is the default shell.
const program = "/bin/bash"

// oomScore equals the agent's: the kernel kills a shell before processes that the box needs.
const oomScore = 500

// Enter replaces this root process by a shell or the command argv, as the agent's user with the agent's restrictions.
// It returns only an error. user includes the agent's control group.
func Enter(dir string, user *proc.Credential, argv []string) error {
	agent, in, err := ReadEntry(dir)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	own := *user
	if agent.Namespace != "" {
		if own.Namespace, err = proc.OpenNamespace(agent.Namespace); err != nil {
			return err
		}
	}
	env := agent.Env
	if term := os.Getenv("TERM"); term != "" && terminal(os.Stdin) {
		env = append(slices.Clone(env), "TERM="+term) // the agent has no terminal
	}
	if len(argv) == 0 {
		argv = []string{program}
	}
	for _, f := range []*os.File{os.Stdin, os.Stdout, os.Stderr} {
		handOver(f, &own)
	}
	return proc.Become(proc.Spec{Argv: argv, Dir: agent.Dir, Env: lastOf(env), User: &own, OOMScoreAdj: oomScore})
}

// lastOf returns an environment in which each variable occurs once: the last value counts, as for the agent.
func lastOf(env []string) (list []string) {
	seen := map[string]bool{}
	for _, kv := range slices.Backward(env) {
		if name, _, _ := strings.Cut(kv, "="); !seen[name] {
			seen[name] = true
			list = append(list, kv)
		}
	}
	slices.Reverse(list)
	return list
}

func terminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// handOver gives a terminal or pipe to the user, who can then open it by name (/dev/stdout).
func handOver(f *os.File, user *proc.Credential) {
	st, err := f.Stat()
	if err == nil && (st.Mode()&os.ModeNamedPipe != 0 || terminal(f)) {
		_ = f.Chown(int(user.UID), int(user.GID)) // best effort: most programs work without it
	}
}
