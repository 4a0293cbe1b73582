package sandboxcmd

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// NewCmdReset makes the command.
func NewCmdReset(f *cmdutil.Factory) *cobra.Command {
	force, asJSON := false, false
	cmd := &cobra.Command{
		Use: "reset SANDBOX", Short: "Recreate a sandbox from scratch",
		Long: `Recreates a sandbox as 'up' created it, without its files. Its branch stays.
Changes that no command has committed are committed first. If that fails the
sandbox stays as it is, unless --force discards the changes.`,
		Example:           "  sandbox-agent reset dev",
		Args:              cmdutil.OneSandbox,
		ValidArgsFunction: f.CompleteSandboxes(false),
		RunE: func(cmd *cobra.Command, args []string) error {
			i, err := f.Sandboxes().Reset(cmd.Context(), args[0], force)
			if err != nil {
				return err
			}
			return f.Done(asJSON, i, "%s is new", i.Name)
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "discard changes that no command has committed")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

type downOptions struct{ all, force, allUsers, json bool }

// NewCmdDown makes the command.
func NewCmdDown(f *cmdutil.Factory) *cobra.Command {
	o := &downOptions{}
	cmd := &cobra.Command{
		Use: "down SANDBOX... | --all", Short: "Remove sandboxes with their files",
		Long: `Removes standalone sandboxes with their files and published ports. Snapshots and
history stay. --all removes those of this state directory, without sessions of
programs.`,
		Example: "  sandbox-agent down dev\n  sandbox-agent down --all",
		Args: cmdutil.Each(func(_ *cobra.Command, args []string) error {
			switch {
			case o.allUsers && !o.force:
				return exiterr.New(workorder.ExitUsage, errors.New("--all-users needs --force"),
					"a sandbox of another state directory is removed without saving its files")
			case (len(args) > 0) != o.all:
				return nil
			}
			return exiterr.New(workorder.ExitUsage, errors.New("name the sandboxes, or give --all"), "`sandbox-agent ps` lists them")
		}, app.CheckSandbox),
		ValidArgsFunction: f.CompleteSandboxes(true),
		RunE:              func(cmd *cobra.Command, args []string) error { return o.do(cmd.Context(), f, args) },
	}
	cmd.Flags().BoolVar(&o.all, "all", false, "remove all sandboxes of this state directory on this engine")
	cmd.Flags().BoolVar(&o.force, "force", false, "remove without saving files; forget damaged and unreachable sandboxes")
	cmd.Flags().BoolVar(&o.json, "json", false, "print each removed one as JSON")
	cmd.Flags().BoolVar(&o.allUsers, "all-users", false, "with --force: also those of other state directories")
	return cmd
}

func (o *downOptions) do(ctx context.Context, f *cmdutil.Factory, names []string) error {
	m, err := f.Manager(o.allUsers)
	if err != nil {
		return err
	}
	defer m.Close()
	var errs []error
	if o.all {
		names, err = app.Removable(ctx, m, o.allUsers)
		errs = append(errs, err) // names has the others
	}
	for _, name := range names {
		if err := f.Sandboxes().Down(ctx, m, name, o.force); err != nil {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, f.Done(o.json, map[string]string{"removed": name}, "%s is down", text.Clean(name)))
	}
	return errors.Join(errs...)
}
