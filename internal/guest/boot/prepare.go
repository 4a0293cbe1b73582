package boot

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/claim"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/tree"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/pipeline"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

func (b *preparer) prepareBox(ctx context.Context) error {
	if err := b.Space.Make(); err != nil {
		return err
	}
	// These start goroutines that outlive the step, whose context ends with it.
	life := context.WithoutCancel(ctx)
	if b.Booted {
		return b.Network.Up(life)
	}
	onDemand := !b.needsDocker()
	if onDemand {
		// The program that triggers the start of the engine is untrusted.
		if err := b.Network.Seal(ctx); err != nil {
			return err
		}
	}
	if err := b.Network.Up(life); err != nil {
		return err
	}
	if err := b.Engine.Listen(ctx); err != nil {
		return err
	}
	if onDemand {
		go b.startOnDemand(life)
	}
	return nil
}

// startOnDemand starts the engine for the first docker command. A failure closes the client's connection and is a warning.
func (b *preparer) startOnDemand(ctx context.Context) {
	if err := b.Engine.StartOnDemand(ctx); err != nil {
		b.Rec.Warn(fmt.Sprintf("the inner Docker engine did not start: %v", err))
	}
}

func (b *preparer) clone(ctx context.Context) error {
	c, err := b.Repo.Clone(ctx)
	if done, told := errors.AsType[*claim.DoneError](err); told {
		return &pipeline.SkipRest{Reason: done.Error(), Err: err}
	}
	if err != nil {
		return err
	}
	b.cloned = &c
	b.Rec.Update(func(r *workorder.Result) {
		// rescue needs this if this process dies.
		r.Mode = b.Order.Mode // known by now, also for an order that may continue a task
		r.BaseBranch, r.BaseSHA, r.HeadSHA, r.Branch, r.Repos = c.Base, c.BaseSHA, c.Head, b.Order.TargetBranch, c.Repos
		r.Attempt, r.Restored, r.PastAttempts = c.Attempt, c.Restored, earlier(c.State, b.Order.AttemptID)
		if c.State != nil && c.State.Task != "" {
			r.TaskText = c.State.TaskText()
		}
	})
	for i := range c.Repos {
		b.Task.Note(furtherNote(b.Order.TaskID, &c.Repos[i], &c.Further[i]))
	}
	return nil
}

// furtherNote tells the agent of a further repository, and of what earlier attempts left there.
func furtherNote(task string, r *workorder.RepoResult, c *rootgit.CloneResult) string {
	dir := path.Join(workorder.Workspace, r.Name)
	s := fmt.Sprintf("%s is a clone of another repository, %s, which belongs to the task. Change it if the task needs it: "+
		"commits in it are pushed to a branch of that repository.", dir, r.Repo)
	if n := len(r.Commits); n > 0 {
		s += fmt.Sprintf(" Commits of earlier attempts on it: %d.", n)
	}
	if n := len(c.Changed); n > 0 {
		s += fmt.Sprintf(" Restored files that are not committed: %d; `git -C %s status` lists them.", n, dir)
	}
	if n := len(c.Elsewhere); n > 0 || c.Restored != nil && c.Restored.Kept != "" {
		s += fmt.Sprintf(" Other work of earlier attempts is on refs beside the branch: `git -C %s ls-remote origin '%s*'` lists them.",
			dir, workorder.TaskRefs(task))
	}
	return s
}

// tools installs the tools; available ones are installed even if others are not.
func (b *preparer) tools(ctx context.Context) error {
	env, err := b.Tools.Install(ctx, b.Order.Tools)
	for k, v := range env {
		if _, own := b.Order.Env[k]; !own || k == "PATH" { // the project's variables take precedence, and its PATH is in this one
			b.Task.Setenv(k, v)
		}
	}
	return err
}

func (b *preparer) supabase(ctx context.Context) error {
	env, err := b.Services.Supabase(ctx)
	if err != nil {
		return err
	}
	for k, v := range env {
		if _, own := b.Order.Env[k]; !own { // the project's variables take precedence
			b.Order.Env[k] = v
			b.Task.Setenv(k, v)
		}
	}
	return nil
}

func (b *preparer) writeEnv(ctx context.Context) error {
	warning, err := b.Space.WriteEnvFile(ctx, b.Order.Env)
	if warning != "" {
		b.Rec.Warn(warning)
	}
	return err
}

func (b *setupRunner) run(ctx context.Context) error {
	if err := b.Engine.Mark(ctx); err != nil {
		return err
	}
	failed, err := b.runSetup(ctx, b.over())
	if err != nil {
		return err
	}
	if !failed {
		if err := b.keepSetup(ctx); err != nil {
			return err
		}
	}
	if b.prep.cloned != nil && b.Standalone == nil {
		hidden, err := b.Repo.RecordSetupFiles(ctx)
		if err != nil {
			b.Rec.Warn(fmt.Sprintf("files that setup left in the work tree may be taken for the agent's work: %v", err))
		}
		if len(hidden) > 0 {
			b.Task.Note(fmt.Sprintf("Setup changed %s. Git shows no change there and commits none, unless you change the file further. "+
				"To commit setup's change: git -c %s= add --renormalize FILE", tree.Named(hidden), tree.SetupFilter))
		}
	}
	return nil
}

// over reports whether setup starts on removable files of an earlier one.
func (b *setupRunner) over() bool {
	return b.SetupCache != nil && b.SetupCache.Restored() && b.work.left == nil
}

// fresh reports whether the work tree is the base's, without changes of a task.
func (b *setupRunner) fresh() bool {
	return b.prep.cloned != nil && b.prep.cloned.Restored == nil && b.prep.cloned.Head == b.prep.cloned.BaseSHA && b.Rebaser == nil
}

// empty restarts setup without the files of an earlier setup, for a command that cannot run twice in one work tree.
func (b *setupRunner) empty(ctx context.Context) error {
	if err := b.SetupCache.Clear(); err != nil {
		return err
	}
	if err := b.Repo.Recheckout(ctx); err != nil {
		return err
	}
	if b.prep.envStep().Skip() == "" {
		if err := b.prep.writeEnv(ctx); err != nil {
			return err
		}
	}
	if b.Order.Supabase {
		return nil
	}
	return b.found("services", b.Services.Reset)(ctx)
}

// runSetup runs the commands whose results do not exist yet, and reports whether an optional one failed. over: files of
// an earlier run exist, and a failure leads to another run without them.
func (b *setupRunner) runSetup(ctx context.Context, over bool) (failed bool, err error) {
	failed, err = b.commands(ctx, over)
	cannot, told := errors.AsType[*commandError](err)
	if !over || !told || ctx.Err() != nil {
		return failed, err
	}
	b.Rec.Emit(workorder.Event{
		Type: workorder.EventOutput, Name: string(workorder.StepSetup),
		Text: "setup runs again without files of an earlier one: " + cannot.Error(),
	})
	if err := b.empty(ctx); err != nil {
		return false, err
	}
	return b.commands(ctx, false)
}

// commands runs the setup commands. If strict, none may fail.
func (b *setupRunner) commands(ctx context.Context, strict bool) (failed bool, err error) {
	done := 0
	if b.SetupCache != nil {
		done = b.SetupCache.Skippable(ctx)
	}
	for i, command := range b.Order.Setup {
		name := fmt.Sprintf("setup-%d", i+1)
		if i < done {
			b.Rec.Emit(workorder.Event{Type: workorder.EventOutput, Name: name, Text: "not run, its result is cached: " + command})
			continue
		}
		code, tail, err := b.Task.Shell(ctx, name, command)
		if err != nil {
			return failed, fmt.Errorf("run %q: %w", command, err)
		}
		if code == 0 {
			continue
		}
		wrong := &commandError{command: command, code: code, tail: tail}
		if strict || !b.Order.Found || b.Order.SetupAsked {
			return true, wrong
		}
		b.reportFailed("setup command", wrong)
		failed = true
	}
	return failed, nil
}

// keepSetup caches the files that setup left, for later boxes. Only before a new task's first commit is all
// content the base's.
func (b *setupRunner) keepSetup(ctx context.Context) error {
	if b.SetupCache == nil || !b.SetupCache.WouldSave() || !b.fresh() {
		return nil
	}
	var inner workorder.Platform
	b.Engine.Describe(&inner)
	why, err := b.SetupCache.Save(ctx, inner.InnerVersion == "" && !b.needsDocker())
	if err == nil && why != nil && ctx.Err() == nil {
		// It makes later tasks slow, but does not concern a reviewer of the work.
		b.Rec.Emit(workorder.Event{
			Type: workorder.EventWarning, Name: string(workorder.StepSetup), Text: "setup cache: nothing is stored for later tasks: " + why.Error(),
		})
	}
	return err
}

// leave lets later boxes remove the files that only this one used.
func (b *setupRunner) leave() {
	if b.SetupCache == nil {
		return
	}
	if err := b.SetupCache.Close(); err != nil {
		b.Log.Warn("release mounted layers", "error", err)
	}
}

// services starts the services. Errors outside of the services themselves are never tolerated.
func (b *preparer) services(ctx context.Context) error {
	down, err := b.Services.Up(ctx)
	if err != nil {
		return err
	}
	return b.found("services", func(context.Context) error { return down })(ctx)
}

// found turns a failure into a warning if the failed part was detected rather than declared.
func (r *Runner) found(what string, run func(context.Context) error) func(context.Context) error {
	if !r.Order.Found {
		return run
	}
	return func(ctx context.Context) error {
		err := run(ctx)
		if err == nil || ctx.Err() != nil {
			return err
		}
		r.reportFailed(what, err)
		return nil
	}
}

// reportFailed continues after a failure, and notifies the agent.
func (r *Runner) reportFailed(what string, err error) {
	text := fmt.Sprintf("%s, found in the repository, failed: %v", what, err)
	r.Rec.Warn(text)
	r.Task.Note(text)
}

type commandError struct {
	command string
	code    int
	tail    string
}

func (e *commandError) Error() string {
	s := fmt.Sprintf("%q exited with %d", e.command, e.code)
	if t := strings.TrimSpace(e.tail); t != "" {
		s += ": " + t
	}
	return s
}

func (e *commandError) ExitCode() int { return e.code }
