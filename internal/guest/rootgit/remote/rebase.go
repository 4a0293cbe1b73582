package remote

import (
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// backs reports whether a change is the backup, which is pushed together with the branch.
func backs(m *RebaseResult, c Change) bool {
	return m != nil && c.Ref == m.Backup && c.SHA == m.OldHead
}

// rebase writes the new base into the state, with the push that moves the branch or after it.
func (p *Pusher) rebase(next *workorder.State, cs []Change) {
	m := p.Ledger.Moved
	if m == nil {
		return
	}
	branch := workorder.BranchRef(p.Ledger.Branch())
	there := p.Ledger.Refs[branch] == m.Head
	for _, c := range cs {
		// A remote that takes refs one by one may still refuse the branch.
		there = there || c.Ref == branch && c.SHA == m.Head && !p.Ledger.Apart
	}
	if there {
		next.BaseBranch, next.BaseSHA = m.Branch, m.Base
	}
}
