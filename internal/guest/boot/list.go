package boot

import (
	"context"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/land"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/pipeline"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// The budgets bound hanging steps: each is several times what the slowest measured machine needs.
const (
	boxBudget            = 15 * time.Second
	dockerBudget         = 60 * time.Second
	cloneBudget          = 10 * time.Minute // a large repository over a slow line
	rebaseBudget         = 10 * time.Minute // git takes seconds for hundreds of commits
	servicesBudget       = 15 * time.Minute // pulling a gigabyte; readiness has its own bound
	packagesBudget       = 10 * time.Minute
	toolsBudget          = 20 * time.Minute // some hundred megabytes; building a tool from source takes minutes
	supabaseBudget       = 25 * time.Minute // three gigabytes of images the first time
	envBudget            = 15 * time.Second
	baselineBudget       = 30 * time.Second // it copies some megabytes at most
	compareBudget        = 2 * time.Minute  // reading and comparing the commits before and after
	sensitiveFilesBudget = 30 * time.Second // it takes seconds for tens of thousands of files
	evidenceBudget       = time.Minute      // some ten megabytes to the remote
	forgeBudget          = 2 * time.Minute  // including rate limits: the work is safe, and this can be repeated later
)

// list returns all steps of the run. Functions that belong to only one step are named in its entry.
func (r *Runner) list() *pipeline.List {
	r.begin()
	if r.Standalone != nil {
		return r.standaloneList()
	}
	p, s, w, m, l, t := r.prep, r.setup, r.work, r.move, r.land, r.report
	rebase := r.Rebaser != nil
	return &pipeline.List{Rec: r.Rec, Steps: compact(
		p.boxStep(), p.dockerStep(), p.cloneStep(), m.rebaseStep(), p.servicesStep(), p.packagesStep(), p.toolsStep(), p.baselineStep(),
		p.supabaseStep(), p.envStep(),
		only(!rebase, s.setupStep()),
		w.beginStep(), w.agentStep(), w.keepStep(),
		// In a rebase the tree may have conflicts up to here.
		only(rebase, s.setupStep()),
		m.compareStep(), w.validateStep(), w.repairStep(),
		// A rebase must not push a head that is worse than the old one. Other work is pushed first.
		only(rebase, t.proofStep()),
		m.moveStep(),
		l.pushStep(),
		only(!rebase, t.proofStep()),
		t.sensitiveFilesStep(), t.evidenceStep(), t.answersStep(), t.pullRequestStep(), m.rangeDiffStep(), l.resultStep(), l.leaseStep(),
	)}
}

// Phases of an attempt, each with its part of the state. They reach the others through the Runner.
type (
	// preparer prepares the box for code of the repository.
	preparer struct {
		*Runner
		cloned *rootgit.CloneResult // nil if there is no clone
	}
	// setupRunner runs the project's setup commands, or takes over what they left in an earlier box.
	setupRunner struct{ *Runner }
	// worker runs the agent and checks its work.
	worker struct {
		*Runner
		ran      bool     // the task's code started: from here on there is work to land
		agentEnd AgentEnd // zero if the agent did not run
		// neverBegan: the agent could not start, so there is nothing to check.
		neverBegan bool
		planned    workorder.Ending // of a run that plans; else zero
		committed  bool             // the agent's leftovers are committed
		left       error            // names the paths that cannot be committed
		validated  bool             // the validate commands have run
		checks     []workorder.Validation
		unwatch    func() // stops watching the lease; nil if it is not watched
	}
	// mover rebases the task's commits.
	mover struct {
		*Runner
		rebasing *Rebasing        // nil if the rebase has not begun
		before   *workorder.Proof // of the old head, if checks failed on the new one
		moved    bool             // the branch may be moved
		began    string           // the base before the rebase, and its branch
		beganOn  string
	}
	// lander ends the work, pushes it, and decides the verdict.
	lander struct {
		*Runner
		end    ending // ending of the work
		result land.Result
	}
	// reporter proves the landed commits, and reports to reviewers.
	reporter struct{ *Runner }
)

type phases struct {
	prep   *preparer
	setup  *setupRunner
	work   *worker
	move   *mover
	land   *lander
	report *reporter
}

func (r *Runner) begin() {
	if r.prep == nil {
		r.phases = phases{&preparer{Runner: r}, &setupRunner{r}, &worker{Runner: r}, &mover{Runner: r}, &lander{Runner: r}, &reporter{r}}
	}
}

// Plan returns the list as text.
func (r *Runner) Plan() string { return r.list().Plan() }

// compact leaves out the entries that this kind of run does not have.
func compact(entries ...*pipeline.Step) (steps []pipeline.Step) {
	for _, s := range entries {
		if s != nil {
			steps = append(steps, *s)
		}
	}
	return steps
}

func only(when bool, s *pipeline.Step) *pipeline.Step {
	if !when {
		return nil
	}
	return s
}

// afterTree adds the steps after which the work tree exists to others.
func afterTree(more ...workorder.StepName) []workorder.StepName {
	return append([]workorder.StepName{workorder.StepClone, workorder.StepRebase}, more...)
}

// skipWhen returns a reason to skip that the order already decides.
func skipWhen(nothing bool, why string) func() string {
	return func() string {
		if nothing {
			return why
		}
		return ""
	}
}

// booted is skipWhen for a step of Standby.
func (r *Runner) booted(nothing bool, why string) func() string {
	return func() string {
		if nothing || !r.Booted {
			return skipWhen(nothing, why)()
		}
		return "it ran in the standby, before the order"
	}
}

// provable reports whether the project has checks or pages to prove.
func (r *Runner) provable() bool { return len(r.Order.Validate) > 0 || r.Order.Dev != nil }

func (r *Runner) needsDocker() bool { return len(r.Order.Services) > 0 || r.Order.Supabase }

func (b *preparer) boxStep() *pipeline.Step {
	return &pipeline.Step{
		Name: workorder.StepPrepare, Title: "create the workspace, apply the network policy, start the gateway and the guarded Docker socket",
		Budget: boxBudget, Run: b.prepareBox, Undo: func(context.Context) { b.Network.Close() },
	}
}

func (b *preparer) dockerStep() *pipeline.Step {
	return &pipeline.Step{
		Name: workorder.StepDocker, Title: "start the inner Docker engine", After: []workorder.StepName{workorder.StepPrepare},
		Budget: dockerBudget,
		Skip:   b.booted(!b.needsDocker(), "no declared part needs it; it starts when the agent first uses Docker"),
		Run:    b.Engine.Start,
		Undo:   b.Engine.Stop,
	}
}

func (b *preparer) cloneStep() *pipeline.Step {
	return &pipeline.Step{
		Name: workorder.StepClone, Title: "fetch the repository and check out the task's branch",
		After:  []workorder.StepName{workorder.StepPrepare},
		Budget: cloneBudget, Skip: skipWhen(b.Order.Repo == "", "the task has no repository"), Run: b.clone,
		Undo: func(context.Context) { b.Repo.Close(); b.setup.leave() },
	}
}

func (b *preparer) servicesStep() *pipeline.Step {
	return &pipeline.Step{
		Name: workorder.StepServices, Title: "create the services and wait until they are healthy",
		After: []workorder.StepName{workorder.StepDocker}, Budget: servicesBudget,
		Skip: b.booted(len(b.Order.Services) == 0, "the project declares none"), Run: b.services,
		Undo: func(context.Context) { b.Services.Unwatch() },
	}
}

func (b *preparer) packagesStep() *pipeline.Step {
	return &pipeline.Step{
		Name: workorder.StepPackages, Title: "install packages of the distribution", After: []workorder.StepName{workorder.StepPrepare},
		Budget: packagesBudget, Skip: skipWhen(len(b.Order.Packages) == 0, "the project declares none"),
		Run: b.found("packages", func(ctx context.Context) error { return b.Packages.Install(ctx, b.Order.Packages) }),
	}
}

// toolsStep comes after the packages: both may need the distribution's package manager.
func (b *preparer) toolsStep() *pipeline.Step {
	return &pipeline.Step{
		Name: workorder.StepTools, Title: "install tools in the requested versions", After: []workorder.StepName{workorder.StepPackages},
		Budget: toolsBudget, Skip: skipWhen(len(b.Order.Tools) == 0, "the project asks for none"), Run: b.found("tools", b.tools),
	}
}

func (b *preparer) baselineStep() *pipeline.Step {
	return &pipeline.Step{
		Name: workorder.StepBaseline, Title: "record the image's files in directories that the agent can write, for the proof",
		After: []workorder.StepName{workorder.StepPackages, workorder.StepTools, workorder.StepClone}, Budget: baselineBudget,
		Skip: skipWhen(b.Prover == nil || !b.provable(), "there is nothing to prove"),
		Run:  func(ctx context.Context) error { return b.Prover.RecordBaseline(ctx) },
	}
}

func (b *preparer) supabaseStep() *pipeline.Step {
	return &pipeline.Step{
		Name: workorder.StepSupabase, Title: "start the Supabase stack", After: afterTree(workorder.StepServices, workorder.StepBaseline),
		Budget: supabaseBudget, Skip: skipWhen(!b.Order.Supabase, "the project does not ask for it"), Run: b.supabase,
	}
}

func (b *preparer) envStep() *pipeline.Step {
	return &pipeline.Step{
		Name: workorder.StepEnv, Title: "write .env", After: afterTree(workorder.StepSupabase), Budget: envBudget,
		Skip: skipWhen(b.Order.Repo == "" || len(b.Order.Env) == 0 && !b.Order.Supabase, "there is nothing to write"),
		Run:  b.writeEnv,
	}
}

// prepared are the steps after which code of the repository may run.
var prepared = afterTree(workorder.StepEnv, workorder.StepServices, workorder.StepPackages, workorder.StepTools, workorder.StepBaseline)

func (b *setupRunner) setupStep() *pipeline.Step {
	after := prepared
	if b.Rebaser != nil {
		after = []workorder.StepName{workorder.StepCommit}
	}
	return &pipeline.Step{
		Name: workorder.StepSetup, Title: "run the project's setup commands as user sandbox", After: after,
		Skip: skipWhen(len(b.Order.Setup) == 0, "the project has no setup commands"),
		Run:  b.run,
	}
}

func (b *worker) beginStep() *pipeline.Step {
	after := prepared
	if b.Rebaser == nil {
		after = []workorder.StepName{workorder.StepSetup}
	}
	return &pipeline.Step{
		Name: workorder.StepRestore, Title: "restore the state of earlier attempts, and start saving the work", After: after, Hidden: true,
		Run: b.begin,
	}
}

func (b *worker) agentStep() *pipeline.Step {
	return &pipeline.Step{
		Name: workorder.StepAgent, Title: "run the agent as user sandbox", After: []workorder.StepName{workorder.StepRestore}, AllowFailure: true,
		SkipLate: func() string {
			if b.move.rebasing != nil && !b.move.rebasing.Conflict {
				return "the rebase has no conflicts"
			}
			return ""
		},
		Run:  b.agent,
		Code: func() *int { return b.agentEnd.Agent.ExitCode },
	}
}

func (b *worker) keepStep() *pipeline.Step {
	s := &pipeline.Step{
		Name: workorder.StepCommit, Title: "commit the agent's remaining changes, and push them",
		After:  []workorder.StepName{workorder.StepAgent},
		Hidden: true, Skip: skipWhen(b.Order.Mode == workorder.ModePlan, whyNoPush),
		Run: func(ctx context.Context) error { b.keepAgentsWork(ctx); return nil },
	}
	if b.Rebaser != nil {
		s.Run = b.move.keepResolved
	}
	return s
}

func (b *worker) validateStep() *pipeline.Step {
	return &pipeline.Step{
		Name: workorder.StepValidate, Title: "run the project's validate commands",
		After: []workorder.StepName{workorder.StepCommit, workorder.StepCompareCommits}, AllowFailure: true,
		Skip: func() string {
			switch {
			case b.Order.Mode == workorder.ModePlan:
				return whyNoChecks
			case len(b.Order.Validate) == 0:
				return "the project has no validate commands"
			}
			return ""
		},
		SkipLate: func() string {
			switch {
			case b.neverBegan:
				return whyNothingToCheck
			case b.agentEnd.Status == workorder.StatusParked:
				return "the agent has not finished"
			}
			return ""
		},
		Run: func(ctx context.Context) error { return failures(b.check(ctx)) },
	}
}

func (b *worker) repairStep() *pipeline.Step {
	if b.Order.Repair.MaxAttempts == 0 || b.Rebaser != nil {
		return nil
	}
	return &pipeline.Step{
		Name: workorder.StepRepair, Title: "send failed checks back to the agent", After: []workorder.StepName{workorder.StepValidate},
		AllowFailure: true, Skip: skipWhen(b.Order.Mode == workorder.ModePlan, whyNoChecks), SkipLate: b.unrepairable, Run: b.repair,
	}
}

func (b *lander) pushStep() *pipeline.Step {
	return &pipeline.Step{
		Name: workorder.StepPush, Title: "push the work to the task's branch", Always: true,
		MaxDuration: workorder.LandLimit,
		Skip:        b.neverPushed,
		SkipLate:    b.nothingToPush,
		Run:         b.push,
	}
}

// proofStep is part of the work in a rebase; in other runs it comes after the push.
func (b *reporter) proofStep() *pipeline.Step {
	if b.Prover == nil {
		return nil
	}
	s := &pipeline.Step{
		Name: workorder.StepProof, Title: "run the checks on base and head, each in a clean checkout",
		After: []workorder.StepName{workorder.StepValidate},
		Skip:  skipWhen(!b.provable(), "the project has neither validate commands nor a development server"),
		SkipLate: func() string {
			if b.work.neverBegan {
				return whyNothingToCheck
			}
			return ""
		},
		AllowFailure: true, Run: b.move.proveMoved,
	}
	if b.Rebaser == nil {
		s.After, s.Always, s.MaxDuration, s.Context, s.Run = nil, true, pipeline.OfRun, func() context.Context { return b.contexts.run }, b.prove
	}
	return s
}

func (b *reporter) sensitiveFilesStep() *pipeline.Step {
	return &pipeline.Step{
		Name: workorder.StepSensitiveFiles, Title: "list sensitive files that the branch changes", Budget: sensitiveFilesBudget, Always: true,
		Hidden: true, Context: func() context.Context { return b.contexts.after }, SkipLate: b.nothingLanded, Run: b.sensitiveFiles,
	}
}

func (b *reporter) evidenceStep() *pipeline.Step {
	if b.Forge == nil {
		return nil
	}
	return &pipeline.Step{
		Name: workorder.StepEvidence, Title: "push pictures and logs to the remote", Budget: evidenceBudget, Always: true, Hidden: true,
		Context: func() context.Context { return b.contexts.after }, SkipLate: b.nothingLanded, Run: b.evidence,
	}
}

func (b *reporter) answersStep() *pipeline.Step {
	if m := b.Order.Mode; b.Answers == nil || m == workorder.ModeRebase || m == workorder.ModePlan {
		return nil
	}
	return &pipeline.Step{
		Name: workorder.StepReply, Title: "answer the reviewers' feedback", Always: true,
		MaxDuration: answersTime + answerTime,
		SkipLate:    b.nothingToAnswer,
		Run:         b.answer,
	}
}

func (b *reporter) pullRequestStep() *pipeline.Step {
	if b.Forge == nil {
		return nil
	}
	return &pipeline.Step{
		Name: workorder.StepPR, Title: "open or update the pull request", Budget: forgeBudget, Always: true,
		Context: func() context.Context { return b.contexts.after }, RetryHint: b.openLater(),
		SkipLate: func() string {
			if b.land.end.told != nil {
				return "nothing was run"
			}
			return ""
		},
		Run: b.pullRequest,
	}
}

func (b *mover) rangeDiffStep() *pipeline.Step {
	if b.Rebaser == nil {
		return nil
	}
	return &pipeline.Step{
		Name: workorder.StepRangeDiff, Title: "comment on the rebase in the pull request", Budget: forgeBudget, Always: true,
		Context:   func() context.Context { return b.contexts.after },
		RetryHint: "; the result has the comparison under rebased, and the report shows it",
		SkipLate: func() string {
			if !b.wasMoved() {
				return "the branch was not moved"
			}
			return ""
		},
		Run: b.rangeDiff,
	}
}

func (b *lander) resultStep() *pipeline.Step {
	return &pipeline.Step{
		Name: workorder.StepResult, Title: "determine the verdict, write the result, and push it to the remote", Always: true, Hidden: true,
		MaxDuration: resultTime,
		Run:         func(ctx context.Context) error { b.finish(); b.keepResult(ctx); return nil },
	}
}

func (b *lander) leaseStep() *pipeline.Step {
	return &pipeline.Step{
		Name: workorder.StepReleaseLease, Title: "return the task's lease", Always: true, Hidden: true,
		MaxDuration: releaseTime,
		Skip:        skipWhen(b.Order.Repo == "", "the task has no repository"),
		Run:         b.release,
	}
}
