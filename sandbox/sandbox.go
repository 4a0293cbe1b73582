// Package sandbox creates standalone sandboxes and runs commands in them.
//
// A Manager creates, finds and lists sandboxes. A Sandbox runs commands, accesses files and connects to ports. The
// engine is the one that the docker command would use. Open contacts nothing; methods connect when they need to. The
// context of a method bounds it. Methods may be called concurrently.
//
// A sandbox runs a guest program, which the module does not contain. It is built once with the go command, from the
// version of this module that the program was built with, unless Options.Programs provides it.
//
// A sandbox with Lifetime Named stays until Remove. One with Lifetime Session ends with the program that created it,
// even if that is killed: its guest ends it after a minute without a keep-alive signal (Spec.Silence).
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
)

// Sandbox is one sandbox. It connects at its first use, restarts a stopped sandbox and reconnects after a lost
// connection.
type Sandbox struct {
	m       *Manager
	r       runtime.Stander
	id      string
	spec    Spec
	own     bool  // a session that this program created
	asItIs  bool  // never started by a use
	foreign bool  // belongs to another state directory
	making  bool  // this command is creating it
	damaged error // why its record cannot be read

	from, owner string // its labels
	created     time.Time

	mu      sync.Mutex    // guards the fields below; its holder must not block
	turn    chan struct{} // held while connecting: see take
	running bool          // when last seen
	ended   bool          // when first seen
	renewed bool
	c       *wireclient.Client
	stop    context.CancelFunc // ends the keep-alive signals
}

// Name returns the sandbox's name.
func (sb *Sandbox) Name() string { return sb.spec.Name }

// Spec returns the spec from which the sandbox was created, with defaults and its current network policy.
func (sb *Sandbox) Spec() Spec {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	return sb.spec
}

// at returns the sandbox's runtime and id, which renew changes.
func (sb *Sandbox) at() (r runtime.Stander, id string) {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	return sb.r, sb.id
}

// Renewed reports whether the sandbox was recreated since Get because its container was missing. Files outside of
// mounts are lost then.
func (sb *Sandbox) Recreated() bool {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	return sb.renewed
}

// Stop ends everything in the sandbox and keeps its files. The next use restarts it. Stopping a stopped sandbox is not
// an error.
func (sb *Sandbox) Stop(ctx context.Context) error {
	if err := sb.usable(); err != nil {
		return err
	}
	sb.drop()
	r, id := sb.at()
	if id == "" {
		return nil // nothing runs
	}
	err := public(r.Stop(ctx, id, sb.spec.Runtime.grace()))
	if err != nil {
		return err
	}
	sb.mu.Lock()
	sb.running, sb.ended = false, true
	sb.mu.Unlock()
	sb.note(registry.Event{Event: registry.EventStopped})
	return nil
}

// Logs writes the guest's log, with follow until the sandbox ends. It has the reason of its end and no output of
// commands.
func (sb *Sandbox) Logs(ctx context.Context, follow bool, w io.Writer) error {
	r, id := sb.at()
	if id == "" {
		return fmt.Errorf("sandbox %s has no instance: %w; start it with: sandbox-agent resume %[1]s", sb.spec.Name, ErrNotFound)
	}
	return public(r.Logs(ctx, id, runtime.LogOptions{Follow: follow, Stdout: w, Stderr: w}))
}

// Resume starts a stopped sandbox. Resuming a running one is not an error.
func (sb *Sandbox) Resume(ctx context.Context) error {
	return sb.use(ctx, func(*wireclient.Client) error { return nil })
}

// Remove removes the sandbox after SaveLast. If saving fails, or files would be lost, it removes nothing and returns
// ErrUnsaved.
func (sb *Sandbox) Remove(ctx context.Context) error {
	if sb.Spec().Worktree == "" { // its files are on the host, and unsaved files stay there
		if err := sb.SaveForRemoval(ctx); err != nil {
			return err
		}
	}
	return sb.Discard(ctx)
}

// SaveForRemoval is SaveLast. It returns ErrUnsaved if a removal would lose files. A stopped sandbox is stopped again.
func (sb *Sandbox) SaveForRemoval(ctx context.Context) error {
	ended := sb.Info().State == StateStopped
	saved, err := sb.SaveLast(ctx)
	if err = cmp.Or(err, saved.lost()); err != nil {
		if ended {
			err = errors.Join(err, sb.Stop(context.WithoutCancel(ctx)))
		}
		return &kindError{ErrUnsaved, fmt.Errorf("sandbox %s stays: uncommitted changes cannot be saved: %w", sb.spec.Name, err)}
	}
	return nil
}

// Discard ends the sandbox and removes it with its files, endpoints and record; the history stays. It saves changes in
// a worktree first. Discarding a missing sandbox is not an error.
func (sb *Sandbox) Discard(ctx context.Context) error {
	return sb.discard(ctx, sb.removeWorktree(ctx))
}

// DiscardUnsaved is Discard without reading the sandbox: uncommitted changes are lost, also in a worktree.
func (sb *Sandbox) DiscardUnsaved(ctx context.Context) error {
	return sb.discard(ctx, func() error {
		if s := sb.Spec(); s.Worktree != "" {
			return worktree.Of(sb.m.state, s.Name, s.Worktree).Remove(ctx)
		}
		return nil
	})
}

// discard removes the sandbox, then calls after.
func (sb *Sandbox) discard(ctx context.Context, after func() error) error {
	if sb.foreign { // its record is in the other state directory
		sb.drop()
		r, id := sb.at()
		return errors.Join(public(r.Remove(ctx, id)), sb.m.removeForks(ctx, r, sb.spec.Name, sb.owner))
	}
	sb.drop()
	if sb.spec.Lifetime == LifetimeEphemeral || sb.m.state == "" {
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
	sb.note(registry.Event{Event: registry.EventRemoved})
	return after()
}

// Reset recreates the sandbox from its Spec, without its files; its endpoints stay. The returned sandbox replaces sb.
// After an error the sandbox may exist only as a record.
func (sb *Sandbox) Reset(ctx context.Context) (*Sandbox, error) {
	if err := sb.usable(); err != nil {
		return nil, err
	}
	if sb.spec.Lifetime == LifetimeEphemeral {
		if err := sb.Remove(ctx); err != nil {
			return nil, err
		}
		return sb.m.Create(ctx, sb.Spec())
	}
	if repo := sb.spec.Repo; filepath.IsAbs(repo) {
		// First, so that a killed reset does not bring the work back.
		if err := branch.New(sb.m.state).Of(sb.spec.Name, repo).Anew(ctx); err != nil {
			return nil, err
		}
	}
	return sb.replace(ctx, sb.Spec(), registry.Creation{Event: registry.EventCreated, Detail: sb.spec.Image})
}

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

// Close removes a Session that Create returned. For any other sandbox, including those of Get, it drops the connection.
func (sb *Sandbox) Close(ctx context.Context) error {
	if sb.own {
		return sb.Remove(ctx)
	}
	sb.drop()
	return nil
}

// drop closes the connection.
func (sb *Sandbox) drop() {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	if sb.stop != nil {
		sb.stop()
		sb.stop = nil
	}
	if sb.c != nil {
		_ = sb.c.Close() // no longer used
		sb.c = nil
	}
}

// client returns the connection and makes one if there is none. With wake it starts a stopped sandbox and recreates a
// missing one.
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
	if c != nil { // the previous holder of the turn has connected
		return c, nil
	}
	wake = wake && sb.spec.Lifetime != LifetimeEphemeral
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
		sb.note(registry.Event{Event: registry.EventStarted})
	}
	return sb.connected(c), nil
}

// connected records a new connection.
func (sb *Sandbox) connected(c *wireclient.Client) *wireclient.Client {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	sb.c, sb.running, sb.ended = c, false, false // a lost connection may mean that it has ended
	return c
}

// seen returns the connection, which may be nil, and the last known state.
func (sb *Sandbox) seen() (c *wireclient.Client, running, ended bool) {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	return sb.c, sb.running, sb.ended
}

// take acquires the connection turn; done releases it. Its holder may wait for the lock of the sandbox's name, but a
// holder of that lock must not take the turn.
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

// connect connects to a sandbox, and starts it first if it may have ended.
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
		if why := sb.explain(ctx, nil); why != nil { // its guest may have rejected a mount
			err = fmt.Errorf("%w: %w", err, why)
		}
	}
	return c, err
}

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

// use calls f with the connection, and again with a new one if the connection was lost before f's request was sent.
func (sb *Sandbox) use(ctx context.Context, f func(*wireclient.Client) error) error {
	return sb.with(ctx, true, f)
}

// useAsItIs is use without starting the sandbox.
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
	if sb.c == c { // unless another caller has reconnected
		_ = c.Close()
		sb.c = nil
	}
	sb.mu.Unlock()
	if c, err = sb.client(ctx, wake); err != nil {
		return err
	}
	return public(f(c))
}

// live sends keep-alive signals until drop.
func (sb *Sandbox) live(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	sb.mu.Lock()
	sb.stop = cancel
	sb.mu.Unlock()
	go func() {
		signEvery := sb.spec.OwnerTimeout / 4 // the next signal makes up for a lost one
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

// maxSaid limits the shown output of a sandbox that ended at once, in characters: it is not trusted.
const maxSaid = 500

// explain returns the error of a sandbox that did not answer, with its own message if it has ended.
func (sb *Sandbox) explain(ctx context.Context, err error) error {
	var said strings.Builder
	const lines = 5
	lerr := sb.r.Logs(ctx, sb.id, runtime.LogOptions{Tail: lines, Stderr: &said})
	if why := text.Runes(text.Clean(strings.TrimSpace(said.String())), maxSaid); lerr == nil && why != "" {
		return fmt.Errorf("sandbox %s did not start: %w", sb.spec.Name, errors.New(why))
	}
	return err
}

var validName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)

// ValidName reports whether the name is valid for a sandbox.
func ValidName(name string) bool { return validName.MatchString(name) }
