package remote

import (
	"slices"
	"sync"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// maxSent bounds the recorded states of this box's own pushes: late pushes are few.
const maxSent = 50

// Fence reports to all goroutines of this box whether it holds the lease. The zero value means that it does.
type Fence struct {
	losing sync.Once // the first caller reports the loss; the others wait until it has

	mu   sync.Mutex
	sent []string             // state commits that this box sent
	lost bool                 // another box has the lease
	by   *workorder.TaskLease // its lease; nil if unknown
	gone chan struct{}        // closed when lost
}

// Lost returns a channel that is closed when another box holds the lease.
func (l *Fence) Lost() chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gone == nil {
		l.gone = make(chan struct{})
	}
	return l.gone
}

// markLost records the lease's new holder once. It calls say before Lost is closed, when the process may end.
func (l *Fence) markLost(by *workorder.TaskLease, say func()) {
	l.losing.Do(func() {
		say()
		gone := l.Lost()
		l.mu.Lock()
		l.lost, l.by = true, by
		l.mu.Unlock()
		close(gone)
	})
}

// LostTo returns the lease of the box that replaced this one if lost is true; nil if it is unknown.
func (l *Fence) LostTo() (by *workorder.TaskLease, lost bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.by, l.lost
}

// sending records states that may be on the remote from now on.
func (l *Fence) sending(commits ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent = append(l.sent, commits...)
	l.sent = l.sent[max(0, len(l.sent)-maxSent):]
}

func (l *Fence) hasSent(commit string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Contains(l.sent, commit)
}
