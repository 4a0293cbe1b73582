package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/host/sandboxstore"
	"github.com/sandbox-agent/sandbox-agent/internal/host/wireclient"
	"github.com/sandbox-agent/sandbox-agent/internal/host/worktree"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
)

// instance is what this program knows of one sandbox, whether its container or jail exists or only its record, with the connection to it.
type instance struct {
	c           *creator // recreates a missing sandbox
	spec        Spec
	noAutoStart bool
	foreign     bool  // belongs to another state directory
	making      bool  // this command is creating it
	unborn      bool  // its first creation was not complete when it was found: no command has run in it
	damaged     error // why its record cannot be read
	owner       string
	created     time.Time
	omitted     []string // see Info.Omitted

	conn connection

	mu        sync.Mutex // guards the fields below, and the network policy of spec; its holder must not block
	r         runtime.SandboxRuntime
	id        string
	from      string // the snapshot from which it was created
	running   bool   // when last seen
	paused    bool   // when last seen; then it is running, too
	ended     bool   // when first seen
	exit      string // the engine's text about the end
	recreated bool
}

// current returns the spec with its current network policy.
func (in *instance) current() Spec {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.spec
}

// at returns the sandbox's runtime and id, which renew changes.
func (in *instance) at() (r runtime.SandboxRuntime, id string) {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.r, in.id
}

func (in *instance) info() Info {
	connected := in.conn.current() != nil
	in.mu.Lock()
	defer in.mu.Unlock()
	i := Info{
		Name: in.spec.Name, State: StateStopped, Runtime: in.spec.Runtime, Image: in.spec.Image, Created: in.created,
		Snapshot: in.from, Spec: in.spec, Omitted: in.omitted,
	}
	switch {
	case in.damaged != nil:
		i.State, i.Error = StateDamaged, in.damaged.Error()
	case in.id == "":
		i.State = StateMissing
	case in.paused:
		i.State = StatePaused
	case in.running || connected:
		i.State = StateRunning
	}
	if i.Own = !in.foreign; in.foreign {
		i.Owner = ownerDir(in.owner)
	}
	return i
}

// note adds to the history of a named sandbox. It ignores errors: a full disk must not stop the user's work.
func (in *instance) note(e sandboxstore.Event) {
	if in.spec.Lifetime != LifetimeEphemeral {
		e.Sandbox = in.spec.Name
		in.c.note(e)
	}
}

// usable returns an ErrOtherOwner for a sandbox that only Options.AllUsers finds.
func (in *instance) usable() error {
	if !in.foreign {
		return nil
	}
	return fmt.Errorf("sandbox %s: %w", in.spec.Name, in.c.belongs(in.owner))
}

func (in *instance) incomplete() error {
	if in.making || in.foreign || in.spec.Lifetime == LifetimeEphemeral {
		return nil
	}
	return in.c.incomplete(in.spec.Name)
}

// filesGone reports whether the directory on the host with the sandbox's files was deleted.
func (in *instance) filesGone() bool {
	r, id := in.at()
	if id == "" || in.making || in.spec.Lifetime == LifetimeEphemeral {
		return false
	}
	if in.spec.Worktree != "" && worktree.Of(in.c.state, in.spec.Name, in.spec.Worktree).Gone() {
		return true
	}
	local, ok := r.(runtime.LocalFiles)
	return ok && local.FilesGone(id)
}

// unfit returns why no command may run in the sandbox: errIncomplete or errFilesGone.
func (in *instance) unfit() error {
	if err := in.incomplete(); err != nil {
		return err
	}
	if in.filesGone() {
		return errFilesGone
	}
	return nil
}

// ready completes a sandbox whose creation was interrupted.
func (in *instance) ready(ctx context.Context) error {
	if err := in.usable(); err != nil || in.unfit() == nil {
		return err
	}
	return in.resume(ctx)
}

func (in *instance) resume(ctx context.Context) error {
	return in.use(ctx, func(*wireclient.Client) error { return nil })
}

func (in *instance) stop(ctx context.Context) error {
	if err := in.usable(); err != nil {
		return err
	}
	in.conn.drop()
	r, id := in.at()
	if id == "" {
		return nil // nothing runs
	}
	in.note(sandboxstore.Event{Event: sandboxstore.EventStopped}) // first, so that no other command sees an end without a reason
	_ = endCommands(ctx, in)                                      // its error does not matter: Stop kills the rest
	in.conn.drop()
	_ = in.keepCalls(ctx) // what is not kept now can be read later
	if err := public(r.Stop(ctx, id, in.spec.Runtime.grace())); err != nil {
		in.note(sandboxstore.Event{Event: sandboxstore.EventFailed, Detail: "stop: " + err.Error()})
		return err
	}
	in.mu.Lock()
	in.running, in.paused, in.ended = false, false, true
	in.mu.Unlock()
	return nil
}

// use calls f with the connection. It starts a stopped sandbox and recreates a missing one.
func (in *instance) use(ctx context.Context, f func(*wireclient.Client) error) error {
	return in.with(ctx, true, f)
}

// useAsItIs is use without starting the sandbox.
func (in *instance) useAsItIs(ctx context.Context, f func(*wireclient.Client) error) error {
	return in.with(ctx, false, f)
}

func (in *instance) with(ctx context.Context, wake bool, f func(*wireclient.Client) error) error {
	wake = wake && !in.noAutoStart && !in.making && in.spec.Lifetime != LifetimeEphemeral
	return in.conn.use(ctx, func() (*wireclient.Client, error) { return in.dial(ctx, wake) }, f)
}

// dial makes a connection for conn. With wake it starts a stopped sandbox and recreates a missing one.
func (in *instance) dial(ctx context.Context, wake bool) (*wireclient.Client, error) {
	if err := in.usable(); err != nil {
		return nil, err
	}
	in.mu.Lock()
	running, ended := in.running, in.ended
	in.mu.Unlock()
	var c *wireclient.Client
	err := in.unfit()
	switch {
	case err != nil && !wake:
	case errors.Is(err, errFilesGone):
		c, err = in.repair(ctx)
		ended = false
	case err != nil:
		c, err = in.renew(ctx, err)
		ended = false
	default:
		c, err = in.connect(ctx, wake && !running)
		if err != nil && wake && !errors.Is(err, runtime.ErrUnavailable) {
			in.c.noteEnd(ctx, in.spec.Name)
		}
		if err != nil && wake && running && !errors.Is(err, runtime.ErrUnavailable) { // it has ended since it was seen
			ended = true
			c, err = in.connect(ctx, true)
		}
		if wake && (errors.Is(err, runtime.ErrNotFound) || errors.Is(err, runtime.ErrNotStarted)) {
			ended = false
			c, err = in.renew(ctx, err)
		}
	}
	if err != nil {
		if wake && ctx.Err() == nil && !errors.Is(err, runtime.ErrUnavailable) {
			in.note(sandboxstore.Event{Event: sandboxstore.EventFailed, Detail: "start: " + err.Error()})
		}
		return nil, public(fmt.Errorf("sandbox %s: %w", in.spec.Name, err))
	}
	if wake && ended {
		in.note(sandboxstore.Event{Event: sandboxstore.EventStarted})
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	in.running, in.paused, in.ended = false, false, false // if the connection is lost later, the sandbox may have stopped
	return c, nil
}

// connect connects to a sandbox, and starts it first if it may have ended.
func (in *instance) connect(ctx context.Context, start bool) (*wireclient.Client, error) {
	r, id := in.at()
	if id == "" {
		return nil, runtime.ErrNotFound
	}
	if start {
		if s := in.current(); len(s.Mounts) > 0 {
			if err := in.mountable(ctx); err != nil {
				return nil, err
			}
			if renewer, ok := r.(runtime.Renewer); ok {
				if err := renewer.Renew(ctx, id, in.c.guestOf(s)); err != nil {
					return nil, err
				}
			}
		}
		release, err := in.c.reserve(ctx, in.spec.Name)
		if err != nil {
			return nil, err
		}
		defer release()
		if err := r.Start(ctx, id); err != nil {
			return nil, err
		}
	}
	stream, err := r.Stream(ctx, id)
	var c *wireclient.Client
	if err == nil {
		c, err = wireclient.New(ctx, stream)
	}
	if err == nil && in.spec.proxied() && !in.spec.Nested {
		go serveProxy(ctx, c, in.spec.Allow)
	}
	if err != nil && start && len(in.spec.Mounts) > 0 {
		if why := in.explain(ctx, nil); why != nil { // its guest may have rejected a mount
			err = fmt.Errorf("%w: %w", err, why)
		}
	}
	return c, err
}

// maxMessage limits the shown output of a sandbox that ended at once, in characters: it is not trusted.
const maxMessage = 500

// explain returns the error of a sandbox that did not answer, with its own message if it has ended.
func (in *instance) explain(ctx context.Context, err error) error {
	var output strings.Builder
	const lines = 5
	r, id := in.at()
	lerr := r.Logs(ctx, id, runtime.LogOptions{Tail: lines, Stderr: &output})
	if why := text.Runes(text.Clean(strings.TrimSpace(output.String())), maxMessage); lerr == nil && why != "" {
		return fmt.Errorf("sandbox %s did not start: %w", in.spec.Name, errors.New(why))
	}
	return err
}

// discard removes the sandbox. Changes in a worktree are saved first.
func (in *instance) discard(ctx context.Context) error {
	return in.remove(ctx, (&Branch{in: in}).removeWorktree(ctx))
}

// remove removes the sandbox, then calls after.
func (in *instance) remove(ctx context.Context, after func() error) error {
	in.conn.drop()
	r, id := in.at()
	switch {
	case in.foreign: // its record is in the other state directory
		return errors.Join(public(r.Remove(ctx, id)), removeForks(ctx, r, in.spec.Name, in.owner))
	case in.spec.Lifetime == LifetimeEphemeral || in.c.state == "":
		return public(r.Remove(ctx, id))
	}
	unlock, err := in.c.lock(ctx, in.spec.Name)
	if err != nil {
		return err
	}
	defer unlock()
	if err := in.c.endpoints(ctx, in.spec.Name); err != nil {
		return err
	}
	r, id = in.at()
	_ = in.keepCalls(ctx) // a damaged box must not prevent its removal
	if id != "" {
		if err := r.Remove(ctx, id); err != nil {
			return public(err)
		}
	}
	left := errors.Join(
		removeForks(ctx, r, in.spec.Name, in.owner), in.c.all.removeVolumes(ctx, in.spec.Runtime, in.spec.Name, in.owner))
	if err := errors.Join(left, in.c.kept.Remove(in.spec.Name)); err != nil {
		return err
	}
	in.note(sandboxstore.Event{Event: sandboxstore.EventRemoved})
	return after()
}

func (in *instance) replace(ctx context.Context, s Spec, c sandboxstore.Creation) (*Sandbox, error) {
	err := errors.Join(in.usable(), sameMounts(s.Mounts))
	if err == nil {
		err = s.guard(ctx)
	}
	if err != nil { // it stays as it is
		return nil, fmt.Errorf("sandbox %s: %w", s.Name, err)
	}
	in.conn.drop()
	unlock, err := in.c.lock(ctx, s.Name)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := in.c.begin(s, c); err != nil {
		return nil, err
	}
	again, err := in.c.complete(ctx, s.Name)
	if err != nil {
		in.note(sandboxstore.Event{Event: sandboxstore.EventFailed, Detail: err.Error()})
		return nil, err
	}
	return &Sandbox{again}, removeForks(ctx, again.r, s.Name, in.owner)
}

// exec runs an internal command with a standard input. An exit code other than 0 is an error with the command's output.
func (in *instance) exec(ctx context.Context, argv []string, stdin io.Reader, stdout io.Writer) error {
	p, err := in.start(ctx, Command{Argv: argv, Stdin: stdin, Dir: "/", Unrecorded: true})
	if err != nil {
		return err
	}
	defer p.Close()
	const limit = 4 << 10
	message := text.NewHeadTail(limit)
	r, err := p.Wait(ctx, stdout, message)
	switch why := strings.TrimSpace(text.Clean(string(message.Bytes()))); {
	case err != nil:
		return err
	case r.OutOfMemory:
		return fmt.Errorf("memory limit of the sandbox reached (%d MiB): set a higher one with --memory: %s",
			in.current().Limits.MemoryBytes>>20, why)
	case r.Reason != "":
		return errors.New(r.Reason)
	case r.ExitCode != 0:
		return fmt.Errorf("exit code %d: %s", r.ExitCode, why)
	}
	return nil
}

// query calls f with the sandbox's connection, as use does, and returns its result.
func query[T any](ctx context.Context, in *instance, f func(*wireclient.Client) (T, error)) (result T, err error) {
	err = in.use(ctx, func(c *wireclient.Client) (err error) {
		result, err = f(c)
		return err
	})
	return result, err
}

// fileQuery calls call with the connection, as Files.use does, and returns its result.
func fileQuery[T any](ctx context.Context, f *Files, call func(wireclient.Files) (T, error)) (result T, err error) {
	err = f.use(ctx, func(c wireclient.Files) (err error) {
		result, err = call(c)
		return err
	})
	return result, err
}
