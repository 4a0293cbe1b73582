// Package pool keeps sandboxes ready and lends each to one user at a time, clean.
//
// A Pool makes sandboxes as they are asked for, up to a limit, and keeps those that come back. What is lent is a lease: in a container that is one turn in namespaces
// of its own (sandbox.Lease), of which nothing is left for the next; what cannot be made clean is thrown away. A jail, and a Spec that is never reused, has a
// sandbox for each lease. Sandboxes are given again only for the very same Spec.
//
// All sandboxes of a pool end with the program that has it: also where that is killed, since they miss its signs of life after a minute.
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

// DefaultMax is how many sandboxes a pool has at a time.
const DefaultMax = 3

// Errors on which a caller branches.
var (
	// ErrLimit means that as many sandboxes are lent as the pool may have.
	ErrLimit = errors.New("the pool has as many sandboxes as it may have")
	// ErrOver means that a lease was given back, or destroyed.
	ErrOver = errors.New("the lease is over")
	// ErrClosed means that the pool lends nothing any more.
	ErrClosed = errors.New("the pool is closed")
)

// Options are how a pool works.
type Options struct {
	// Max bounds the sandboxes that there are at a time, lent or idle; 0 means DefaultMax.
	Max int
	// Wait is how long Acquire waits for one to be given back; 0 does not wait.
	Wait time.Duration
	// Warm is how many idle sandboxes are made ahead for each Spec that was asked for, as far as there is room; 0 makes none.
	Warm int
	// Image returns the image of a Spec that names none, and makes it if it is missing; nil: each Spec names one.
	Image func(ctx context.Context) (string, error)
	// Name is the beginning of the names of all sandboxes of a pool that is the only one with it and the state folder of its manager: see Reap. "" is none.
	Name string
	// Log is for whoever looks for a fault; nil drops it.
	Log *slog.Logger
}

// Pool lends sandboxes. Its methods may be called concurrently.
type Pool struct {
	m maker
	o Options

	mu      sync.Mutex
	slots   map[*slot]bool
	never   map[string]error // by key: why its containers make no leases
	closed  bool
	changed chan struct{} // closed when room may have come
	work    sync.WaitGroup
}

type maker interface {
	// Create makes one of a complete spec, which has no leases if it cannot or if they are not wanted: then it is lent once.
	Create(ctx context.Context, s Spec, name string, leases bool) (place, error)
	// ImageID is what the name of an image means now.
	ImageID(ctx context.Context, image string) (string, error)
	// Left are those whose names begin like that. With the error of some it has the others.
	Left(ctx context.Context, name string) ([]place, error)
}

type place interface {
	Name() string
	// Lease begins a turn in it.
	Lease(ctx context.Context) (turn, error)
	Remove(ctx context.Context) error
}

// turn is one clean turn in a place.
type turn interface {
	Room
	// End returns nil once nothing is left of the turn: the place can have another.
	End(ctx context.Context) error
}

// slot is room for one sandbox.
type slot struct {
	key   string
	spec  Spec
	place place
	// leases says that the place makes leases, and so can be lent again.
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

// Stats are numbers of a pool.
type Stats struct {
	Idle  int `json:"idle"`
	Busy  int `json:"busy"`
	Total int `json:"total"` // with those that are being made and removed
	Max   int `json:"max_total"`
	// Reuse is ReuseNever where containers turned out to make no leases here: each is lent once then. Reason says why.
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

// turnTime bounds the beginning of a turn: one takes some milliseconds, and a sandbox that somebody halted none at all.
const turnTime = 10 * time.Second

// Acquire lends a sandbox of the spec: an idle one, or a new one where there is room or where an idle one of another spec makes room, the one that was not used for the longest time. ctx bounds the
// making and not the lease.
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
		// Somebody removed or halted an idle one: another is as good.
		p.o.Log.Warn("an idle sandbox could not be used", "sandbox", sl.place.Name(), "error", errors.Join(err, rerr))
	}
}

// leaseID is the length of a lease's id: 50 bits tell those of a program apart.
const leaseID = 10

// begin makes the slot's sandbox if there is none, and begins a turn in it.
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
	// The engine lets no container mount, or its storage is such that nothing can be laid over it.
	p.mu.Lock()
	first := len(p.never) == 0
	p.never[sl.key] = err
	p.mu.Unlock()
	if first {
		p.o.Log.Warn("containers make no leases here: each is lent once, and then removed", "error", err)
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

// create makes the slot's sandbox.
func (p *Pool) create(ctx context.Context, sl *slot) error {
	p.mu.Lock()
	leases := sl.spec.Runtime == sandbox.KindContainer && p.never[sl.key] == nil
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

// lend begins a turn in the slot's sandbox.
func lend(ctx context.Context, sl *slot) (turn, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, turnTime, fmt.Errorf("sandbox %s did not answer within %s", sl.place.Name(), turnTime))
	defer cancel()
	t, err := sl.place.Lease(ctx)
	if err != nil {
		return nil, fmt.Errorf("lend sandbox %s: %w", sl.place.Name(), err)
	}
	return t, nil
}

// take takes an idle slot of the key, or one without a sandbox.
func (p *Pool) take(ctx context.Context, key string, s Spec) (*slot, error) {
	if p.o.Wait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, p.o.Wait, fmt.Errorf("%w, %d, and none was given back within %s", ErrLimit, p.o.Max, p.o.Wait))
		defer cancel()
	}
	for {
		sl, evict, changed, err := p.tryTake(key, s)
		switch {
		case err != nil:
			return nil, err
		case evict != nil:
			// The slot stays taken until its sandbox is gone, so that there is never one too many.
			if err := removePlace(ctx, evict); err != nil {
				p.drop(sl)
				return nil, fmt.Errorf("make room in the pool: %w", err)
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

// tryTake takes what there is now. A place that is evicted is for the caller to remove.
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

// set changes the state of a slot that is still in the pool, and tells who waits. A pool that is closed lends and keeps nothing.
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

// remove removes a slot with its sandbox. One that cannot be removed ends by itself when it misses signs of life; its slot is free.
func (p *Pool) remove(ctx context.Context, sl *slot) error {
	p.set(sl, busy, making)
	defer p.drop(sl)
	if sl.place == nil {
		return nil
	}
	return removePlace(ctx, sl.place)
}

// removePlace removes a sandbox of the pool, also where ctx has ended.
func removePlace(ctx context.Context, place place) error {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), removeTime, fmt.Errorf("it was not removed within %s", removeTime))
	defer cancel()
	if err := place.Remove(ctx); err != nil {
		return fmt.Errorf("remove sandbox %s of the pool: %w", place.Name(), err)
	}
	return nil
}

// giveBack takes a turn's sandbox back: it is idle if nothing of the turn is left and it can have another, else it is removed.
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
	return nil // what was left is gone with its sandbox
}

// makeTime bounds the making of a sandbox that nobody waits for.
const makeTime = time.Minute

// warm makes idle sandboxes of a spec ahead, as many as are wanted and as there is room for.
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
				p.o.Log.Warn("no sandbox could be made ahead", "error", err)
				p.drop(sl)
				return
			}
			if !p.set(sl, making, idle) {
				if err := p.remove(ctx, sl); err != nil {
					p.o.Log.Warn("a sandbox was left", "error", err)
				}
			}
		})
		p.mu.Unlock()
	}
}

// Reap removes what a program has left that was killed and had a pool of the same Options.Name, in place of the minute after which that ends by itself. It is for
// whoever knows that there is no other such pool now, and before anything is lent. The error has each that could not be removed; the others are gone.
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

// DestroyAll removes all sandboxes of the pool, idle and lent, at the same time. The error has each that could not be removed; the others are gone. What is lent is over.
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

// Close lends nothing more, and removes all sandboxes as DestroyAll does, with those that are being made.
func (p *Pool) Close(ctx context.Context) error {
	p.mu.Lock()
	p.closed = true
	p.tell()
	p.mu.Unlock()
	err := p.DestroyAll(ctx)
	p.work.Wait()
	return err
}
