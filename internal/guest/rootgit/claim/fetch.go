package claim

import (
	"context"
	"fmt"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/remote"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// won runs once this box holds the lease.
func (ls *Claimer) won(ctx context.Context, seen remoteTask, c *Result) {
	ls.sayDamaged(seen)
	c.State = remote.CopyState(ls.Ledger.State)
	if c.Continues && !ls.Repos.Order.Mode.Continues() {
		ls.Repos.Order.Mode = workorder.ModeContinue // from here on the box continues a task
	}
	ls.compare(ctx, seen, c)
	ls.Ledger.Reserve()
	ls.Heartbeat.Start(ctx)
	ls.Repos.Emit(workorder.Event{
		Type: workorder.EventLease, Status: "acquired", Text: fmt.Sprintf("attempt %d of task %s", c.Attempt, ls.Repos.Order.TaskID),
	})
}

// compare warns if the branch is not where the last attempt left it: commits may be missing.
func (ls *Claimer) compare(ctx context.Context, v remoteTask, c *Result) {
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
	if in, err := ls.Repos.Mirror().IsAncestor(ctx, last, c.Head); err == nil && in {
		return // an error means that the remote no longer has the commit
	}
	ls.Repos.Warn(
		"the branch %s was left at %s and no longer has that commit: someone removed or reset it; this attempt starts at %s", v.branch, last,
		c.Head,
	)
}

// Fetch fetches the remote's branches and tags into the mirror and returns the base branch (by default the remote's)
// and its commit. If the remote lacks the base branch, the error is of kind git.KindNotFound.
func (ls *Claimer) Fetch(ctx context.Context) (base, sha string, err error) {
	if err := ls.Repos.Open(ctx); err != nil {
		return "", "", err
	}
	ls.unbundle(ctx)
	base, sha, err = ls.Repos.BaseBranch(ctx)
	if git.KindOf(err) == git.KindNotFound && ls.Repos.Order.MayContinue() {
		// The branch may have been renamed or deleted since; the task's first commit is known.
		if v, lerr := ls.look(ctx); lerr == nil && v.state != nil && git.ValidSHA(v.state.BaseSHA) &&
			ls.Repos.Mirror().Run(ctx, "cat-file", "-e", v.state.BaseSHA+"^{commit}") == nil {
			return v.state.BaseBranch, v.state.BaseSHA, nil
		}
	}
	return base, sha, err
}
