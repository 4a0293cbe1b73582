package save

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/remote"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/tree"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Options set how often to save. Zero values mean the order's.
type Options struct {
	Push, Checkpoint time.Duration
	// CommitsOnly saves commits but not the work tree: after the agent's end, validation changes it.
	CommitsOnly bool
}

const (
	// watchEvery is the interval of checks for a new commit in the agent's refs.
	watchEvery = 500 * time.Millisecond
	// A commit is pushed once commitSettle passes without another, at the latest after lateness, at least apartness apart.
	commitSettle   = 2 * time.Second
	maxCommitDelay = 10 * time.Second
	minPushGap     = 3 * time.Second
	// firstRetry is the first pause after a failure; it doubles up to the interval.
	firstRetry = time.Second
	// repeatError is the minimum time between two reports of the same failure.
	repeatError = time.Minute
)

// AutoSaver saves the work while the agent runs. It is safe for concurrent use.
type AutoSaver struct {
	p        *Saver
	o        Options
	interval time.Duration

	begin, stop, done   chan struct{}
	flush               chan struct{}
	beginOnce, stopOnce sync.Once
	kill                context.CancelFunc

	mu      sync.Mutex
	changed time.Time

	said map[string]time.Time // errors, by the time of their last report
	bad  bool                 // the last save failed
}

// StartAuto saves the work from Begin on, until Stop or until ctx ends. After Stop, it may be called again.
func (sv *Saver) StartAuto(ctx context.Context, o Options) *AutoSaver {
	if o.Push <= 0 {
		o.Push = sv.Repos.Order.PushInterval()
	}
	if o.Checkpoint <= 0 {
		o.Checkpoint = sv.Repos.Order.CheckpointInterval()
	}
	ctx, cancel := context.WithCancel(ctx)
	a := &AutoSaver{
		p: sv, o: o, kill: cancel,
		// Each push costs a connection: both are pushed together.
		interval: min(o.Push, o.Checkpoint),
		begin:    make(chan struct{}), stop: make(chan struct{}), done: make(chan struct{}),
		flush: make(chan struct{}, 1), said: map[string]time.Time{},
	}
	go a.run(ctx)
	return a
}

// Begin starts saving; call it when the agent starts.
func (a *AutoSaver) Begin() { a.beginOnce.Do(func() { close(a.begin) }) }

// Flush starts a save and does not wait.
func (a *AutoSaver) Flush() {
	select {
	case a.flush <- struct{}{}:
	default: // one is due already
	}
}

// Stop starts no further save and waits for the one under way until ctx ends, which kills it.
func (a *AutoSaver) Stop(ctx context.Context) {
	a.stopOnce.Do(func() { close(a.stop) })
	select {
	case <-a.done:
	case <-ctx.Done():
		a.kill()
		<-a.done
	}
	a.kill()
}

// Lost returns a channel that is closed when another box holds the lease. That may happen long after Stop.
func (a *AutoSaver) Lost() <-chan struct{} { return a.p.Ledger.Fence.Lost() }

// Changed returns the time of the last observed change of the tree or of HEAD; zero if there was none.
func (a *AutoSaver) Changed() time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.changed
}

func (a *AutoSaver) touched() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.changed = time.Now()
}

// schedule has the times when saves are due; a zero time means never.
type schedule struct {
	save          time.Time
	first, latest time.Time // of the unpushed commits
	lastPush      time.Time
	retry         time.Duration // 0 if the last try succeeded
	notBefore     time.Time
	now           bool // Flush
}

// commitDue returns when the new commits are to be pushed.
func (s *schedule) commitDue() time.Time {
	if s.first.IsZero() {
		return time.Time{}
	}
	due := s.latest.Add(commitSettle)
	if late := s.first.Add(maxCommitDelay); late.Before(due) {
		due = late
	}
	if apart := s.lastPush.Add(minPushGap); apart.After(due) {
		due = apart
	}
	return due
}

func (a *AutoSaver) run(ctx context.Context) {
	defer close(a.done)
	if err := a.p.Ledger.Load(); err != nil {
		a.fail(workorder.EventLease, "", err)
		return
	}
	var s schedule
	begin, lost := a.begin, a.Lost()
	watch := time.NewTicker(min(watchEvery, max(a.interval/4, 10*time.Millisecond)))
	defer watch.Stop()
	tree, refs := "", a.refs()
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.stop:
			return
		case <-lost:
			return
		case <-begin:
			begin = nil
			s.save = time.Now() // earlier work is saved at once
		case <-a.flush:
			s.now = begin == nil
		case <-watch.C:
		}
		now := time.Now()
		if seen := a.refs(); seen != refs {
			refs, s.latest = seen, now
			if s.first.IsZero() {
				s.first = now
			}
			a.touched()
		}
		save := begin == nil && (s.now || due(s.save, now) || due(s.commitDue(), now))
		if !save || !s.now && now.Before(s.notBefore) {
			continue
		}
		select {
		case <-a.stop:
			return
		default:
		}
		if done := a.once(ctx, &s, &tree); done {
			return
		}
	}
}

func due(t, now time.Time) bool { return !t.IsZero() && !now.Before(t) }

// once saves and plans the next save. done means that the lease is lost.
func (a *AutoSaver) once(ctx context.Context, s *schedule, tree *string) (done bool) {
	s.first, s.now = time.Time{}, false
	out := a.p.Save(ctx, !a.o.CommitsOnly)
	now := time.Now()
	if out.Tree != "" && out.Tree != *tree {
		if *tree != "" {
			a.touched()
		}
		*tree = out.Tree
	}
	s.save = now.Add(a.interval)
	var refused *remote.PartialPushError
	settled := errors.As(out.PushErr, &refused)
	if out.Pushed || settled {
		s.lastPush = now
	}
	if ctx.Err() != nil {
		return true // killed: the next push finds out its result
	}
	if _, held := errors.AsType[*remote.LeaseHeldError](out.PushErr); held {
		return true
	}
	if out.SnapErr != nil {
		a.fail(workorder.EventCheckpoint, workorder.CheckpointRef(a.p.Repos.Order.TaskID), out.SnapErr)
	}
	switch {
	case settled:
		a.fail(workorder.EventPush, workorder.BranchRef(a.p.Ledger.Branch()), out.PushErr)
		a.bad = false
	case out.PushErr != nil:
		s.retry = min(max(2*s.retry, firstRetry), a.interval)
		if git.KindOf(out.PushErr) == git.KindAuth {
			s.retry = a.interval // more frequent retries do not help
		}
		s.notBefore = now.Add(s.retry)
		s.save = s.notBefore
		a.bad = true
		a.fail(workorder.EventPush, workorder.BranchRef(a.p.Ledger.Branch()), fmt.Errorf("%w; retrying in %s", out.PushErr, s.retry))
		if git.KindOf(out.PushErr) == git.KindOther {
			a.p.Index.Reset() // an object that only the separate index names may be missing
		}
		return false
	case out.Pushed && a.bad:
		a.bad = false
		clear(a.said)
		a.p.Repos.Emit(workorder.Event{
			Type: workorder.EventPush, Name: workorder.StateRef(a.p.Repos.Order.TaskID), Status: "ok", Text: "the remote accepts pushes again",
		})
	}
	s.retry, s.notBefore = 0, time.Time{}
	return false
}

// fail reports an error, the same one at most once in repeatError.
func (a *AutoSaver) fail(t workorder.EventType, ref string, err error) {
	// The growing pause at the end does not make it a different failure.
	kind := string(t) + ref + string(git.KindOf(err))
	if k := git.KindOf(err); k == git.KindOther || k == git.KindRejected {
		kind = string(t) + err.Error()
	}
	if at, ok := a.said[kind]; ok && time.Since(at) < repeatError {
		return
	}
	a.said[kind] = time.Now()
	a.p.Repos.Emit(workorder.Event{Type: t, Name: ref, Status: "error", Text: err.Error()})
}

// refs identifies the state of HEAD and the branch by the files' stamps, without reading them.
func (a *AutoSaver) refs() (s string) {
	for _, f := range []string{"HEAD", "logs/HEAD", "packed-refs", workorder.BranchRef(a.p.Ledger.Branch())} {
		s += tree.Stamp(filepath.Join(a.p.Repos.Workspace, ".git", f)) + "\n"
	}
	return s
}
