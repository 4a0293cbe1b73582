package publish

import (
	"context"
	"fmt"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// won is what follows when the lease is ours.
func (p *Publisher) won(ctx context.Context, seen view, c *Claimed) {
	p.sayDamaged(seen)
	c.State = copyState(p.led.State)
	if c.Continues && !p.Order.Mode.GoesOn() {
		p.Order.Mode = workorder.ModeContinue // from here on it is what the box does
	}
	p.compare(ctx, seen, c)
	p.reserve()
	p.live(ctx)
	p.Emit(workorder.Event{Type: workorder.EventLease, Status: "acquired", Text: fmt.Sprintf("attempt %d of task %s", c.Attempt, p.Order.TaskID)})
}

// compare says when the branch is not where the last attempt left it: somebody
// removed it or set it back, and what is missing may be what the user looks for.
func (p *Publisher) compare(ctx context.Context, v view, c *Claimed) {
	if v.state == nil || c.Bundled {
		return
	}
	last := ""
	for i := range v.state.Attempts {
		if sha := v.state.Attempts[i].HeadSHA; git.ValidSHA(sha) {
			last = sha
		}
	}
	if last == "" || last == c.BaseSHA {
		return
	}
	if in, err := p.Mirror().IsAncestor(ctx, last, c.Head); err == nil && in {
		return // an error: the remote does not have the commit any more
	}
	p.Emit(workorder.Event{Type: workorder.EventWarning, Text: fmt.Sprintf("the branch %s was left at %s and does not have that commit any more: somebody removed it or set it back; this attempt begins at %s", v.branch, last, c.Head)})
}
