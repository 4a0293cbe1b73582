package ledger

import (
	"slices"
	"sync"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// maxSent bounds the states that are known to be ours: late pushes are few.
const maxSent = 50

// Fence says whether the lease is still ours, to all goroutines of this box. The zero value is ready: it is.
type Fence struct {
	losing sync.Once // first is who noted that the lease is lost; the others wait until it has been said

	mu   sync.Mutex
	sent []string         // state commits that we sent
	lost bool             // another box has the lease
	by   *workorder.Lease // its lease; nil: not known
	gone chan struct{}    // closed when lost
}

// Gone is closed when another box has the lease.
func (l *Fence) Gone() chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gone == nil {
		l.gone = make(chan struct{})
	}
	return l.gone
}

// Lose notes who has the lease, where nobody had noted it. say is called before
// anyone who waits learns of it: what follows may end the process, or the reading of events.
func (l *Fence) Lose(by *workorder.Lease, say func()) {
	l.losing.Do(func() {
		say()
		gone := l.Gone()
		l.mu.Lock()
		l.lost, l.by = true, by
		l.mu.Unlock()
		close(gone)
	})
}

// Loser is the lease of the box that has it in our place, where lost; nil: it is not known.
func (l *Fence) Loser() (by *workorder.Lease, lost bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.by, l.lost
}

// sending notes states that may be on the remote from now on.
func (l *Fence) sending(commits ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent = append(l.sent, commits...)
	l.sent = l.sent[max(0, len(l.sent)-maxSent):]
}

// Sent reports whether a state commit was sent by this box.
func (l *Fence) Sent(commit string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Contains(l.sent, commit)
}
