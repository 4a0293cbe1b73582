package main

import (
	"context"
	"fmt"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/boot"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/pulls"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/repository"
	"github.com/sandbox-agent/sandbox-agent/internal/redact"
	"github.com/sandbox-agent/sandbox-agent/runner"
	"github.com/sandbox-agent/sandbox-agent/runner/publish"
	"github.com/sandbox-agent/sandbox-agent/runner/rangediff"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// rebaser brings publish, the comparison and the agent's prompt together as boot.Rebaser.
type rebaser struct {
	repo  *repository.Repository
	task  *task
	forge *pulls.Pulls // with its credential
	mask  *redact.Set

	plan *publish.RebasePlan
}

func (r *rebaser) order() *workorder.Order { return r.task.cfg.Order }

func (r *rebaser) Begin(ctx context.Context) (boot.Rebasing, error) {
	plan, err := r.repo.Pub.PlanRebase(ctx, r.repo.Claimed)
	if err != nil {
		return boot.Rebasing{}, err
	}
	r.plan = plan
	x := boot.Rebasing{Nothing: plan.Nothing()}
	id, attempt := r.order().TaskID, r.repo.Claimed.Attempt
	x.Rebased = workorder.Rebased{
		Onto: plan.Onto, OldBase: plan.Upstream, NewBase: plan.NewBase, OldHead: plan.OldHead,
		Backup: workorder.KeptRef(id, fmt.Sprintf("before-rebase-%d", attempt)), Conflicts: []string{}, Moved: []workorder.RangePair{},
	}
	x.Beside = workorder.KeptRef(id, fmt.Sprintf("rebased-%d", attempt))
	if x.Nothing != "" {
		return x, nil
	}
	if err := r.repo.Pub.Hold(x.Beside); err != nil {
		return x, err
	}
	if err := r.repo.Pub.Rebase(ctx, plan); err != nil {
		return x, err
	}
	if c := plan.Conflict; c != nil {
		x.Conflict, x.Rebased.Conflicts = true, r.masked(c.Files)
		if len(c.Settings) > 0 {
			x.NoAgent = fmt.Sprintf("the task's commits change files that agents obey (%s), so that none is started between them: trust_branch_config: true allows it", rangediff.Line(c.Settings[0], maxSettingName))
		}
		return x, nil
	}
	// Nobody has to do anything: what is judged is the checks.
	r.task.agent = runner.AgentOutcome{Ending: workorder.Succeeded()}
	return x, nil
}

// maxSettingName bounds a path in a message.
const maxSettingName = 200

func (r *rebaser) Ask() {
	c := r.plan.Conflict
	r.task.cfg.Prompt = runner.Resolving(r.order().Task, runner.Rebasing{
		Branch: r.order().TargetBranch, Onto: r.plan.Onto, Upstream: r.plan.Upstream, NewBase: r.plan.NewBase,
		Commit: c.Commit, Subject: c.Subject, Files: c.Files, Commits: r.plan.Commits, Setup: r.order().Setup,
	})
	// A git that opens an editor would wait for it.
	r.task.Setenv("GIT_EDITOR", "true")
	r.task.Setenv("GIT_SEQUENCE_EDITOR", "true")
}

func (r *rebaser) Unfinished(ctx context.Context) (string, error) {
	_, why, err := r.repo.Pub.Unfinished(ctx, r.plan)
	return r.mask.String(why), err
}

func (r *rebaser) Compare(ctx context.Context, out *workorder.Rebased) ([]string, error) {
	head, why, err := r.repo.Pub.Unfinished(ctx, r.plan)
	if err != nil {
		return nil, err
	}
	if why != "" {
		return []string{r.mask.String(why)}, nil
	}
	out.NewHead = head
	side := rangediff.Range{Upstream: r.plan.Upstream, OldHead: r.plan.OldHead, NewBase: r.plan.NewBase, NewHead: head}
	if r.plan.Conflict != nil {
		side.Resolver = "the agent"
	}
	c, err := rangediff.Compare(ctx, r.repo.Pub.Objects(), side)
	if err != nil {
		return nil, err
	}
	out.Moved, out.Text = c.Moved, r.mask.String(c.Text)
	for i := range out.Moved {
		m := &out.Moved[i]
		m.Subject, m.Why = r.mask.String(m.Subject), r.mask.String(m.Why)
	}
	if len(c.Conflicts) > 0 {
		out.Conflicts = r.masked(c.Conflicts)
	}
	return r.masked(c.Problems), nil
}

// masked is a list without secrets, as it goes to the forge.
func (r *rebaser) masked(list []string) []string {
	out := make([]string, 0, len(list))
	for _, s := range list {
		out = append(out, r.mask.String(s))
	}
	return out
}

func (r *rebaser) Move(ctx context.Context, out *workorder.Rebased) error {
	r.repo.Settle(ctx)
	return r.repo.Pub.Move(publish.Moved{Branch: out.Onto, Base: out.NewBase, Head: out.NewHead, OldHead: out.OldHead, Backup: out.Backup})
}

func (r *rebaser) Kept() string { return r.repo.Beside() }

func (r *rebaser) Comment(ctx context.Context, res *workorder.Result) (string, error) {
	return r.forge.Compared(ctx, res)
}
