// Package sandbox creates standalone sandboxes and runs commands in them.
//
// A Manager creates, finds and lists sandboxes. A Sandbox runs commands; Files, Endpoints and Branch give access to its files,
// ports and commits. The engine is the one that the docker command would use. NewManager contacts nothing; methods connect when
// they need to. The context of a method bounds it. Methods may be called concurrently.
//
// A sandbox runs a guest program, which the module does not contain. It is built once with the go command, from the
// version of this module that the program was built with, unless Options.Programs provides it.
//
// Stop ends a sandbox and keeps its files; Remove removes it. One with LifetimeNamed stays until Remove. One with
// LifetimeEphemeral also ends with the program that created it, even if that is killed: its guest ends it after a minute without
// a keep-alive signal (Spec.OwnerTimeout).
package sandbox

import (
	"context"
	"fmt"
	"io"

	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/host/wireclient"
	"github.com/sandbox-agent/sandbox-agent/internal/host/worktree"
	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
)

// Executor runs commands and interpreter sessions: a Sandbox or a Nested.
type Executor interface {
	Run(ctx context.Context, c Command) (RunResult, error)
	Start(ctx context.Context, c Command) (*Process, error)
	OpenSession(ctx context.Context, o SessionOptions) (*Session, error)
	Files() *Files
	Endpoints() *Endpoints
}

// Sandbox is one sandbox. It connects at its first use, restarts a stopped sandbox and reconnects after a lost connection.
type Sandbox struct{ in *instance }

// Name returns the sandbox's name.
func (sb *Sandbox) Name() string { return sb.in.spec.Name }

// Spec returns the spec from which the sandbox was created, with defaults and its current network policy.
func (sb *Sandbox) Spec() Spec { return sb.in.current() }

// Info describes the sandbox as it was found and since used by this program.
func (sb *Sandbox) Info() Info { return sb.in.info() }

// Recreated reports whether the sandbox was recreated since Get because its container was missing. Files outside of mounts are lost then.
func (sb *Sandbox) Recreated() bool {
	sb.in.mu.Lock()
	defer sb.in.mu.Unlock()
	return sb.in.recreated
}

// Files returns access to the sandbox's files.
func (sb *Sandbox) Files() *Files { return &Files{sb.in} }

// Endpoints returns access to the sandbox's ports.
func (sb *Sandbox) Endpoints() *Endpoints { return &Endpoints{sb.in} }

// Branch returns access to the commits of the sandbox's clone or worktree.
func (sb *Sandbox) Branch() *Branch { return &Branch{in: sb.in} }

// Start starts a command. The caller must call Wait or Close.
func (sb *Sandbox) Start(ctx context.Context, c Command) (*Process, error) {
	return sb.in.start(ctx, c)
}

// Run runs a command to its end. A failing command is not an error: see RunResult.ExitCode. The end of ctx ends the
// command, unless Background is set.
func (sb *Sandbox) Run(ctx context.Context, c Command) (RunResult, error) { return sb.in.run(ctx, c) }

// OpenSession returns the session of an ID and starts it if it does not exist: see Created. A session of that ID with another
// driver is an ErrExists.
func (sb *Sandbox) OpenSession(ctx context.Context, o SessionOptions) (*Session, error) {
	return openSession(ctx, sb.in, o)
}

// Logs writes the guest's log, with follow until the sandbox ends. It has the reason of its end and no output of commands.
func (sb *Sandbox) Logs(ctx context.Context, follow bool, w io.Writer) error {
	r, id := sb.in.at()
	if id == "" {
		return fmt.Errorf("sandbox %s has no instance: %w; start it with: sandbox-agent resume %[1]s", sb.Name(), ErrNotFound)
	}
	return public(r.Logs(ctx, id, runtime.LogOptions{Follow: follow, Stdout: w, Stderr: w}))
}

// Resume starts a stopped sandbox. Resuming a running one is not an error.
func (sb *Sandbox) Resume(ctx context.Context) error { return sb.in.resume(ctx) }

// Stop ends everything in the sandbox and keeps its files. Commands get SIGTERM and have five seconds to end.
// The next use restarts it. Stopping a stopped sandbox is not an error.
func (sb *Sandbox) Stop(ctx context.Context) error { return sb.in.stop(ctx) }

// RemoveOptions control Remove.
type RemoveOptions struct {
	// Discard removes the sandbox without reading it: uncommitted changes are lost, also in a worktree.
	Discard bool
	// DiscardBranch, with Discard, also deletes the branch of a worktree with its commits: an unused sandbox leaves nothing.
	DiscardBranch bool
}

// Remove ends the sandbox and removes it with its files, endpoints and record; its branch and history stay. Unless
// Discard is set, it saves uncommitted changes first (see Branch.SaveUncommitted). If saving fails, or files would be lost, it
// removes nothing and returns ErrUnsaved. Removing a missing sandbox is not an error.
func (sb *Sandbox) Remove(ctx context.Context, o RemoveOptions) error {
	s := sb.Spec()
	if o.Discard {
		return sb.in.remove(ctx, func() error {
			if s.Worktree == "" {
				return nil
			}
			w := worktree.Of(sb.in.c.state, s.Name, s.Worktree)
			if o.DiscardBranch {
				return w.Discard(ctx)
			}
			return w.Remove(ctx)
		})
	}
	if s.Worktree == "" { // its files are on the host, and unsaved files stay there
		if err := sb.Branch().SaveForRemoval(ctx); err != nil {
			return err
		}
	}
	return sb.in.discard(ctx)
}

// Close closes the connection to the sandbox and ends the keep-alive signals of a sandbox with LifetimeEphemeral. The sandbox
// itself continues.
func (sb *Sandbox) Close() error {
	sb.in.conn.drop()
	return nil
}

// Attach returns a command's output from an offset in bytes. The command is running, or is an ended background command.
// id may be an unambiguous prefix.
func (sb *Sandbox) Attach(ctx context.Context, id string, from int64) (*Process, error) {
	var p *Process
	err := sb.in.use(ctx, func(client *wireclient.Client) error {
		attached, err := client.Attach(ctx, id, from)
		p = &Process{client: client, p: attached}
		return err
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}

var validName = lazyregexp.New(`^[a-z0-9][a-z0-9_-]{0,62}$`)

// ValidName reports whether the name is valid for a sandbox.
func ValidName(name string) bool { return validName.MatchString(name) }
