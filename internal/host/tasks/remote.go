package tasks

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/render"
	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Git reads what a repository has of tasks.
type Git interface {
	// TaskRefs are the refs of a task.
	TaskRefs(ctx context.Context, id string) ([]string, error)
	State(ctx context.Context, id string) (*workorder.State, error)
}

// Ask looks at the remote before a box is started for nothing. Only the look of the
// box itself decides.
func Ask(ctx context.Context, git Git, id string) (*Remote, error) {
	refs, err := git.TaskRefs(ctx, id)
	if err != nil {
		return nil, err
	}
	// A state that was deleted by hand must not make the work beside it be forgotten.
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

// warnings tell of what the box will find. rec is nil for a task that is not known here.
func (r *Remote) warnings(rec *store.Record, now time.Time) (list []string) {
	if r.Warning != "" {
		list = append(list, r.Warning)
	}
	list = append(list, r.Notes...)
	if r.State == nil || r.State.Lease == nil || rec != nil && rec.Knows(r.State.Lease.AttemptID) {
		return list
	}
	return append(list, fmt.Sprintf("another sandbox (host %s) had the lease of the task at %s: this one waits until it is certain that it is gone, and gives way if it is not",
		render.Clean(r.State.Lease.Holder), render.Clock(r.State.Lease.RenewedAt, now)))
}

// uncounted leaves of what attempts have cost that of which the remote knows no cost.
func (r *Remote) uncounted(usd map[string]float64) map[string]float64 {
	if r.State != nil {
		maps.DeleteFunc(usd, func(id string, _ float64) bool {
			a := r.State.Find(id)
			return a != nil && a.Usage.CostUSD != nil
		})
	}
	return usd
}

// result is what the remote knows of the last attempt, which ran on another machine.
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
