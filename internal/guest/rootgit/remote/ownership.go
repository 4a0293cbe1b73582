package remote

import (
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// IsOwn reports whether a state comes from a push of this box: it has this box's lease, or records the end of
// its attempt as the last one.
func (l *Ledger) IsOwn(s *workorder.State) bool {
	if s.Lease != nil {
		return l.Holds(s.Lease)
	}
	last := s.Last()
	return last != nil && last == l.OwnAttempt(s)
}

// Holds reports whether a lease is this box's.
func (l *Ledger) Holds(lease *workorder.Lease) bool {
	return lease.AttemptID == l.repos.Order.AttemptID && lease.Incarnation == l.BoxID
}

// OwnAttempt returns this box's attempt in a state, under its own name or under its new name since another box
// began the same attempt again; nil if there is none.
func (l *Ledger) OwnAttempt(s *workorder.State) *workorder.Attempt {
	if a := s.Find(l.repos.Order.AttemptID); a != nil && a.Incarnation == l.BoxID {
		return a
	}
	if l.BoxID == "" {
		return nil
	}
	return s.Find(l.BoxID)
}

// endedIn reports whether this box's attempt ended, according to the state, before another one began.
func (l *Ledger) endedIn(s *workorder.State) bool {
	a := l.OwnAttempt(s)
	return a != nil && a.Status != "" && a.Status != workorder.StatusLost
}

// Sending records a state that may be on the remote from now on.
func (l *Ledger) Sending(commit string) {
	l.Sent = append(l.Sent[max(0, len(l.Sent)-maxSent+1):], commit)
	l.Fence.sending(commit)
}
