package ledger

import (
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Ours reports whether a state comes from a push of this box: it has this box's lease, or records the end of
// its attempt as the last one.
func (bk *Book) Ours(s *workorder.State) bool {
	if s.Lease != nil {
		return bk.Holds(s.Lease)
	}
	last := s.Last()
	return last != nil && last == bk.Mine(s)
}

// Holds reports whether a lease is this box's.
func (bk *Book) Holds(l *workorder.Lease) bool {
	return l.AttemptID == bk.repos.Order.AttemptID && l.Incarnation == bk.BoxID
}

// Mine returns this box's attempt in a state, under its own name or under its new name since another box
// began the same attempt again; nil if there is none.
func (bk *Book) Mine(s *workorder.State) *workorder.Attempt {
	if a := s.Find(bk.repos.Order.AttemptID); a != nil && a.Incarnation == bk.BoxID {
		return a
	}
	if bk.BoxID == "" {
		return nil
	}
	return s.Find(bk.BoxID)
}

// OverFor reports whether this box's attempt ended, according to the state, before another one began.
func (bk *Book) OverFor(s *workorder.State) bool {
	a := bk.Mine(s)
	return a != nil && a.Status != "" && a.Status != workorder.StatusLost
}

// Sending records a state that may be on the remote from now on.
func (bk *Book) Sending(commit string) {
	bk.Sent = append(bk.Sent[max(0, len(bk.Sent)-maxSent+1):], commit)
	bk.Fence.sending(commit)
}
