package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/host/branch"
	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

func newResetCmd(a *App) *cobra.Command {
	force := false
	cmd := &cobra.Command{
		Use: "reset SANDBOX", Short: "Recreate a sandbox from scratch",
		Long: `Recreates a sandbox as 'up' created it, without its files. Its branch stays.
Changes that no command has committed are committed first. If that fails the
sandbox stays as it is, unless --force discards the changes.`,
		Example:           "  sandbox-agent reset dev",
		Args:              oneSandbox,
		ValidArgsFunction: a.completeSandboxes(false),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			old, done, err := a.sandbox(ctx, args[0])
			if err != nil {
				return err
			}
			defer done()
			if !force {
				if err := a.saveForReset(ctx, old); err != nil {
					return err
				}
			}
			sb, err := old.Reset(ctx)
			if err != nil {
				return sandboxError(err)
			}
			a.warnOfRepositories(ctx, old)
			if err := a.settle(ctx, sb); err != nil {
				a.warn(err.Error())
			}
			defer sb.Close()
			a.save(ctx, sb, sandbox.CommandRecord{}) // its branch begins anew
			fmt.Fprintln(a.Stdout, sb.Name()+" is new")
			return nil
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "discard changes that no command has committed")
	return cmd
}

// saveForReset saves what a reset destroys. A clone that was never complete has nothing to save.
func (a *App) saveForReset(ctx context.Context, sb *sandbox.Sandbox) error {
	ended := sb.Info().State == sandbox.StateStopped
	saved, err := sb.Branch().SaveUncommitted(ctx)
	a.warnSaved(saved)
	switch {
	case errors.Is(err, branch.ErrHalf) || err == nil && len(saved.Unsaved) == 0:
		return nil
	case err == nil:
		err = errors.New("not all of its files can be saved")
	}
	if ended {
		err = errors.Join(err, sb.Stop(context.WithoutCancel(ctx)))
	}
	return fault.New(workorder.ExitGeneral, fmt.Errorf("sandbox %s stays as it is: %w", sb.Name(), err), "`sandbox-agent reset --force "+sb.Name()+"` discards what is not saved")
}

type downOptions struct{ all, force, allUsers bool }

func newDownCmd(a *App) *cobra.Command {
	o := &downOptions{}
	cmd := &cobra.Command{
		Use: "down SANDBOX... | --all", Short: "Remove sandboxes with their files",
		Long: `Removes standalone sandboxes with their files and published ports. Snapshots and
history stay. --all removes those of this state directory, without sessions of
programs.`,
		Example: "  sandbox-agent down dev\n  sandbox-agent down --all",
		Args: each(func(_ *cobra.Command, args []string) error {
			switch {
			case o.allUsers && !o.force:
				return fault.New(workorder.ExitUsage, errors.New("--all-users needs --force"), "a sandbox of another state directory is removed without saving its files")
			case (len(args) > 0) != o.all:
				return nil
			}
			return fault.New(workorder.ExitUsage, errors.New("name the sandboxes, or give --all"), "`sandbox-agent ps` lists them")
		}, checkSandbox),
		ValidArgsFunction: a.completeSandboxes(true),
		RunE:              func(cmd *cobra.Command, args []string) error { return o.do(cmd.Context(), a, args) },
	}
	cmd.Flags().BoolVar(&o.all, "all", false, "remove all sandboxes of this state directory on this engine")
	cmd.Flags().BoolVar(&o.force, "force", false, "remove without saving files; forget damaged and unreachable sandboxes")
	cmd.Flags().BoolVar(&o.allUsers, "all-users", false, "with --force: also those of other state directories")
	return cmd
}

func (o *downOptions) do(ctx context.Context, a *App, names []string) error {
	m, err := a.Manager(o.allUsers)
	if err != nil {
		return err
	}
	defer m.Close()
	var errs []error
	if o.all {
		all, err := m.List(ctx)
		errs = append(errs, sandboxError(err)) // it has the others
		for _, i := range all {
			if (i.Own || o.allUsers) && i.State != sandbox.StateOtherEngine && i.Spec.Lifetime != sandbox.LifetimeEphemeral {
				names = append(names, i.Name)
			}
		}
	}
	for _, name := range names {
		sb, err := m.Get(ctx, name)
		switch {
		case err == nil:
			if err = removeSandbox(ctx, sb, o.force); err == nil {
				a.warnOfRepositories(ctx, sb)
			}
		case o.force:
			err = forgetSandbox(ctx, m, name, err)
		}
		if err != nil {
			errs = append(errs, unknownName(ctx, a, name, err))
			continue
		}
		fmt.Fprintln(a.Stdout, text.Clean(name)+" is down")
	}
	return errors.Join(errs...)
}

// forgetSandbox removes what is left of a sandbox that could not be opened. One that may exist elsewhere stays.
func forgetSandbox(ctx context.Context, m *sandbox.Manager, name string, err error) error {
	if errors.Is(err, sandbox.ErrUnavailable) || errors.Is(err, sandbox.ErrOtherOwner) {
		return err
	}
	return m.RemoveRecord(ctx, name)
}

// removeSandbox removes a sandbox, by force without saving its files: what it would send may be what is wrong with it.
func removeSandbox(ctx context.Context, sb *sandbox.Sandbox, force bool) error {
	if force {
		return sb.Remove(ctx, sandbox.RemoveOptions{Discard: true})
	}
	return sb.Remove(ctx, sandbox.RemoveOptions{})
}

// warnOfRepositories names the repositories that a sandbox has left in directories of this machine, once it has ended.
func (a *App) warnOfRepositories(ctx context.Context, sb *sandbox.Sandbox) (paths []string) {
	const most = 10
	paths, all := sb.Spec().NewRepositories(ctx)
	if len(paths) == 0 {
		return nil
	}
	var shown, remove []string
	for _, path := range paths[:min(len(paths), most)] {
		shown = append(shown, text.Printable(path))
		if text.Printable(path) == path {
			remove = append(remove, path)
		}
	}
	what := strings.Join(shown, ", ")
	if more := len(paths) - most; more > 0 {
		what += fmt.Sprintf(" and %d more", more)
	}
	if !all {
		what += " (the search ended early: there may be more)"
	}
	what = fmt.Sprintf("directories that sandbox %s could write to have new repositories: %s. Git on this machine runs programs by their settings: look at them, or remove them, before you use git in these directories", sb.Name(), what)
	if len(remove) > 0 {
		what += ": `" + text.Shell(append([]string{"rm", "-rf", "--"}, remove...)...) + "` removes them"
	}
	a.warn(what)
	return paths
}
