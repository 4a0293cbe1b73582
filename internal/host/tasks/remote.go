package tasks

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Git reads the refs of tasks in a repository.
type Git interface {
	// TaskRefs lists the refs of a task.
	TaskRefs(ctx context.Context, id string) ([]string, error)
	State(ctx context.Context, id string) (*workorder.State, error)
}

// Ask reads the remote before a box is started in vain. It does not lock anything: the
// box checks again, and its check decides.
func Ask(ctx context.Context, git Git, id string) (*Remote, error) {
	refs, err := git.TaskRefs(ctx, id)
	if err != nil {
		return nil, err
	}
	// If someone deleted the state by hand, the work beside it still counts.
	on := &Remote{Known: len(refs) > 0}
	for _, ref := range refs {
		if branch, ok := strings.CutPrefix(ref, workorder.BranchRef("")); ok {
			on.Branches = append(on.Branches, branch)
		}
	}
	if !slices.Contains(refs, workorder.StateRef(id)) {
		return on, nil
	}
	if on.State, err = git.State(ctx, id); err != nil {
		on.Warning = err.Error()
	}
	return on, nil
}

// warnings are about what the box will find. rec is nil for a task that is not known here.
func (r *Remote) warnings(rec *store.Record, now time.Time) (list []string) {
	if r.Warning != "" {
		list = append(list, r.Warning)
	}
	list = append(list, r.Notes...)
	if r.State == nil || r.State.Lease == nil || rec != nil && rec.Knows(r.State.Lease.AttemptID) {
		return list
	}
	return append(list, fmt.Sprintf("the task is leased by another sandbox (host %s, last sign of life %s): this one waits until the lease ends, and stops if it is renewed",
		text.Clean(r.State.Lease.Holder), text.Clock(r.State.Lease.RenewedAt, now)))
}

// uncounted are the costs of attempts whose cost the remote does not know.
func (r *Remote) uncounted(usd map[string]float64) map[string]float64 {
	if r.State != nil {
		maps.DeleteFunc(usd, func(id string, _ float64) bool {
			a := r.State.Find(id)
			return a != nil && a.Usage.CostUSD != nil
		})
	}
	return usd
}

// result is the remote's result of the last attempt, which ran on another machine.
func (r *Remote) result() *workorder.Result {
	s, last := r.State, r.Last()
	res := &workorder.Result{
		TaskID: s.TaskID, Project: s.Project, Mode: last.Mode, Attempt: last.Number, AttemptID: last.ID,
		Resumable: workorder.Resumable(last.Status, last.EndedBy), ResumeAt: last.ResumeAt, StartedAt: last.StartedAt,
		BaseBranch: s.BaseBranch, Branch: s.TargetBranch, BaseSHA: s.BaseSHA, HeadSHA: last.HeadSHA, Pushed: last.HeadSHA != "",
		Agent: last.Agent, Usage: last.Usage, Warnings: []string{"the task ended on another machine; its output lies there"},
	}
	res.End(last.Ending())
	if !last.EndedAt.IsZero() {
		res.DurationMS = max(0, last.EndedAt.Sub(last.StartedAt).Milliseconds())
	}
	return res
}
