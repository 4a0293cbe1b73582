package publish

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// The state on the remote is the fence: it changes by compare and swap, with every
// push. That its holder lives is told by a ref of its own, which a goroutine moves
// whatever else goes on: a save, a commit, validation or a push may take minutes.

const (
	// beatLeast is the least time that one sign of life has to reach the remote.
	beatLeast = 10 * time.Second
	// beatRetry is the part of the renewal after which a sign of life that failed is given again.
	beatRetry = 4
	// maxSent bounds the states that are known to be ours: late pushes are few.
	maxSent = 50
)

// pulse is what the goroutine shares with the rest. The zero value is ready.
type pulse struct {
	losing sync.Once // first is who noted that the lease is lost; the others wait until it has been said

	mu   sync.Mutex
	sent []string         // state commits that we sent
	lost bool             // another box has the lease
	by   *workorder.Lease // its lease; nil: not known
	gone chan struct{}    // closed when lost
	stop context.CancelFunc
	last chan struct{} // closed: the sign of life under way is the last one
	done chan struct{} // the goroutine's end; nil: there is none
}

// lostC is closed when another box has the lease.
func (l *pulse) lostC() chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gone == nil {
		l.gone = make(chan struct{})
	}
	return l.gone
}

// lose notes who has the lease, where nobody had noted it. say is called before
// anyone who waits learns of it: what follows may end the process, or the reading of events.
func (l *pulse) lose(by *workorder.Lease, say func()) {
	l.losing.Do(func() {
		say()
		gone := l.lostC()
		l.mu.Lock()
		l.lost, l.by = true, by
		l.mu.Unlock()
		close(gone)
	})
}

func (l *pulse) loser() (by *workorder.Lease, lost bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.by, l.lost
}

// sending notes states that may be on the remote from now on.
func (l *pulse) sending(commits ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent = append(l.sent, commits...)
	l.sent = l.sent[max(0, len(l.sent)-maxSent):]
}

func (l *pulse) ours(commit string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Contains(l.sent, commit)
}

// live begins to tell that we live, until rest.
func (p *Publisher) live(ctx context.Context) {
	l := &p.pulse
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.done != nil || l.lost {
		return
	}
	ctx, l.stop = context.WithCancel(context.WithoutCancel(ctx))
	l.last, l.done = make(chan struct{}), make(chan struct{})
	go p.beats(ctx, l.last, l.done)
}

// rest ends live and waits for it.
func (p *Publisher) rest() { p.restAfter(0) }

// restAfter ends live and waits for it; a sign of life that is under way has so long to arrive.
func (p *Publisher) restAfter(patience time.Duration) {
	l := &p.pulse
	l.mu.Lock()
	stop, last, done := l.stop, l.last, l.done
	l.stop, l.last, l.done = nil, nil, nil
	l.mu.Unlock()
	if done == nil {
		return
	}
	close(last)
	if patience > 0 {
		t := time.NewTimer(patience)
		defer t.Stop()
		select {
		case <-done:
		case <-t.C:
		}
	}
	stop()
	<-done
}

// fade ends live and takes the sign of life away. One that stays is no harm: the
// state says that nobody has the lease.
func (p *Publisher) fade(ctx context.Context) {
	limit := beatLeast
	if d, ok := ctx.Deadline(); ok && time.Until(d) < localTime {
		limit = workorder.ReleaseGrace // the result waits
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	// A push that is killed may be done by the remote all the same, after this one.
	p.restAfter(limit / 2)
	_ = p.authed(p.outbox()).Run(ctx, "push", "--quiet", "--no-verify", "--", p.Order.CloneURL, ":"+workorder.AliveRef(p.Order.TaskID))
}

func (p *Publisher) beats(ctx context.Context, last <-chan struct{}, done chan<- struct{}) {
	defer close(done)
	var made [2]string
	well, warned := time.Now(), false
	for {
		pause := p.renewal()
		try, cancel := context.WithTimeout(ctx, max(pause, beatLeast))
		over, err := p.beat(try, &made)
		cancel()
		switch {
		case over || ctx.Err() != nil:
			return
		case err == nil:
			well, warned = time.Now(), false
		default:
			pause /= beatRetry
			if silent := time.Since(well); silent > workorder.LeaseMisses*p.renewal()/2 && !warned {
				warned = true
				p.Emit(workorder.Event{Type: workorder.EventWarning, Text: fmt.Sprintf(
					"the remote could not be told for %s that this box lives, and another one may take the task: %v", silent.Round(time.Second), err)})
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-last:
			return
		case <-time.After(pause):
		}
	}
}

// beat looks whether the lease is still ours and moves the sign of life. over: there
// is no lease to keep. made are the last commits that served as one.
func (p *Publisher) beat(ctx context.Context, made *[2]string) (over bool, err error) {
	state := workorder.StateRef(p.Order.TaskID)
	refs, err := p.ask(ctx, "", state)
	if err != nil {
		return false, err
	}
	if at := refs[state]; at != "" && !p.pulse.ours(at) {
		s, err := p.fetchState(ctx, "pulse")
		switch {
		case err != nil:
			return false, err
		case s != nil && p.overFor(s):
			return true, nil
		case s == nil || !p.ours(s):
			_ = p.lose(s)
			return true, nil
		}
	}
	commit, err := p.sign(ctx)
	if err != nil {
		commit = made[0] // a disk that is full must not cost the lease: any other commit will do
	}
	if commit == "" {
		return false, err
	}
	made[0], made[1] = made[1], commit
	return false, p.authed(p.outbox()).Run(ctx, "push", "--quiet", "--no-verify", "--", p.Order.CloneURL, "+"+commit+":"+workorder.AliveRef(p.Order.TaskID))
}

// sign makes a commit that was never there.
func (p *Publisher) sign(ctx context.Context) (string, error) {
	tree, err := p.outbox().Output(ctx, "mktree")
	if err != nil {
		return "", fmt.Errorf("make a sign of life: %w", err)
	}
	commit, err := p.outbox().Output(ctx, "commit-tree", "-m", fmt.Sprintf("Attempt %s lives\n\n%d", p.Order.AttemptID, time.Now().UnixNano()), string(bytes.TrimSpace(tree)))
	if err != nil {
		return "", fmt.Errorf("make a sign of life: %w", err)
	}
	return string(bytes.TrimSpace(commit)), nil
}

// ours reports whether a state is of a push of ours: it has our lease, or says how
// our attempt ended and nobody came after it.
func (p *Publisher) ours(s *workorder.State) bool {
	if s.Lease != nil {
		return p.holds(s.Lease)
	}
	last := s.Last()
	return last != nil && last == p.mine(s)
}

// holds reports whether a lease is this box's.
func (p *Publisher) holds(l *workorder.Lease) bool {
	return l.AttemptID == p.Order.AttemptID && l.Incarnation == p.incarnation
}

// mine is this box's attempt in a state, under its own name or the one that it has since another box began the same
// attempt again; nil: there is none.
func (p *Publisher) mine(s *workorder.State) *workorder.Attempt {
	if a := s.Find(p.Order.AttemptID); a != nil && a.Incarnation == p.incarnation {
		return a
	}
	if p.incarnation == "" {
		return nil
	}
	return s.Find(p.incarnation)
}

// overFor reports whether we had said how our attempt ended before another one began.
func (p *Publisher) overFor(s *workorder.State) bool {
	a := p.mine(s)
	return a != nil && a.Status != "" && a.Status != workorder.StatusLost
}

// lose notes, and says once, that the state is another box's; nil: it cannot be read.
func (p *Publisher) lose(s *workorder.State) *workorder.Lease {
	var l *workorder.Lease
	if s != nil {
		l = s.Lease
	}
	p.pulse.lose(l, func() {
		p.Emit(workorder.Event{Type: workorder.EventLease, Status: "lost", Text: p.held(l).Error() + "; nothing more is pushed from here"})
	})
	return l
}

// fetchState reads the state that the remote has now, under a name of the mirror
// that nobody else uses. nil: there is one and it cannot be read.
func (p *Publisher) fetchState(ctx context.Context, name string) (*workorder.State, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	ref := "refs/seen/" + name
	if err := p.authed(p.Mirror()).Run(ctx, "fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance",
		"--", p.Order.CloneURL, "+"+workorder.StateRef(p.Order.TaskID)+":"+ref); err != nil {
		return nil, err
	}
	s, err := p.readState(ctx, p.Mirror(), ref)
	if err != nil && ctx.Err() == nil {
		return nil, nil
	}
	return s, err
}
