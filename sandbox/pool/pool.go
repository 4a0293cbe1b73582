// Package pool keeps sandboxes ready and leases each to one user at a time, clean.
//
// A Pool creates sandboxes on demand up to a limit, and keeps released ones. In a container a lease is a nested sandbox
// (sandbox.Lease), which leaves nothing behind; a sandbox that may not be clean is removed. A jail, and a Spec that is
// never reused, has a sandbox for each lease. A sandbox is reused only for an identical Spec.
//
// All sandboxes of a pool end with the program that owns it. If the program is killed, they end after a minute without
// keep-alive signals.
package pool

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/sandbox-agent/sandbox-agent/sandbox"
)

// DefaultMax is the default limit of a pool's sandboxes.
const DefaultMax = 3

// Errors on which a caller branches.
var (
	// ErrLimit means that the limit of leased sandboxes is reached.
	ErrLimit = errors.New("pool limit reached")
	// ErrOver means that the lease was released or destroyed.
	ErrOver = errors.New("lease ended")
	// ErrClosed means that the pool is closed.
	ErrClosed = errors.New("pool closed")
)

// Options configure a pool.
type Options struct {
	// Max limits the sandboxes, leased and idle; 0 means DefaultMax.
	Max int
	// Wait is how long Acquire waits at the limit; 0 means not at all.
	Wait time.Duration
	// Warm is the number of idle sandboxes kept ready for each used Spec, within Max; 0 means none.
	Warm int
	// Image returns the image of a Spec that names none, and builds it if it is missing; nil means that each Spec must
	// name one.
	Image func(ctx context.Context) (string, error)
	// Name is the prefix of the names of the pool's sandboxes. It must be unique among the pools of the manager's state
	// directory: see Reap. "" means none.
	Name string
	// Log receives debug messages; nil discards them.
	Log *slog.Logger
}

// Pool leases sandboxes. Its methods may be called concurrently.
type Pool struct {
	m maker
	o Options

	mu      sync.Mutex
	slots   map[*slot]bool
	never   map[string]error // by key: why its containers cannot nest sandboxes
	closed  bool
	changed chan struct{} // closed when capacity may have become free
	work    sync.WaitGroup
}

type maker interface {
	// Create creates a sandbox of a complete spec. Without leases, or if it cannot nest, it is leased only once.
	Create(ctx context.Context, s Spec, name string, leases bool) (place, error)
	// ImageID returns the current id of an image name.
	ImageID(ctx context.Context, image string) (string, error)
	// Left lists sandboxes whose names have the prefix. On error the list is incomplete.
	Left(ctx context.Context, name string) ([]place, error)
}

type place interface {
	Name() string
	// Lease starts a lease in it.
	Lease(ctx context.Context) (turn, error)
	Remove(ctx context.Context) error
}

// turn is one lease of a place.
type turn interface {
	sandbox.Executor
	// End returns nil if nothing remains of the turn and the place can be reused.
	End(ctx context.Context) error
}

// slot is capacity for one sandbox.
type slot struct {
	key   string
	spec  Spec
	place place
	// leases reports that the place can nest sandboxes and be reused.
	leases bool
	state  state
	used   time.Time
}

type state int

const (
	making state = iota // or removing
	idle
	busy
)

// New returns a pool of the manager's sandboxes. It contacts nothing.
func New(m *sandbox.Manager, o Options) *Pool { return newPool(&manager{m}, o) }

func newPool(m maker, o Options) *Pool {
	o.Max = cmp.Or(o.Max, DefaultMax)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Pool{m: m, o: o, slots: map[*slot]bool{}, never: map[string]error{}, changed: make(chan struct{})}
}

// Stats are counters of a pool.
type Stats struct {
	Idle  int `json:"idle"`
	Busy  int `json:"busy"`
	Total int `json:"total"` // including those being created and removed
	Max   int `json:"max_total"`
	// Reuse is ReuseNever if containers cannot nest sandboxes here: each is then leased once. Reason is why.
	Reuse  Reuse  `json:"reuse"`
	Reason string `json:"reuse_reason,omitempty"`
}

// Stats counts the pool's sandboxes.
func (p *Pool) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := Stats{Max: p.o.Max, Total: len(p.slots), Reuse: ReuseClean}
	for _, why := range p.never {
		s.Reuse, s.Reason = ReuseNever, why.Error()
	}
	for sl := range p.slots {
		switch sl.state {
		case idle:
			s.Idle++
		case busy:
			s.Busy++
		case making:
		}
	}
	return s
}

// turnTime bounds the start of a lease, which takes milliseconds. A paused sandbox does not answer at all.
const turnTime = 10 * time.Second

// Acquire leases a sandbox of the spec: an idle one, or a new one within the limit. If necessary it removes the least
// recently used idle sandbox of another spec. ctx bounds the call, not the lease.
func (p *Pool) Acquire(ctx context.Context, s Spec) (*Lease, error) {
	s, err := p.complete(ctx, s)
	if err != nil {
		return nil, err
	}
	key := s.key()
	for {
		sl, err := p.take(ctx, key, s)
		if err != nil {
			return nil, err
		}
		had := sl.place != nil
		t, err := p.begin(ctx, sl)
		if err == nil && !p.set(sl, making, busy) {
			err = errors.Join(ErrClosed, t.End(context.WithoutCancel(ctx)))
		}
		if err == nil {
			p.warm(context.WithoutCancel(ctx), key, s)
			return &Lease{p: p, slot: sl, turn: t, id: "L-" + strings.ToLower(rand.Text()[:leaseID])}, nil
		}
		rerr := p.remove(ctx, sl)
		if !had || ctx.Err() != nil || errors.Is(err, ErrClosed) {
			return nil, errors.Join(err, rerr)
		}
		// An idle sandbox was removed or paused: use another.
		p.o.Log.Warn("idle sandbox not usable", "sandbox", sl.place.Name(), "error", errors.Join(err, rerr))
	}
}

// leaseID is the length of a lease's id: 50 bits are unique in a program.
const leaseID = 10

// begin creates the slot's sandbox if there is none, and starts a lease in it.
func (p *Pool) begin(ctx context.Context, sl *slot) (turn, error) {
	fresh := sl.place == nil
	if fresh {
		if err := p.create(ctx, sl); err != nil {
			return nil, err
		}
	}
	t, err := lend(ctx, sl)
	if !fresh || !sl.leases || !errors.Is(err, sandbox.ErrUnsupported) {
		return t, err
	}
	// The engine does not let containers mount, or its storage does not support overlays.
	p.mu.Lock()
	first := len(p.never) == 0
	p.never[sl.key] = err
	p.mu.Unlock()
	if first {
		p.o.Log.Warn("containers cannot be reused here: each is leased once and removed", "error", err)
	}
	if err := removePlace(ctx, sl.place); err != nil {
		return nil, err
	}
	sl.place = nil
	if err := p.create(ctx, sl); err != nil {
		return nil, err
	}
	return lend(ctx, sl)
}

func (p *Pool) create(ctx context.Context, sl *slot) error {
	p.mu.Lock()
	leases := sl.spec.Runtime == sandbox.RuntimeContainer && p.never[sl.key] == nil
	p.mu.Unlock()
	name := ""
	if p.o.Name != "" {
		name = p.o.Name + strings.ToLower(rand.Text())
	}
	made, err := p.m.Create(ctx, sl.spec, name, leases)
	if err == nil {
		sl.place, sl.leases = made, leases
	}
	return err
}

// lend starts a lease in the slot's sandbox.
func lend(ctx context.Context, sl *slot) (turn, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, turnTime, fmt.Errorf("sandbox %s did not answer within %s", sl.place.Name(), turnTime))
	defer cancel()
	t, err := sl.place.Lease(ctx)
	if err != nil {
		return nil, fmt.Errorf("lease sandbox %s: %w", sl.place.Name(), err)
	}
	return t, nil
}

// take takes an idle slot of the key, or one without a sandbox.
func (p *Pool) take(ctx context.Context, key string, s Spec) (*slot, error) {
	if p.o.Wait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, p.o.Wait, fmt.Errorf("%w: %d sandboxes, none released within %s", ErrLimit, p.o.Max,
			p.o.Wait))
		defer cancel()
	}
	for {
		sl, evict, changed, err := p.tryTake(key, s)
		switch {
		case err != nil:
			return nil, err
		case evict != nil:
			// The slot stays taken until its sandbox is removed, so that the limit is never exceeded.
			if err := removePlace(ctx, evict); err != nil {
				p.drop(sl)
				return nil, fmt.Errorf("remove an idle sandbox: %w", err)
			}
			return sl, nil
		case sl != nil:
			return sl, nil
		case p.o.Wait == 0:
			return nil, fmt.Errorf("%w: %d", ErrLimit, p.o.Max)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// tryTake takes a slot without waiting. The caller removes an evicted place.
func (p *Pool) tryTake(key string, s Spec) (sl *slot, evict place, changed <-chan struct{}, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, nil, nil, ErrClosed
	}
	var oldest *slot
	for c := range p.slots {
		if c.state != idle {
			continue
		}
		if c.key == key {
			c.state = making
			return c, nil, nil, nil
		}
		if oldest == nil || c.used.Before(oldest.used) {
			oldest = c
		}
	}
	if len(p.slots) < p.o.Max {
		sl := &slot{key: key, spec: s, state: making}
		p.slots[sl] = true
		return sl, nil, nil, nil
	}
	if oldest != nil {
		delete(p.slots, oldest)
		sl := &slot{key: key, spec: s, state: making}
		p.slots[sl] = true
		return sl, oldest.place, nil, nil
	}
	return nil, nil, p.changed, nil
}

// set changes the state of a slot that is still in the pool, and wakes waiting callers. A closed pool leases and keeps
// nothing.
func (p *Pool) set(sl *slot, from, to state) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.slots[sl] || sl.state != from || p.closed && to != making {
		return false
	}
	sl.state, sl.used = to, time.Now()
	p.tell()
	return true
}

func (p *Pool) tell() {
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *Pool) drop(sl *slot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.slots, sl)
	p.tell()
}

// removeTime bounds the removal of a sandbox: an engine under load takes seconds.
const removeTime = 30 * time.Second

// remove removes a slot with its sandbox. If the removal fails, the sandbox ends without keep-alive signals; its slot
// is free.
func (p *Pool) remove(ctx context.Context, sl *slot) error {
	p.set(sl, busy, making)
	defer p.drop(sl)
	if sl.place == nil {
		return nil
	}
	return removePlace(ctx, sl.place)
}

// removePlace removes a sandbox of the pool, even if ctx has ended.
func removePlace(ctx context.Context, place place) error {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), removeTime, fmt.Errorf("not removed within %s", removeTime))
	defer cancel()
	if err := place.Remove(ctx); err != nil {
		return fmt.Errorf("remove sandbox %s of the pool: %w", place.Name(), err)
	}
	return nil
}

// giveBack returns a turn's sandbox to the pool: it becomes idle if it is clean and reusable, and is removed otherwise.
func (p *Pool) giveBack(ctx context.Context, sl *slot, t turn, clean bool) error {
	err := t.End(ctx)
	if clean = clean && err == nil && sl.leases && sl.spec.Reuse != ReuseNever; clean && p.set(sl, busy, idle) {
		return nil
	}
	rerr := p.remove(ctx, sl)
	p.warm(ctx, sl.key, sl.spec)
	if rerr != nil {
		return errors.Join(err, rerr)
	}
	return nil // leftovers are gone with the sandbox
}

// makeTime bounds the creation of an idle sandbox.
const makeTime = time.Minute

// warm creates idle sandboxes of a spec, up to Warm and Max.
func (p *Pool) warm(ctx context.Context, key string, s Spec) {
	for {
		p.mu.Lock()
		n := 0
		for sl := range p.slots {
			if sl.key == key && sl.state != busy {
				n++
			}
		}
		if p.closed || n >= p.o.Warm || len(p.slots) >= p.o.Max {
			p.mu.Unlock()
			return
		}
		sl := &slot{key: key, spec: s, state: making}
		p.slots[sl] = true
		p.work.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, makeTime)
			defer cancel()
			if err := p.create(ctx, sl); err != nil {
				p.o.Log.Warn("could not create an idle sandbox", "error", err)
				p.drop(sl)
				return
			}
			if !p.set(sl, making, idle) {
				if err := p.remove(ctx, sl); err != nil {
					p.o.Log.Warn("could not remove a sandbox", "error", err)
				}
			}
		})
		p.mu.Unlock()
	}
}

// Reap removes the sandboxes of a killed program that had a pool of the same Options.Name, which would otherwise end
// after a minute. Call it before any Acquire, and only if no other such pool exists. The error has each sandbox that
// could not be removed; the others are removed.
func (p *Pool) Reap(ctx context.Context) error {
	if p.o.Name == "" {
		return nil
	}
	left, err := p.m.Left(ctx, p.o.Name)
	errs := make([]error, len(left))
	var wg sync.WaitGroup
	for i, l := range left {
		wg.Go(func() { errs[i] = removePlace(ctx, l) })
	}
	wg.Wait()
	return errors.Join(append(errs, err)...)
}

// DestroyAll removes all sandboxes of the pool, idle and leased, concurrently. It ends all leases. The error has each
// sandbox that could not be removed; the others are removed.
func (p *Pool) DestroyAll(ctx context.Context) error {
	p.mu.Lock()
	var all []*slot
	for sl := range p.slots {
		if sl.state != making {
			all = append(all, sl)
		}
	}
	for _, sl := range all {
		sl.state = making
	}
	p.mu.Unlock()
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i, sl := range all {
		wg.Go(func() { errs[i] = p.remove(ctx, sl) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Close closes the pool and removes all sandboxes as DestroyAll does, including those being created.
func (p *Pool) Close(ctx context.Context) error {
	p.mu.Lock()
	p.closed = true
	p.tell()
	p.mu.Unlock()
	err := p.DestroyAll(ctx)
	p.work.Wait()
	return err
}
