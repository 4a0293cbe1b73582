// Package heartbeat moves this box's heartbeat, and detects that another box has the lease.
package heartbeat

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/ledger"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/remote"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/repos"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Heart moves this box's heartbeat.
type Heart struct {
	repos  *repos.Repos
	book   *ledger.Book
	remote *remote.Remote

	pulse pulse
}

// New returns a Heart.
func New(repos *repos.Repos, book *ledger.Book, remote *remote.Remote) *Heart {
	return &Heart{repos: repos, book: book, remote: remote}
}

// The state on the remote is the fence: it changes by compare and swap, with every push. The heartbeat is a
// separate ref. A goroutine moves it independently of a save, a commit, validation or a push, which may take
// minutes.

const (
	// beatLeast is the least time that one heartbeat has to reach the remote.
	beatLeast = 10 * time.Second
	// beatRetry is the fraction of the renewal time after which a failed heartbeat is retried.
	beatRetry = 4
)

// pulse is the goroutine that moves the heartbeat. The zero value is ready.
type pulse struct {
	mu   sync.Mutex
	stop context.CancelFunc
	last chan struct{} // closed when the current heartbeat is the last one
	done chan struct{} // closed when the goroutine ends; nil if there is none
}

// Live starts the heartbeat, until Rest.
func (h *Heart) Live(ctx context.Context) {
	l := &h.pulse
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, lost := h.book.Fence.Loser(); l.done != nil || lost {
		return
	}
	ctx, l.stop = context.WithCancel(context.WithoutCancel(ctx))
	l.last, l.done = make(chan struct{}), make(chan struct{})
	go h.beats(ctx, l.last, l.done)
}

// Rest stops the heartbeat and waits for its goroutine.
func (h *Heart) Rest() { h.restAfter(0) }

// restAfter stops the heartbeat and waits for its goroutine; a heartbeat under way has this long to arrive.
func (h *Heart) restAfter(patience time.Duration) {
	l := &h.pulse
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

// Fade stops the heartbeat and deletes its ref. A remaining ref is harmless, because the state records that
// the lease is free.
func (h *Heart) Fade(ctx context.Context) {
	limit := beatLeast
	if d, ok := ctx.Deadline(); ok && time.Until(d) < repos.LocalTime {
		limit = workorder.ReleaseGrace // the result waits for this
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	// The remote may still carry out a killed push, after this one.
	h.restAfter(limit / 2)
	_ = h.repos.Authed(
		h.repos.Outbox(),
	).Run(ctx, "push", "--quiet", "--no-verify", "--", h.repos.Order.CloneURL, ":"+workorder.AliveRef(h.repos.Order.TaskID))
}

func (h *Heart) beats(ctx context.Context, last <-chan struct{}, done chan<- struct{}) {
	defer close(done)
	var made [2]string
	well, warned := time.Now(), false
	for {
		pause := h.book.Renewal()
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
			if silent := time.Since(well); silent > workorder.LeaseMisses*h.book.Renewal()/2 && !warned {
				warned = true
				h.repos.Emit(workorder.Event{Type: workorder.EventWarning, Text: fmt.Sprintf(
					"no heartbeat has reached the remote for %s, and another sandbox may take the task: %v", silent.Round(time.Second), err)})
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

// Beat checks that this box still holds the lease and moves the heartbeat. over means that there is no lease
// to keep. made are the last commits used for it.
func (h *Heart) Beat(ctx context.Context, made *[2]string) (over bool, err error) {
	state := workorder.StateRef(h.repos.Order.TaskID)
	refs, err := h.repos.Ask(ctx, "", state)
	if err != nil {
		return false, err
	}
	if at := refs[state]; at != "" && !h.book.Fence.Sent(at) {
		s, err := h.remote.FetchState(ctx, "pulse")
		switch {
		case err != nil:
			return false, err
		case s != nil && h.book.OverFor(s):
			return true, nil
		case s == nil || !h.book.Ours(s):
			_ = h.Lose(s)
			return true, nil
		}
	}
	commit, err := h.sign(ctx)
	if err != nil {
		commit = made[0] // the disk may be full: any other commit keeps the lease, too
	}
	if commit == "" {
		return false, err
	}
	made[0], made[1] = made[1], commit
	return false, h.repos.Authed(
		h.repos.Outbox(),
	).Run(ctx, "push", "--quiet", "--no-verify", "--", h.repos.Order.CloneURL, "+"+commit+":"+workorder.AliveRef(h.repos.Order.TaskID))
}

// sign creates a new commit with a unique id.
func (h *Heart) sign(ctx context.Context) (string, error) {
	tree, err := h.repos.Outbox().Output(ctx, "mktree")
	if err != nil {
		return "", fmt.Errorf("create a heartbeat: %w", err)
	}
	commit, err := h.repos.Outbox().Output(
		ctx, "commit-tree", "-m", fmt.Sprintf("Attempt %s lives\n\n%d", h.repos.Order.AttemptID, time.Now().UnixNano()),
		string(bytes.TrimSpace(tree)),
	)
	if err != nil {
		return "", fmt.Errorf("create a heartbeat: %w", err)
	}
	return string(bytes.TrimSpace(commit)), nil
}

// Lose records and reports, once, that the state is another box's; nil means that the state cannot be read.
func (h *Heart) Lose(s *workorder.State) *workorder.Lease {
	var l *workorder.Lease
	if s != nil {
		l = s.Lease
	}
	h.book.Fence.Lose(l, func() {
		h.repos.Emit(workorder.Event{Type: workorder.EventLease, Status: "lost", Text: h.Held(l).Error() + "; nothing more is pushed from here"})
	})
	return l
}
