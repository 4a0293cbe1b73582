// Package pool keeps sandboxes ready and leases each to one user at a time, clean.
//
// A Pool creates sandboxes on demand up to a limit, and keeps released ones. In a container a lease is a nested sandbox
// (sandbox.Nested), which leaves nothing behind; a sandbox that may not be clean is removed. A jail, and a Spec that is
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
	// ErrPoolFull means that the limit of leased sandboxes is reached.
	ErrPoolFull = errors.New("pool limit reached")
	// ErrReleased means that the lease was released or destroyed.
	ErrReleased = errors.New("lease ended")
	// ErrClosed means that the pool is closed.
	ErrClosed = errors.New("pool closed")
)

// Options configure a pool.
type Options struct {
	Max  int           // limits the sandboxes, leased and idle; 0 means DefaultMax
	Wait time.Duration // how long Acquire waits at the limit; 0 means not at all
	Warm int           // the number of idle sandboxes kept ready for each used Spec, within Max; 0 means none
	// Image returns the image of a Spec that names none, and builds it if it is missing; nil means that each Spec must name one.
	Image func(ctx context.Context) (string, error)
	// Name is the prefix of the names of the pool's sandboxes. It must be unique among the pools of the manager's state
	// directory: see RemoveOrphans. "" means none.
	Name string
	// Log receives debug messages; nil discards them.
	Log *slog.Logger
}

// Pool leases sandboxes. Its methods may be called concurrently.
type Pool struct {
	m creator
	o Options

	mu        sync.Mutex
	slots     map[*slot]bool
	noNesting map[string]error // by key: why its containers cannot nest sandboxes
	closed    bool
	changed   chan struct{} // closed when capacity may have become free
	work      sync.WaitGroup
}

type creator interface {
	// Create creates a sandbox of a complete spec. Without leases, or if it cannot nest, it is leased only once.
	Create(ctx context.Context, s Spec, name string, leases bool) (pooled, error)
	// ImageID returns the current id of an image name.
	ImageID(ctx context.Context, image string) (string, error)
	// orphans lists sandboxes whose names have the prefix. On error the list is incomplete.
	orphans(ctx context.Context, name string) ([]pooled, error)
}

type pooled interface {
	Name() string
	// use starts a lease in it.
	use(ctx context.Context) (use, error)
	Remove(ctx context.Context) error
}

// use is one lease of a pooled sandbox.
type use interface {
	sandbox.Executor
	// End returns nil if nothing remains of the use and the sandbox can be reused.
	End(ctx context.Context) error
}

// slot is capacity for one sandbox.
type slot struct {
	key     string
	spec    Spec
	sandbox pooled
	leases  bool // the sandbox can nest sandboxes and be reused
	state   state
	used    time.Time
}

type state int

const (
	changing state = iota // or removing
	idle
	busy
)

// New returns a pool of the manager's sandboxes. It contacts nothing.
func New(m *sandbox.Manager, o Options) *Pool { return newPool(&manager{m}, o) }

func newPool(m creator, o Options) *Pool {
	o.Max = cmp.Or(o.Max, DefaultMax)
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	return &Pool{m: m, o: o, slots: map[*slot]bool{}, noNesting: map[string]error{}, changed: make(chan struct{})}
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
	for _, err := range p.noNesting {
		s.Reuse, s.Reason = ReuseNever, err.Error()
	}
	for sl := range p.slots {
		switch sl.state {
		case idle:
			s.Idle++
		case busy:
			s.Busy++
		case changing:
		}
	}
	return s
}

// useTimeout bounds the start of a lease, which takes milliseconds. A paused sandbox does not answer at all.
const useTimeout = 10 * time.Second

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
		had := sl.sandbox != nil
		t, err := p.begin(ctx, sl)
		if err == nil && !p.set(sl, changing, busy) {
			err = errors.Join(ErrClosed, t.End(context.WithoutCancel(ctx)))
		}
		if err == nil {
			p.warm(context.WithoutCancel(ctx), key, s)
			return &Lease{p: p, slot: sl, use: t, id: "L-" + strings.ToLower(rand.Text()[:leaseID])}, nil
		}
		rerr := p.remove(ctx, sl)
		if !had || ctx.Err() != nil || errors.Is(err, ErrClosed) {
			return nil, errors.Join(err, rerr)
		}
		// An idle sandbox was removed or paused: use another.
		p.o.Log.Warn("idle sandbox not usable", "sandbox", sl.sandbox.Name(), "error", errors.Join(err, rerr))
	}
}

// leaseID is the length of a lease's id: 50 bits are unique in a program.
const leaseID = 10

// begin creates the slot's sandbox if there is none, and starts a lease in it.
func (p *Pool) begin(ctx context.Context, sl *slot) (use, error) {
	fresh := sl.sandbox == nil
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
	first := len(p.noNesting) == 0
	p.noNesting[sl.key] = err
	p.mu.Unlock()
	if first {
		p.o.Log.Warn("containers cannot be reused here: each is leased once and removed", "error", err)
	}
	if err := removeSandbox(ctx, sl.sandbox); err != nil {
		return nil, err
	}
	sl.sandbox = nil
	if err := p.create(ctx, sl); err != nil {
		return nil, err
	}
	return lend(ctx, sl)
}

func (p *Pool) create(ctx context.Context, sl *slot) error {
	p.mu.Lock()
	leases := sl.spec.Runtime == sandbox.RuntimeContainer && p.noNesting[sl.key] == nil
	p.mu.Unlock()
	name := ""
	if p.o.Name != "" {
		name = p.o.Name + strings.ToLower(rand.Text())
	}
	sb, err := p.m.Create(ctx, sl.spec, name, leases)
	if err == nil {
		sl.sandbox, sl.leases = sb, leases
	}
	return err
}

// lend starts a lease in the slot's sandbox.
func lend(ctx context.Context, sl *slot) (use, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, useTimeout, fmt.Errorf("sandbox %s did not answer within %s", sl.sandbox.Name(), useTimeout))
	defer cancel()
	t, err := sl.sandbox.use(ctx)
	if err != nil {
		return nil, fmt.Errorf("lease sandbox %s: %w", sl.sandbox.Name(), err)
	}
	return t, nil
}

// take takes an idle slot of the key, or one without a sandbox.
func (p *Pool) take(ctx context.Context, key string, s Spec) (*slot, error) {
	if p.o.Wait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, p.o.Wait, fmt.Errorf("%w: %d sandboxes, none released within %s", ErrPoolFull, p.o.Max,
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
			if err := removeSandbox(ctx, evict); err != nil {
				p.drop(sl)
				return nil, fmt.Errorf("remove an idle sandbox: %w", err)
			}
			return sl, nil
		case sl != nil:
			return sl, nil
		case p.o.Wait == 0:
			return nil, fmt.Errorf("%w: %d", ErrPoolFull, p.o.Max)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// tryTake takes a slot without waiting. The caller removes an evicted sandbox.
func (p *Pool) tryTake(key string, s Spec) (sl *slot, evict pooled, changed <-chan struct{}, err error) {
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
			c.state = changing
			return c, nil, nil, nil
		}
		if oldest == nil || c.used.Before(oldest.used) {
			oldest = c
		}
	}
	if len(p.slots) < p.o.Max {
		sl := &slot{key: key, spec: s, state: changing}
		p.slots[sl] = true
		return sl, nil, nil, nil
	}
	if oldest != nil {
		delete(p.slots, oldest)
		sl := &slot{key: key, spec: s, state: changing}
		p.slots[sl] = true
		return sl, oldest.sandbox, nil, nil
	}
	return nil, nil, p.changed, nil
}

// set changes the state of a slot that is still in the pool, and wakes waiting callers. A closed pool leases and keeps nothing.
func (p *Pool) set(sl *slot, from, to state) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.slots[sl] || sl.state != from || p.closed && to != changing {
		return false
	}
	sl.state, sl.used = to, time.Now()
	p.notify()
	return true
}

func (p *Pool) notify() {
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *Pool) drop(sl *slot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.slots, sl)
	p.notify()
}

// removeTimeout bounds the removal of a sandbox: an engine under load takes seconds.
const removeTimeout = 30 * time.Second

// remove removes a slot with its sandbox. If the removal fails, the sandbox ends without keep-alive signals; its slot is free.
func (p *Pool) remove(ctx context.Context, sl *slot) error {
	p.set(sl, busy, changing)
	defer p.drop(sl)
	if sl.sandbox == nil {
		return nil
	}
	return removeSandbox(ctx, sl.sandbox)
}

// removeSandbox removes a sandbox of the pool, even if ctx has ended.
func removeSandbox(ctx context.Context, sb pooled) error {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), removeTimeout, fmt.Errorf("not removed within %s", removeTimeout))
	defer cancel()
	if err := sb.Remove(ctx); err != nil {
		return fmt.Errorf("remove sandbox %s of the pool: %w", sb.Name(), err)
	}
	return nil
}

// giveBack returns the sandbox of a lease to the pool: it becomes idle if it is clean and reusable, and is removed otherwise.
func (p *Pool) giveBack(ctx context.Context, sl *slot, t use, clean bool) error {
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

// createTimeout bounds the creation of an idle sandbox.
const createTimeout = time.Minute

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
		sl := &slot{key: key, spec: s, state: changing}
		p.slots[sl] = true
		p.work.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, createTimeout)
			defer cancel()
			if err := p.create(ctx, sl); err != nil {
				p.o.Log.Warn("could not create an idle sandbox", "error", err)
				p.drop(sl)
				return
			}
			if !p.set(sl, changing, idle) {
				if err := p.remove(ctx, sl); err != nil {
					p.o.Log.Warn("could not remove a sandbox", "error", err)
				}
			}
		})
		p.mu.Unlock()
	}
}

// RemoveOrphans removes the sandboxes of a killed program that had a pool of the same Options.Name, which would otherwise end
// after a minute. Call it before any Acquire, and only if no other such pool exists. The error has each sandbox that
// could not be removed; the others are removed.
func (p *Pool) RemoveOrphans(ctx context.Context) error {
	if p.o.Name == "" {
		return nil
	}
	left, err := p.m.orphans(ctx, p.o.Name)
	errs := make([]error, len(left))
	var wg sync.WaitGroup
	for i, l := range left {
		wg.Go(func() { errs[i] = removeSandbox(ctx, l) })
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
		if sl.state != changing {
			all = append(all, sl)
		}
	}
	for _, sl := range all {
		sl.state = changing
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
	p.notify()
	p.mu.Unlock()
	err := p.DestroyAll(ctx)
	p.work.Wait()
	return err
}
