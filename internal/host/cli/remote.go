package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch"
	"github.com/sandbox-agent/sandbox-agent/internal/host/render"
	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// remoteTask is what the remote has of a task.
type remoteTask struct {
	known    bool
	branches []string
	state    *workorder.State // nil: none, or it could not be read
	warning  string
	notes    []string // about what is asked for, beside the remote
}

// ask looks at the remote before a box is started for nothing. What counts in the
// end is what the box finds.
func (p *pickUp) ask(ctx context.Context, r *resolved) (*remoteTask, error) {
	on := &remoteTask{}
	id, repo, cred := p.o.taskID, r.project.Repo, r.job.Git
	var refs []string
	var err error
	switch {
	case repo == "":
		return on, nil
	case r.local != nil:
		refs, err = r.local.TaskRefs(ctx, id)
	default:
		refs, err = p.find.TaskRefs(ctx, repo, id, cred)
	}
	if err != nil {
		return nil, err
	}
	// A state that was deleted by hand must not make the work beside it be forgotten.
	on.known = len(refs) > 0
	for _, ref := range refs {
		if branch, ok := strings.CutPrefix(ref, workorder.BranchRef("")); ok {
			on.branches = append(on.branches, branch)
		}
	}
	if !slices.Contains(refs, workorder.StateRef(id)) {
		return on, nil
	}
	if r.local != nil {
		on.state, err = r.local.State(ctx, id)
	} else {
		on.state, err = p.find.State(ctx, repo, id, cred)
	}
	if err != nil {
		on.warning = err.Error()
	}
	return on, nil
}

func (t *remoteTask) last() *workorder.Attempt {
	if t.state == nil {
		return nil
	}
	return t.state.Last()
}

func (t *remoteTask) base() string {
	if t.state == nil {
		return ""
	}
	return t.state.BaseBranch
}

// branch is the task's branch: the one named, else the one the remote knows.
func (t *remoteTask) branch(id, named string) (string, error) {
	switch {
	case t.state != nil && named != "" && named != t.state.TargetBranch:
		return "", usage("the branch of %s is %s, not %s", id, t.state.TargetBranch, named)
	case t.state != nil:
		return t.state.TargetBranch, nil
	case named != "":
		return named, nil
	case len(t.branches) == 1:
		return t.branches[0], nil
	case len(t.branches) == 0 && t.warning != "":
		return "", fault.New(workorder.ExitGit, fmt.Errorf("the remote's state of %s cannot be read, and it has no branch of that task: %s", id, t.warning), "name its branch: --target-branch")
	case len(t.branches) == 0:
		return "", fault.New(workorder.ExitGit, fmt.Errorf("the remote has neither a state nor a branch of %s, only what was saved beside them", id), "name its branch and give its text: --target-branch, --task")
	}
	return "", fault.New(workorder.ExitUsage, fmt.Errorf("the remote has several branches of %s: %s", id, strings.Join(t.branches, ", ")), "name the one to go on with: --target-branch")
}

// tell warns of what the box will find. rec is nil for a task that is not known here.
func (t *remoteTask) tell(job *launch.Job, rec *store.Record) {
	if t.warning != "" {
		job.Warnings = append(job.Warnings, t.warning)
	}
	job.Warnings = append(job.Warnings, t.notes...)
	if t.state == nil || t.state.Lease == nil || rec != nil && rec.Knows(t.state.Lease.AttemptID) {
		return
	}
	job.Warnings = append(job.Warnings, fmt.Sprintf("another box (host %s) had the lease of the task at %s: this one waits until it is certain that it is gone, and gives way if it is not",
		render.Clean(t.state.Lease.Holder), render.Clock(t.state.Lease.RenewedAt, time.Now())))
}

// unknown leaves of what attempts have cost that of which the remote knows no cost.
func (t *remoteTask) unknown(usd map[string]float64) map[string]float64 {
	if t.state != nil {
		maps.DeleteFunc(usd, func(id string, _ float64) bool {
			a := t.state.Find(id)
			return a != nil && a.Usage.CostUSD != nil
		})
	}
	return usd
}

// result is what is known of an attempt on another machine.
func (t *remoteTask) result(last *workorder.Attempt) *workorder.Result {
	s := t.state
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
