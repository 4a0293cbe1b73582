// Package sandbox makes sandboxes without a task and runs commands in them.
//
// A Manager makes, finds and lists sandboxes; a Sandbox runs commands, has files and brings connections to its ports. The engine is the one that
// the docker command would use. Nothing is contacted before a method that needs it, and every method takes a context that bounds it.
// Methods may be called concurrently.
//
// A sandbox runs a guest program, which a module does not contain. It is built once with the go command, from the version of this module that the program was
// built with, or it is given by Options.Programs.
//
// A sandbox is named and stays until Remove (Named), or it belongs to the program that made it and ends with it (Session): also where that is killed, since
// its guest ends it after a minute without a sign of life (Spec.Silence).
package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/branch"
	"github.com/sandbox-agent/sandbox-agent/internal/host/registry"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/host/wireclient"
	"github.com/sandbox-agent/sandbox-agent/internal/host/worktree"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/wire"
)

// Errors on which a caller branches.
var (
	// ErrNotFound means that there is no such sandbox, image, command or file.
	ErrNotFound = errors.New("not found")
	// ErrExists means that there is a sandbox, or a file, of that name already.
	ErrExists = errors.New("there is one of that name already")
	// ErrName means that no sandbox or snapshot can have the name. It is an ErrSpec, too.
	ErrName = errors.New("not a valid name")
	// ErrOtherOwner means that a sandbox was made with another state directory: it is neither found nor used. With Options.AllUsers it can be discarded.
	ErrOtherOwner = errors.New("it belongs to another state directory")
	// ErrDamaged means that a sandbox's record cannot be read. Forget removes the sandbox.
	ErrDamaged = errors.New("its record is damaged")
	// ErrUnsaved means that a sandbox has files that could not be saved.
	ErrUnsaved = errors.New("its files are not saved")
	// ErrUnavailable means that what runs sandboxes does not answer.
	ErrUnavailable = errors.New("the engine does not answer")
	// ErrUnsupported means that the runtime cannot give what a Spec asks for.
	ErrUnsupported = errors.New("the runtime cannot give that")
	// ErrSpec means that a Spec or Command is wrong.
	ErrSpec = errors.New("not valid")
	// ErrLost means that the connection to the sandbox has ended. What runs in it may run on.
	ErrLost = errors.New("the connection to the sandbox was lost")
	// ErrRefused means that nothing listens at an address in the sandbox.
	ErrRefused = errors.New("nothing listens there")
)

// Sandbox is one sandbox. It connects when it is used first, starts again where it had ended, and connects anew where the connection was lost.
type Sandbox struct {
	m       *Manager
	r       runtime.Stander
	id      string
	spec    Spec
	own     bool  // of a session that this program has made
	asItIs  bool  // it is started by no use
	foreign bool  // it was made with another state directory
	making  bool  // the command that makes it is this one
	damaged error // why its record cannot be read

	from, owner string // its labels
	created     time.Time

	mu      sync.Mutex    // of what follows; whoever has it waits for nothing
	turn    chan struct{} // whoever connects has it: see take
	running bool          // when it was seen last
	ended   bool          // when it was seen first
	renewed bool
	c       *wireclient.Client
	stop    context.CancelFunc // of the signs of life
}

// Name is the sandbox's name.
func (sb *Sandbox) Name() string { return sb.spec.Name }

// Spec is what the sandbox was made of, with defaults filled in, and the network that it has now.
func (sb *Sandbox) Spec() Spec {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	return sb.spec
}

// at is where the sandbox is now: renew changes it.
func (sb *Sandbox) at() (r runtime.Stander, id string) {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	return sb.r, sb.id
}

// Renewed reports whether the sandbox was made anew since Get, because somebody had removed what it was: the files are gone that were not on mounts.
func (sb *Sandbox) Renewed() bool {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	return sb.renewed
}

// Stop ends everything in the sandbox and keeps its files; the next use starts it again. To stop a stopped one is not an error.
func (sb *Sandbox) Stop(ctx context.Context) error {
	if err := sb.usable(); err != nil {
		return err
	}
	sb.drop()
	r, id := sb.at()
	if id == "" {
		return nil // there is nothing that runs
	}
	err := public(r.Stop(ctx, id, sb.spec.Runtime.grace()))
	if err != nil {
		return err
	}
	sb.mu.Lock()
	sb.running, sb.ended = false, true
	sb.mu.Unlock()
	sb.note(registry.Event{Event: registry.Stopped})
	return nil
}

// Logs writes what the guest of the sandbox says, to follow it until it ends: why it ended, and no command's output.
func (sb *Sandbox) Logs(ctx context.Context, follow bool, w io.Writer) error {
	r, id := sb.at()
	if id == "" {
		return fmt.Errorf("sandbox %s: %w: what it was is gone", sb.spec.Name, ErrNotFound)
	}
	return public(r.Logs(ctx, id, runtime.LogOptions{Follow: follow, Stdout: w, Stderr: w}))
}

// Resume starts a sandbox that has ended. To resume a running one is not an error.
func (sb *Sandbox) Resume(ctx context.Context) error {
	return sb.use(ctx, func(*wireclient.Client) error { return nil })
}

// Remove is Discard of a sandbox in which nothing is left that no commit has: SaveLast comes first, and where that fails nothing is removed, which is ErrUnsaved.
func (sb *Sandbox) Remove(ctx context.Context) error {
	if sb.Spec().Worktree == "" { // its files are outside, and what cannot be saved stays there
		if err := sb.SaveForRemoval(ctx); err != nil {
			return err
		}
	}
	return sb.Discard(ctx)
}

// SaveForRemoval is SaveLast, and an ErrUnsaved where something would be lost with the sandbox all the same. A sandbox that had ended does not run then, either.
func (sb *Sandbox) SaveForRemoval(ctx context.Context) error {
	ended := sb.Info().State == StateStopped
	saved, err := sb.SaveLast(ctx)
	if err = cmp.Or(err, saved.lost()); err != nil {
		if ended {
			err = errors.Join(err, sb.Stop(context.WithoutCancel(ctx)))
		}
		return &kindError{ErrUnsaved, fmt.Errorf("sandbox %s stays: what no command has committed cannot be saved: %w", sb.spec.Name, err)}
	}
	return nil
}

// Discard ends the sandbox and removes it with its files and endpoints, and what is kept of it but the history. To discard one that is gone is not an error.
// What has changed in a worktree is saved before.
func (sb *Sandbox) Discard(ctx context.Context) error {
	return sb.discard(ctx, sb.removeWorktree(ctx))
}

// DiscardUnsaved is Discard of a sandbox from which nothing is read any more: what no commit has is gone, also in a worktree.
func (sb *Sandbox) DiscardUnsaved(ctx context.Context) error {
	return sb.discard(ctx, func() error {
		if s := sb.Spec(); s.Worktree != "" {
			return worktree.Of(sb.m.state, s.Name, s.Worktree).Remove(ctx)
		}
		return nil
	})
}

// discard removes the sandbox, and calls after.
func (sb *Sandbox) discard(ctx context.Context, after func() error) error {
	if sb.foreign { // what is kept of it is where it was made
		sb.drop()
		r, id := sb.at()
		return errors.Join(public(r.Remove(ctx, id)), sb.m.removeForks(ctx, r, sb.spec.Name, sb.owner))
	}
	sb.drop()
	if sb.spec.Lifetime == Session || sb.m.state == "" {
		r, id := sb.at()
		return public(r.Remove(ctx, id))
	}
	unlock, err := sb.m.lock(ctx, sb.spec.Name)
	if err != nil {
		return err
	}
	defer unlock()
	if err := sb.m.endpoints(ctx, sb.spec.Name); err != nil {
		return err
	}
	r, id := sb.at()
	if id != "" {
		if err := r.Remove(ctx, id); err != nil {
			return public(err)
		}
	}
	left := errors.Join(sb.m.removeForks(ctx, r, sb.spec.Name, sb.owner), sb.m.removeVolumes(ctx, sb.spec.Runtime, sb.spec.Name, sb.owner))
	if err := errors.Join(left, sb.m.kept.Forget(sb.spec.Name)); err != nil {
		return err
	}
	sb.note(registry.Event{Event: registry.Removed})
	return after()
}

// Reset removes the sandbox and makes it anew of the same Spec, with nothing of before in it; its endpoints stay. The one that it returns takes this one's place;
// after an error there may be none but what is kept.
func (sb *Sandbox) Reset(ctx context.Context) (*Sandbox, error) {
	if err := sb.usable(); err != nil {
		return nil, err
	}
	if sb.spec.Lifetime == Session {
		if err := sb.Remove(ctx); err != nil {
			return nil, err
		}
		return sb.m.Create(ctx, sb.Spec())
	}
	if repo := sb.spec.Repo; filepath.IsAbs(repo) {
		// Before: the work of a reset that is killed is not brought back.
		if err := branch.New(sb.m.state).Of(sb.spec.Name, repo).Anew(ctx); err != nil {
			return nil, err
		}
	}
	return sb.replace(ctx, sb.Spec(), registry.Creation{Event: registry.Created, Detail: sb.spec.Image})
}

// replace makes the sandbox anew.
func (sb *Sandbox) replace(ctx context.Context, s Spec, c registry.Creation) (*Sandbox, error) {
	err := errors.Join(sb.usable(), sameMounts(s.Mounts))
	if err == nil {
		err = s.guard(ctx)
	}
	if err != nil { // it stays as it is
		return nil, fmt.Errorf("sandbox %s: %w", s.Name, err)
	}
	sb.drop()
	unlock, err := sb.m.lock(ctx, s.Name)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := sb.m.begin(s, c); err != nil {
		return nil, err
	}
	again, err := sb.m.complete(ctx, s.Name)
	if err != nil {
		return nil, err
	}
	return again, sb.m.removeForks(ctx, again.r, s.Name, sb.owner)
}

// Close removes the sandbox of a Session that Create has returned. Of any other it drops the connection: one that Get has found is somebody else's.
func (sb *Sandbox) Close(ctx context.Context) error {
	if sb.own {
		return sb.Remove(ctx)
	}
	sb.drop()
	return nil
}

// drop forgets the connection.
func (sb *Sandbox) drop() {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	if sb.stop != nil {
		sb.stop()
		sb.stop = nil
	}
	if sb.c != nil {
		_ = sb.c.Close() // it is not used any more
		sb.c = nil
	}
}

// client is the connection, made where there is none. With wake a sandbox that has ended is started for it, and one that is gone is made anew.
func (sb *Sandbox) client(ctx context.Context, wake bool) (*wireclient.Client, error) {
	if c, _, _ := sb.seen(); c != nil {
		return c, nil
	}
	done, err := sb.take(ctx)
	if err != nil {
		return nil, fmt.Errorf("sandbox %s: %w", sb.spec.Name, err)
	}
	defer done()
	c, running, ended := sb.seen()
	if c != nil { // who had the turn before has made one
		return c, nil
	}
	wake = wake && sb.spec.Lifetime != Session
	if err := sb.usable(); err != nil {
		return nil, err
	}
	if why := sb.unfit(); why != nil {
		if !wake {
			return nil, fmt.Errorf("sandbox %s: %w", sb.spec.Name, why)
		}
		if errors.Is(why, errFilesGone) {
			c, err = sb.repair(ctx)
		} else {
			c, err = sb.renew(ctx, why)
		}
		if err != nil {
			return nil, public(fmt.Errorf("sandbox %s: %w", sb.spec.Name, err))
		}
		return sb.connected(c), nil
	}
	c, err = sb.connect(ctx, wake && !running)
	if err != nil && wake && running && !errors.Is(err, runtime.ErrUnavailable) { // it has ended since it was seen
		ended = true
		c, err = sb.connect(ctx, true)
	}
	if wake && (errors.Is(err, runtime.ErrNotFound) || errors.Is(err, runtime.ErrUnfinished)) {
		ended = false
		c, err = sb.renew(ctx, err)
	}
	if err != nil {
		return nil, public(fmt.Errorf("sandbox %s: %w", sb.spec.Name, err))
	}
	if wake && ended {
		sb.note(registry.Event{Event: registry.Started})
	}
	return sb.connected(c), nil
}

// connected notes a new connection.
func (sb *Sandbox) connected(c *wireclient.Client) *wireclient.Client {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	sb.c, sb.running, sb.ended = c, false, false // when the connection is lost, it may have ended
	return c
}

// seen is the connection, or nil, and what was seen of the sandbox last.
func (sb *Sandbox) seen() (c *wireclient.Client, running, ended bool) {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	return sb.c, sb.running, sb.ended
}

// take takes the turn to connect, which ends with done. Who has it may wait for the lock of the sandbox's name: whoever has that lock takes no turn.
func (sb *Sandbox) take(ctx context.Context) (done func(), err error) {
	sb.mu.Lock()
	if sb.turn == nil {
		sb.turn = make(chan struct{}, 1)
	}
	turn := sb.turn
	sb.mu.Unlock()
	select {
	case turn <- struct{}{}:
		return func() { <-turn }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// connect makes a connection, to a sandbox that is started for it where it may have ended.
func (sb *Sandbox) connect(ctx context.Context, start bool) (*wireclient.Client, error) {
	r, id := sb.at()
	if id == "" {
		return nil, runtime.ErrNotFound
	}
	if start {
		if err := sb.startAgain(ctx, r, id); err != nil {
			return nil, err
		}
	}
	stream, err := r.Stream(ctx, id)
	var c *wireclient.Client
	if err == nil {
		c, err = wireclient.New(ctx, stream)
	}
	if err != nil && start && len(sb.spec.Mounts) > 0 {
		if why := sb.explain(ctx, nil); why != nil { // its guest may have refused what was mounted
			err = fmt.Errorf("%w: %w", err, why)
		}
	}
	return c, err
}

// startAgain starts a sandbox that has ended.
func (sb *Sandbox) startAgain(ctx context.Context, r runtime.Stander, id string) error {
	s := sb.Spec()
	if len(s.Mounts) > 0 {
		if err := sb.mountable(ctx); err != nil {
			return err
		}
		if renewer, ok := r.(runtime.Renewer); ok {
			if err := renewer.Renew(ctx, id, sb.m.guestOf(s)); err != nil {
				return err
			}
		}
	}
	return r.StartAgain(ctx, id)
}

// use calls f with the connection, and again with a new one where that had ended before f's request was sent.
func (sb *Sandbox) use(ctx context.Context, f func(*wireclient.Client) error) error {
	return sb.with(ctx, true, f)
}

// useAsItIs is use, of a sandbox that is not started for it.
func (sb *Sandbox) useAsItIs(ctx context.Context, f func(*wireclient.Client) error) error {
	return sb.with(ctx, false, f)
}

func (sb *Sandbox) with(ctx context.Context, wake bool, f func(*wireclient.Client) error) error {
	wake = wake && !sb.asItIs && !sb.making
	c, err := sb.client(ctx, wake)
	if err != nil {
		return err
	}
	if err = f(c); !errors.Is(err, wireclient.ErrUnsent) {
		return public(err)
	}
	sb.mu.Lock()
	if sb.c == c { // nobody else has made a new one
		_ = c.Close()
		sb.c = nil
	}
	sb.mu.Unlock()
	if c, err = sb.client(ctx, wake); err != nil {
		return err
	}
	return public(f(c))
}

// live gives signs of life until drop.
func (sb *Sandbox) live(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	sb.mu.Lock()
	sb.stop = cancel
	sb.mu.Unlock()
	go func() {
		signEvery := sb.spec.Silence / 4 // one that is lost is made good by the next
		tick := time.NewTicker(signEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			one, cancel := context.WithTimeout(ctx, signEvery)
			_ = sb.use(one, func(c *wireclient.Client) error { return c.Alive(one) })
			cancel()
		}
	}()
}

// maxSaid bounds what is shown of a sandbox that ended at once, in characters: what runs there is not trusted to be brief.
const maxSaid = 500

// explain is the error of a sandbox that did not answer: what it said itself, if it has ended.
func (sb *Sandbox) explain(ctx context.Context, err error) error {
	var said strings.Builder
	const lines = 5
	lerr := sb.r.Logs(ctx, sb.id, runtime.LogOptions{Tail: lines, Stderr: &said})
	if why := text.Runes(text.Clean(strings.TrimSpace(said.String())), maxSaid); lerr == nil && why != "" {
		return fmt.Errorf("sandbox %s did not start: %w", sb.spec.Name, errors.New(why))
	}
	return err
}

// public makes an error of ours one of this package's.
func public(err error) error {
	if err == nil {
		return nil
	}
	for _, row := range []struct{ from, to error }{ // the first one counts
		{runtime.ErrUnsupported, ErrUnsupported},
		{runtime.ErrIsolation, ErrUnsupported},
		{runtime.ErrInUse, ErrInUse},
		{runtime.ErrConflict, ErrExists},
		{runtime.ErrNotFound, ErrNotFound},
		{runtime.ErrUnavailable, ErrUnavailable},
		{wireclient.ErrNoLease, ErrUnsupported},
		{wireclient.ErrLost, ErrLost},
		{runtime.ErrEnded, ErrLost},
		{wireclient.ErrMany, ErrTooMuch},
	} {
		if errors.Is(err, row.from) {
			return &kindError{row.to, err}
		}
	}
	if e, ok := errors.AsType[*wire.Error](err); ok {
		switch e.Code {
		case wire.CodeNotFound:
			return &kindError{ErrNotFound, err}
		case wire.CodeRefused:
			return &kindError{ErrRefused, err}
		case wire.CodeUnsupported:
			return &kindError{ErrUnsupported, err}
		case wire.CodeBadRequest:
			return &kindError{ErrSpec, err}
		case wire.CodeDenied:
			return &kindError{ErrPermission, err}
		case wire.CodeExists:
			return &kindError{ErrExists, err}
		case wire.CodeKind:
			return &kindError{ErrFileKind, err}
		case wire.CodeExhausted:
			return &kindError{ErrFull, err}
		}
	}
	return err
}

// kindError is an error of a kind, which its text says already.
type kindError struct{ kind, err error }

func (e *kindError) Error() string   { return e.err.Error() }
func (e *kindError) Unwrap() []error { return []error{e.kind, e.err} }

var validName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)

// ValidName reports whether a sandbox can have the name.
func ValidName(name string) bool { return validName.MatchString(name) }
