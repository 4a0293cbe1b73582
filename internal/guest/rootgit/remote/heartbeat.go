package remote

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Heartbeat moves this box's heartbeat.
type Heartbeat struct {
	*Remote

	loop loop
	beat atomic.Bool // this process has pushed one
}

// The heartbeat is a ref apart from the state, so that a goroutine can move it during a save, a commit or a push.

const (
	// beatLeast is the least time that one heartbeat has to reach the remote.
	beatLeast = 10 * time.Second
	// beatRetry is the fraction of the renewal time after which a failed heartbeat is retried.
	beatRetry = 4
)

// loop is the goroutine that moves the heartbeat. The zero value is ready.
type loop struct {
	mu   sync.Mutex
	stop context.CancelFunc
	last chan struct{} // closed when the current heartbeat is the last one
	done chan struct{} // closed when the goroutine ends; nil if there is none
}

// Start starts the heartbeat, until Stop.
func (h *Heartbeat) Start(ctx context.Context) {
	l := &h.loop
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, lost := h.Ledger.Fence.LostTo(); l.done != nil || lost {
		return
	}
	ctx, l.stop = context.WithCancel(context.WithoutCancel(ctx))
	l.last, l.done = make(chan struct{}), make(chan struct{})
	go h.beatUntil(ctx, l.last, l.done)
}

// Stop stops the heartbeat and waits for its goroutine.
func (h *Heartbeat) Stop() { h.stopAfter(0) }

// stopAfter stops the heartbeat and waits for its goroutine; a heartbeat under way has this long to arrive.
func (h *Heartbeat) stopAfter(patience time.Duration) {
	l := &h.loop
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

// StopAndDelete stops the heartbeat and deletes its ref, if there may be one. A remaining ref is harmless: the state records a free
// lease.
func (h *Heartbeat) StopAndDelete(ctx context.Context) {
	limit := beatLeast
	if d, ok := ctx.Deadline(); ok && time.Until(d) < LocalTime {
		limit = workorder.ReleaseGrace // the result waits for this
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	// The remote may still carry out a killed push, after this one.
	h.stopAfter(limit / 2)
	if h.beat.Load() || h.Ledger.mayBeat {
		_ = h.push(ctx, "")
	}
}

// push makes the heartbeat's ref name a commit; an empty one deletes it.
func (h *Heartbeat) push(ctx context.Context, commit string) error {
	return h.Repos.authed(h.Repos.Outbox()).Run(
		ctx, "push", "--quiet", "--no-verify", "--", h.Repos.Order.CloneURL, commit+":"+workorder.AliveRef(h.Repos.Order.TaskID),
	)
}

func (h *Heartbeat) beatUntil(ctx context.Context, last <-chan struct{}, done chan<- struct{}) {
	defer close(done)
	var made [2]string
	well, warned := time.Now(), false
	// The push that took the lease or restarted the heartbeat is a sign of life as well.
	for pause := h.Ledger.renewal(); ; {
		select {
		case <-ctx.Done():
			return
		case <-last:
			return
		case <-time.After(pause):
		}
		pause = h.Ledger.renewal()
		try, cancel := context.WithTimeout(ctx, max(pause, beatLeast))
		over, err := h.Beat(try, &made)
		cancel()
		switch {
		case over || ctx.Err() != nil:
			return
		case err == nil:
			well, warned = time.Now(), false
		default:
			pause /= beatRetry
			if silent := time.Since(well); silent > workorder.LeaseMisses*h.Ledger.renewal()/2 && !warned {
				warned = true
				h.Repos.Warn(
					"no heartbeat has reached the remote for %s, and another sandbox may take the task: %v", silent.Round(time.Second), err,
				)
			}
		}
	}
}

// Beat checks that this box still holds the lease and moves the heartbeat. made are the last commits used for it.
func (h *Heartbeat) Beat(ctx context.Context, made *[2]string) (over bool, err error) {
	state := workorder.StateRef(h.Repos.Order.TaskID)
	refs, err := h.Repos.ListRefs(ctx, "", state)
	if err != nil {
		return false, err
	}
	if at := refs[state]; at != "" && !h.Ledger.Fence.hasSent(at) {
		s, err := h.FetchState(ctx, "pulse")
		switch {
		case err != nil:
			return false, err
		case s != nil && h.Ledger.endedIn(s):
			return true, nil
		case s == nil || !h.Ledger.IsOwn(s):
			_ = h.reportLost(s)
			return true, nil
		}
	}
	commit, err := h.sign()
	if err != nil {
		commit = made[0] // the disk may be full: any other commit keeps the lease, too
	}
	if commit == "" {
		return false, err
	}
	made[0], made[1] = made[1], commit
	h.beat.Store(true)
	return false, h.push(ctx, "+"+commit)
}

// sign creates a new commit with a unique id.
func (h *Heartbeat) sign() (string, error) {
	message := fmt.Sprintf("Attempt %s lives\n\n%d", h.Repos.Order.AttemptID, time.Now().UnixNano())
	commit, err := h.Repos.Outbox().WriteCommit(nil, Signature, message, "")
	if err != nil {
		return "", fmt.Errorf("create a heartbeat: %w", err)
	}
	return commit, nil
}

// reportLost records and reports, once, that the state is another box's; nil means that the state cannot be read.
func (h *Heartbeat) reportLost(s *workorder.State) *workorder.TaskLease {
	var l *workorder.TaskLease
	if s != nil {
		l = s.Lease
	}
	h.Ledger.Fence.markLost(l, func() {
		h.Repos.Emit(workorder.Event{
			Type: workorder.EventLease, Status: "lost",
			Text: h.HeldError(l).Error() + "; nothing more is pushed from here",
		})
	})
	return l
}

// LeaseHeldError means that another box works on the task.
type LeaseHeldError struct {
	TaskID    string
	Holder    string // host name of the box
	AttemptID string
	RenewedAt time.Time // its last push, by its own clock
}

func (e *LeaseHeldError) Error() string {
	if e.AttemptID == "" {
		return fmt.Sprintf("the lease of task %s was taken from this sandbox", e.TaskID)
	}
	return fmt.Sprintf("another sandbox (host %s, attempt %s) works on task %s", e.Holder, e.AttemptID, e.TaskID)
}

// EndedBy implements boot.EndedByer.
func (e *LeaseHeldError) EndedBy() workorder.EndedBy { return workorder.EndedByLease }

// HeldError returns the error for a lease l of another box; l is nil if its holder is unknown.
func (h *Heartbeat) HeldError(l *workorder.TaskLease) *LeaseHeldError {
	e := &LeaseHeldError{TaskID: h.Repos.Order.TaskID}
	if l != nil {
		e.Holder, e.AttemptID, e.RenewedAt = l.Holder, l.AttemptID, l.RenewedAt
	}
	return e
}
