package taskrunner

import (
	"context"
	"fmt"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/boot"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/land"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/remote"
	"github.com/sandbox-agent/sandbox-agent/internal/redact"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/runner"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Rebaser combines rootgit, the comparison and the agent's prompt, and implements boot.Rebaser.
type Rebaser struct {
	Repo  *rootgit.Repository
	Task  *Task
	Forge *Forge
	Mask  *redact.Set

	plan *land.RebasePlan
}

func (r *Rebaser) order() *workorder.Order { return r.Task.cfg.Order }

// Begin rebases the commits in the work tree, as far as git can by itself.
func (r *Rebaser) Begin(ctx context.Context) (boot.Rebasing, error) {
	plan, err := r.Repo.Rebaser.Plan(ctx, r.Repo.Claimed)
	if err != nil {
		return boot.Rebasing{}, err
	}
	r.plan = plan
	x := boot.Rebasing{SkipReason: plan.Nothing()}
	id, attempt := r.order().TaskID, r.Repo.Claimed.Attempt
	x.Rebased = workorder.Rebased{
		Onto: plan.Onto, OldBase: plan.Upstream, NewBase: plan.NewBase, OldHead: plan.OldHead,
		Backup: workorder.KeptRef(id, fmt.Sprintf("before-rebase-%d", attempt)), Conflicts: []string{}, Moved: []workorder.RangePair{},
	}
	x.SideRef = workorder.KeptRef(id, fmt.Sprintf("rebased-%d", attempt))
	if x.SkipReason != "" {
		return x, nil
	}
	if err := r.Repo.Lander.HoldBranch(x.SideRef); err != nil {
		return x, err
	}
	if err := r.Repo.Rebaser.Run(ctx, plan); err != nil {
		return x, err
	}
	if c := plan.Conflict; c != nil {
		x.Conflict, x.Rebased.Conflicts = true, r.masked(c.Files)
		if len(c.Settings) > 0 {
			x.AgentBlocked = fmt.Sprintf(
				"the task's commits change files that configure agents (%s), so no agent may run between them: trust_branch_config: true allows it",
				text.Name(c.Settings[0], maxSettingName),
			)
		}
		return x, nil
	}
	// The agent has nothing to do: the checks are judged.
	r.Task.agent = runner.AgentOutcome{Ending: workorder.Succeeded()}
	return x, nil
}

// maxSettingName bounds a path in a message.
const maxSettingName = 200

// PromptConflicts turns the agent's run into one that resolves the conflict.
func (r *Rebaser) PromptConflicts() {
	c := r.plan.Conflict
	r.Task.cfg.Prompt = runner.Resolving(r.order().Task, runner.Rebasing{
		Branch: r.order().TargetBranch, Onto: r.plan.Onto, Upstream: r.plan.Upstream, NewBase: r.plan.NewBase,
		Commit: c.Commit, Subject: c.Subject, Files: c.Files, Commits: r.plan.Commits, Setup: r.order().Setup,
	})
	// git must not wait for an editor.
	r.Task.Setenv("GIT_EDITOR", "true")
	r.Task.Setenv("GIT_SEQUENCE_EDITOR", "true")
}

// Unfinished returns why the conflicts do not count as resolved; it is empty if they do.
func (r *Rebaser) Unfinished(ctx context.Context) (string, error) {
	_, why, err := r.Repo.Rebaser.Unfinished(ctx, r.plan)
	return r.Mask.String(why), err
}

// Compare compares the commits before and after, and fills out. The result lists forbidden differences.
func (r *Rebaser) Compare(ctx context.Context, out *workorder.Rebased) ([]string, error) {
	head, why, err := r.Repo.Rebaser.Unfinished(ctx, r.plan)
	if err != nil {
		return nil, err
	}
	if why != "" {
		return []string{r.Mask.String(why)}, nil
	}
	out.NewHead = head
	side := land.Range{Upstream: r.plan.Upstream, OldHead: r.plan.OldHead, NewBase: r.plan.NewBase, NewHead: head}
	if r.plan.Conflict != nil {
		side.Resolver = "the agent"
	}
	c, err := land.CompareCommits(ctx, r.Repo.Repos.Outbox(), side)
	if err != nil {
		return nil, err
	}
	out.Moved, out.Text = c.Moved, r.Mask.String(c.Text)
	for i := range out.Moved {
		m := &out.Moved[i]
		m.Subject, m.Reason = r.Mask.String(m.Subject), r.Mask.String(m.Reason)
	}
	if len(c.Conflicts) > 0 {
		out.Conflicts = r.masked(c.Conflicts)
	}
	return r.masked(c.Problems), nil
}

// masked returns a list without secrets, as it goes to the forge.
func (r *Rebaser) masked(list []string) []string {
	out := make([]string, 0, len(list))
	for _, s := range list {
		out = append(out, r.Mask.String(s))
	}
	return out
}

// Move makes the next push update the branch to the new head.
func (r *Rebaser) Move(ctx context.Context, out *workorder.Rebased) error {
	r.Repo.StopSaving(ctx)
	return r.Repo.Lander.MoveBranch(remote.RebaseResult{
		Branch: out.Onto, Base: out.NewBase, Head: out.NewHead, OldHead: out.OldHead,
		Backup: out.Backup,
	})
}

// SideRef returns the ref that keeps the new commits if the branch did not accept them; empty if there is none.
func (r *Rebaser) SideRef() string { return r.Repo.Lander.SideRef() }

// Comment posts the comparison on the pull request.
func (r *Rebaser) Comment(ctx context.Context, res *workorder.Result) (string, error) {
	return r.Forge.Compared(ctx, res)
}
