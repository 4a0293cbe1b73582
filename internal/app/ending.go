package app

import (
	"context"
	"errors"
	"fmt"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/host/branch"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Reset recreates a sandbox without its files. Its branch stays. By force it discards what is not saved.
func (b Sandboxes) Reset(ctx context.Context, name string, force bool) (i sandbox.Info, err error) {
	old, done, err := b.Get(ctx, name)
	if err != nil {
		return i, err
	}
	defer done()
	if !force {
		if err := b.saveForReset(ctx, old); err != nil {
			return i, err
		}
	}
	sb, err := old.Reset(ctx)
	if err != nil {
		return i, SandboxError(err)
	}
	defer sb.Close()
	b.WarnOfRepositories(ctx, old)
	if err := b.Settle(ctx, sb); err != nil {
		b.Warn(err.Error())
	}
	b.Save(ctx, sb, sandbox.CommandRecord{}) // the branch restarts
	return sb.Info(), nil
}

// saveForReset saves what a reset destroys. A clone that was never complete has nothing to save.
func (b Sandboxes) saveForReset(ctx context.Context, sb *sandbox.Sandbox) error {
	ended := sb.Info().State == sandbox.StateStopped
	saved, err := sb.Branch().SaveUncommitted(ctx)
	b.WarnSaved(saved)
	switch {
	case errors.Is(err, branch.ErrHalf) || err == nil && len(saved.Unsaved) == 0:
		return nil
	case err == nil:
		err = errors.New("not all of its files can be saved")
	}
	if ended {
		err = errors.Join(err, sb.Stop(context.WithoutCancel(ctx)))
	}
	return exiterr.New(workorder.ExitGeneral, fmt.Errorf("sandbox %s stays as it is: %w", sb.Name(), err),
		"`sandbox-agent reset --force "+sb.Name()+"` discards what is not saved")
}

// Down removes a sandbox with its files. By force it saves nothing, and removes the rest of a sandbox that cannot be opened.
func (b Sandboxes) Down(ctx context.Context, m *sandbox.Manager, name string, force bool) error {
	sb, err := m.Get(ctx, name)
	switch {
	case err == nil:
		if err = removeSandbox(ctx, sb, force); err == nil {
			b.WarnOfRepositories(ctx, sb)
		}
	case force:
		err = forget(ctx, m, name, err)
	}
	return unknownOf(ctx, b.Env, kindSandbox, name, err)
}

// Removable lists the named sandboxes of this state directory that this engine has, or those of all state directories. With an error it
// lists those of the runtimes that answer.
func Removable(ctx context.Context, m *sandbox.Manager, allUsers bool) (names []string, err error) {
	all, err := m.List(ctx)
	for _, i := range all {
		if (i.Own || allUsers) && i.State != sandbox.StateOtherEngine && i.Spec.Lifetime != sandbox.LifetimeEphemeral {
			names = append(names, i.Name)
		}
	}
	return names, SandboxError(err)
}

// Removed is what Remove has removed: a task, or a sandbox.
type Removed struct {
	Task *RemovedTask // nil for a sandbox
	// Branch reports that the sandbox's branch was deleted, too. Its last commit was Head, "" if it had none.
	Branch bool
	Head   string
}

// Remove removes a task or a sandbox. A sandbox that runs is removed only by force, which also discards what cannot be saved.
func (w Works) Remove(ctx context.Context, name string, r Removal) (done Removed, err error) {
	sb, leave, err := w.Sandboxes().Either(ctx, name)
	switch {
	case err == nil && sb == nil:
		task, err := w.Tasks().Remove(ctx, name, r)
		return Removed{Task: &task}, err
	case err == nil:
		defer leave()
	case !r.Force && !r.Branch || !sandbox.ValidName(name):
		return done, err
	}
	m, merr := w.Manager(false)
	if merr != nil {
		return done, merr
	}
	defer m.Close()
	switch {
	case sb == nil && !r.Branch: // only its record is left
		return done, w.UnknownName(ctx, name, forget(ctx, m, name, err))
	case sb == nil:
		done.Branch = true
		done.Head, err = w.Branches().DeleteNamed(ctx, m, name, Deletion{Force: r.Force})
		return done, err
	case sb.Info().State.Live() && !r.Force:
		return done, exiterr.New(workorder.ExitGeneral, fmt.Errorf("sandbox %s runs", name),
			"stop it first (`sandbox-agent stop "+name+"`), or remove it at once with: sandbox-agent down "+name)
	case r.Branch && sb.Spec().BranchOf() != "":
		done.Branch = true
		done.Head, err = w.Branches().DeleteNamed(ctx, m, name, Deletion{Force: r.Force})
		return done, err
	}
	err = removeSandbox(ctx, sb, false)
	if r.Force && errors.Is(err, sandbox.ErrUnsaved) {
		err = removeSandbox(ctx, sb, true)
	}
	if err == nil {
		w.Sandboxes().WarnOfRepositories(ctx, sb)
	}
	return done, SandboxError(err)
}

// removeSandbox removes a sandbox, by force without saving its files: what it would send may be what is wrong with it.
func removeSandbox(ctx context.Context, sb *sandbox.Sandbox, force bool) error {
	if force {
		return sb.Remove(ctx, sandbox.RemoveOptions{Discard: true})
	}
	return sb.Remove(ctx, sandbox.RemoveOptions{})
}

// forget removes the rest of a sandbox that could not be opened with err. One that may exist elsewhere stays.
func forget(ctx context.Context, m *sandbox.Manager, name string, err error) error {
	if errors.Is(err, sandbox.ErrUnavailable) || errors.Is(err, sandbox.ErrOtherOwner) {
		return err
	}
	return m.RemoveRecord(ctx, name)
}
