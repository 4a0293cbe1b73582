package pool

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandbox-agent/sandbox-agent/sandbox"
)

// rooms makes places that are nothing but their state.
type rooms struct {
	mu    sync.Mutex
	made  int
	there map[string]*room
	most  int // that there were at a time
	slow  time.Duration
	fails error
	// moved is how often the names of all images have come to mean others; plain says that no room makes leases.
	moved int
	plain bool
}

func newRooms() *rooms { return &rooms{there: map[string]*room{}} }

type room struct {
	all    *rooms
	name   string
	spec   sandbox.Spec
	lent   atomic.Bool
	gone   atomic.Bool
	stuck  atomic.Bool // it cannot be removed
	result sandbox.RunResult
	unend  atomic.Bool // what is left of a turn does not end
}

func (r *rooms) ImageID(_ context.Context, image string) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fails != nil {
		return "", r.fails
	}
	return fmt.Sprint(image, r.moved), nil
}

func (r *rooms) orphans(_ context.Context, name string) (all []pooled, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for n, p := range r.there {
		if strings.HasPrefix(n, name) {
			all = append(all, p)
		}
	}
	return all, nil
}

func (r *rooms) Create(ctx context.Context, asked Spec, name string, leases bool) (pooled, error) {
	s := asked.Sandbox()
	s.Nested = s.Nested && leases
	r.mu.Lock()
	if r.fails != nil {
		defer r.mu.Unlock()
		return nil, r.fails
	}
	r.made++
	p := &room{all: r, name: cmp.Or(name, fmt.Sprint("s", r.made)), spec: s}
	r.there[p.name] = p
	r.most = max(r.most, len(r.there))
	r.mu.Unlock()
	select {
	case <-time.After(r.slow):
		return p, nil
	case <-ctx.Done():
		return nil, errors.Join(ctx.Err(), p.Remove(ctx))
	}
}

func (p *room) Name() string { return p.name }

func (p *room) use(context.Context) (use, error) {
	if p.gone.Load() {
		return nil, sandbox.ErrConnectionLost
	}
	if p.all.plain && p.spec.Nested {
		return nil, sandbox.ErrUnsupported
	}
	if p.lent.Swap(true) {
		return nil, errors.New("it is lent to two")
	}
	return &visit{p}, nil
}

func (p *room) Remove(context.Context) error {
	if p.stuck.Load() {
		return errors.New("stuck")
	}
	p.all.mu.Lock()
	defer p.all.mu.Unlock()
	delete(p.all.there, p.name)
	p.gone.Store(true)
	return nil
}

type visit struct{ in *room }

func (v *visit) Run(context.Context, sandbox.Command) (sandbox.RunResult, error) {
	return v.in.result, nil
}

func (*visit) Start(context.Context, sandbox.Command) (*sandbox.Process, error) {
	return nil, errors.ErrUnsupported
}

func (*visit) OpenSession(context.Context, sandbox.SessionOptions) (*sandbox.Session, error) {
	return nil, errors.ErrUnsupported
}
func (*visit) Files() *sandbox.Files         { return nil }
func (*visit) Endpoints() *sandbox.Endpoints { return nil }

func (v *visit) End(context.Context) error {
	v.in.lent.Store(false)
	if v.in.unend.Load() {
		return errors.New("something runs on")
	}
	return nil
}

func stats(t *testing.T, p *Pool, idle, busy int) {
	t.Helper()
	if s := p.Stats(); s.Idle != idle || s.Busy != busy || s.Total != idle+busy {
		t.Errorf("%+v", s)
	}
}

func acquire(t *testing.T, p *Pool, s Spec) *Lease {
	t.Helper()
	l, err := p.Acquire(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func (l *Lease) room(t *testing.T) *room {
	t.Helper()
	return l.slot.sandbox.(*room)
}

var plain = Spec{Image: "i"}

// A sandbox that comes back is lent again, to the same spec only; what cannot be made clean never is.
func TestReuse(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		spoil func(*Lease, *room)
		next  Spec
		again bool
	}{
		"the same spec":    {next: plain, again: true},
		"other trust":      {next: Spec{Image: "i", Access: AccessNetwork}},
		"another variable": {next: Spec{Image: "i", Env: []string{"K=1"}}},
		"another limit":    {next: Spec{Image: "i", Limits: sandbox.Limits{MemoryBytes: 1 << 30}}},
		"a mount":          {next: Spec{Image: "i", Mounts: []sandbox.Mount{{Source: "/usr", Target: "/b", ReadOnly: true}}}},
		"another image":    {next: Spec{Image: "j"}},
		"a command out of time": {next: plain, spoil: func(l *Lease, r *room) {
			r.result.TimedOut = true
			_, _ = l.Run(context.Background(), sandbox.Command{})
		}},
		"out of memory": {next: plain, spoil: func(l *Lease, r *room) {
			r.result.OutOfMemory = true
			_, _ = l.Run(context.Background(), sandbox.Command{})
		}},
		"what does not end": {next: plain, spoil: func(_ *Lease, r *room) { r.unend.Store(true) }},
		"removed by others": {next: plain, spoil: func(_ *Lease, r *room) { _ = r.Remove(context.Background()) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newRooms()
			p := newPool(m, Options{})
			l := acquire(t, p, plain)
			stats(t, p, 0, 1)
			first := l.room(t)
			if row.spoil != nil {
				row.spoil(l, first)
			}
			if err := l.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := l.Release(t.Context()); err != nil {
				t.Errorf("a second time: %v", err)
			}
			if _, err := l.Run(t.Context(), sandbox.Command{}); !errors.Is(err, ErrReleased) {
				t.Errorf("after its end: %v", err)
			}
			if got := acquire(t, p, row.next).room(t); (got == first) != row.again {
				t.Errorf("%s after %s", got.name, first.name)
			}
			if err := p.Close(t.Context()); err != nil || len(m.there) != 0 {
				t.Errorf("%v, %d are left", err, len(m.there))
			}
		})
	}
}

func TestNeverReused(t *testing.T) {
	t.Parallel()
	m := newRooms()
	p := newPool(m, Options{})
	s := plain
	s.Reuse = ReuseNever
	if err := acquire(t, p, s).Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := acquire(t, p, Spec{Runtime: sandbox.RuntimeJail}).Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	stats(t, p, 0, 0)
	if len(m.there) != 0 {
		t.Errorf("%d are left", len(m.there))
	}
}

// Where containers make no leases each is lent once; that is told once, and others are lent again.
func TestNoLeases(t *testing.T) {
	t.Parallel()
	m := newRooms()
	m.plain = true
	var said bytes.Buffer
	p := newPool(m, Options{Log: slog.New(slog.NewTextHandler(&said, nil))})
	for range 3 {
		l := acquire(t, p, plain)
		if l.room(t).spec.Nested {
			t.Error("it is lent all the same")
		}
		if err := l.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if s := p.Stats(); s.Reuse != ReuseNever || s.Reason == "" || s.Total != 0 || len(m.there) != 0 || strings.Count(said.String(),
		"\n") != 1 || m.made != 4 {
		t.Errorf("%+v, %d were made, %d are left, said:\n%s", s, m.made, len(m.there), &said)
	}
	m.plain = false
	l := acquire(t, p, Spec{Image: "other"})
	if err := l.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	stats(t, p, 1, 0)
}

// The image of the pool is that of a lease which names none, and is asked for once all else is right.
func TestPoolsImage(t *testing.T) {
	t.Parallel()
	asked := 0
	p := newPool(newRooms(), Options{Image: func(context.Context) (string, error) {
		asked++
		return "own", nil
	}})
	if _, err := p.Acquire(t.Context(), Spec{User: "root"}); !errors.Is(err, sandbox.ErrInvalidSpec) || asked != 0 {
		t.Errorf("%v, asked %d times", err, asked)
	}
	if l := acquire(t, p, Spec{}); l.room(t).spec.Image != "own0" || asked != 1 {
		t.Errorf("%s, asked %d times", l.room(t).spec.Image, asked)
	}
	if _, err := newPool(newRooms(), Options{}).Acquire(t.Context(), Spec{}); !errors.Is(err, sandbox.ErrInvalidSpec) {
		t.Error(err)
	}
}

// A name of an image that has come to mean another one is another image.
func TestMovedImage(t *testing.T) {
	t.Parallel()
	m := newRooms()
	p := newPool(m, Options{})
	first := acquire(t, p, plain)
	if err := first.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.moved++
	if second := acquire(t, p, plain); second.room(t) == first.room(t) || second.room(t).spec.Image != "i1" {
		t.Errorf("%s of %s", second.Sandbox(), second.room(t).spec.Image)
	}
}

// A spec without an image has the pool's.
func TestOwnImage(t *testing.T) {
	t.Parallel()
	p := newPool(newRooms(), Options{Image: func(context.Context) (string, error) { return "own", nil }})
	if l := acquire(t, p, Spec{}); l.room(t).spec.Image != "own0" {
		t.Error(l.room(t).spec.Image)
	}
	if _, err := newPool(newRooms(), Options{}).Acquire(t.Context(), Spec{}); !errors.Is(err, sandbox.ErrInvalidSpec) {
		t.Error(err)
	}
}

// What a killed pool has left is removed by the next one of its name, and nothing else.
func TestReap(t *testing.T) {
	t.Parallel()
	m := newRooms()
	acquire(t, newPool(m, Options{}), plain)
	for range 2 {
		killed := acquire(t, newPool(m, Options{Name: "pool-"}), plain)
		killed.room(t).stuck.Store(len(m.there) == 3)
	}
	if err := newPool(m, Options{Name: "pool-"}).RemoveOrphans(t.Context()); err == nil || len(m.there) != 2 {
		t.Errorf("%v, %v", m.there, err)
	}
}

// There is never one too many, however many ask at once.
func TestLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newRooms()
		m.slow = time.Second
		p := newPool(m, Options{})
		var lent, refused atomic.Int32
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				switch _, err := p.Acquire(t.Context(), plain); {
				case err == nil:
					lent.Add(1)
				case errors.Is(err, ErrPoolFull):
					refused.Add(1)
				}
			})
		}
		wg.Wait()
		if lent.Load() != 3 || refused.Load() != 7 || m.most != 3 {
			t.Errorf("%d were lent, %d refused, %d there at once", lent.Load(), refused.Load(), m.most)
		}
	})
}

// Idle ones of another spec make room, the one that was not used for the longest time first.
func TestEvict(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newRooms()
		p := newPool(m, Options{})
		var all []*Lease
		for range 3 {
			all = append(all, acquire(t, p, plain))
		}
		for _, i := range []int{1, 0, 2} {
			time.Sleep(time.Second)
			if err := all[i].Release(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := p.Acquire(t.Context(), Spec{Image: "i", User: "root"}); !errors.Is(err, sandbox.ErrInvalidSpec) {
			t.Error(err)
		}
		stats(t, p, 3, 0)
		acquire(t, p, Spec{Image: "i", Access: AccessNetwork})
		stats(t, p, 2, 1)
		if !all[1].room(t).gone.Load() || m.most != 3 {
			t.Errorf("%v, %d at once", m.there, m.most)
		}
	})
}

func TestWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPool(newRooms(), Options{Max: 1, Wait: time.Minute})
		l := acquire(t, p, plain)
		time.AfterFunc(30*time.Second, func() { _ = l.Release(context.Background()) })
		began := time.Now()
		second := acquire(t, p, plain)
		if waited := time.Since(began); waited != 30*time.Second {
			t.Errorf("it waited %s", waited)
		}
		if _, err := p.Acquire(t.Context(), plain); !errors.Is(err, ErrPoolFull) || time.Since(began) != 90*time.Second {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := p.Acquire(ctx, plain); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		_ = second.Destroy(t.Context())
		stats(t, p, 0, 0)
	})
}

func TestWarm(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newRooms()
		m.slow = time.Second
		p := newPool(m, Options{Warm: 1, Max: 4})
		s := plain
		s.Reuse = ReuseNever
		first := acquire(t, p, s)
		time.Sleep(2 * time.Second)
		stats(t, p, 1, 1)
		began := time.Now()
		second := acquire(t, p, s)
		if time.Since(began) != 0 {
			t.Error("the one that was made ahead was not lent")
		}
		_, _ = first.Release(t.Context()), second.Release(t.Context())
		if err := p.Close(t.Context()); err != nil || len(m.there) != 0 {
			t.Errorf("%v, %d are left", err, len(m.there))
		}
	})
}

// One that cannot be removed keeps no other; what is made meanwhile is gone, too.
func TestDestroyAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newRooms()
		p := newPool(m, Options{})
		stuck, busy := acquire(t, p, plain), acquire(t, p, plain)
		stuck.room(t).stuck.Store(true)
		if err := busy.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		m.slow = time.Second
		late := make(chan error)
		go func() {
			_, err := p.Acquire(t.Context(), Spec{Image: "other"})
			late <- err
		}()
		synctest.Wait()
		if err := p.Close(t.Context()); err == nil {
			t.Error("nothing is said of the one that is left")
		}
		if err := <-late; !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
		if len(m.there) != 1 || p.Stats().Total != 0 {
			t.Errorf("%v, %+v", m.there, p.Stats())
		}
		if _, err := p.Acquire(t.Context(), plain); !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	})
}

func TestFails(t *testing.T) {
	t.Parallel()
	m := newRooms()
	m.fails = sandbox.ErrUnavailable
	p := newPool(m, Options{})
	if _, err := p.Acquire(t.Context(), plain); !errors.Is(err, sandbox.ErrUnavailable) {
		t.Error(err)
	}
	stats(t, p, 0, 0)
	if _, err := p.Acquire(t.Context(), Spec{Access: "some", Runtime: "box", Reuse: "ever"}); !errors.Is(err, sandbox.ErrInvalidSpec) {
		t.Error(err)
	}
}
