package sandboxcmd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
)

// NewCmdSnapshot makes the command.
func NewCmdSnapshot(f *cmdutil.Factory) *cobra.Command {
	cmd := &cobra.Command{
		Use: "snapshot", Short: "Keep the files of sandboxes as snapshots", Args: cmdutil.NoArgs,
		Long: `A snapshot of a container has its own file system at some time: not directories
of this machine, and not volumes that its image declares. It is an image of the
engine. A snapshot of a box or jail has the clone of its repository: a commit
with a tag, and the ignored files. Snapshots outlive their sandbox until they
are removed.`,
	}
	cmd.AddCommand(newSnapshotCreateCmd(f), newSnapshotListCmd(f), newSnapshotRestoreCmd(f), newSnapshotRmCmd(f))
	return cmd
}

const (
	sandboxAndSnapshot = "a sandbox's name and a snapshot's"
	snapshotHint       = "`sandbox-agent snapshot list` lists snapshots"
)

// snapshotName is the form of default names.
const snapshotName = "20060102-150405"

func newSnapshotCreateCmd(f *cmdutil.Factory) *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use: "create SANDBOX [SNAPSHOT]", Short: "Create a snapshot of a sandbox's files",
		Long: `Keeps the files of a sandbox, running or stopped, as a snapshot. Its processes
pause for that time. Of a box or jail it keeps the clone: the tag SANDBOX/NAME of
its branch, and ignored files up to 32 MiB each, 256 MiB together, without
node_modules, __pycache__, .venv and venv. Without a name the snapshot is named
by the time.`,
		Example: "  sandbox-agent snapshot create dev before-upgrade",
		Args:    cmdutil.Args(1, 2, sandboxAndSnapshot, snapshotHint), ValidArgsFunction: f.CompleteSandboxes(false),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, name := cmd.Context(), time.Now().UTC().Format(snapshotName)
			if len(args) == 2 {
				name = args[1]
			}
			sb, done, err := f.Sandboxes().Get(ctx, args[0])
			if err != nil {
				return err
			}
			defer done()
			s, err := sb.Snapshot(ctx, name)
			if err != nil {
				return app.SandboxError(err)
			}
			if asJSON {
				return f.JSON(s)
			}
			fmt.Fprintf(f.Stdout, "%s of %s is kept (%s)\n", s.Name, s.Sandbox, cmdutil.Megabytes(s.Bytes))
			noteOmitted(f, s.Omitted)
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func newSnapshotListCmd(f *cmdutil.Factory) *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use: "list [SANDBOX]", Aliases: []string{"ls"}, Short: "List snapshots with their size",
		Example:           "  sandbox-agent snapshot list\n  sandbox-agent snapshot list dev --json",
		Args:              cmdutil.Args(0, 1, "at most one sandbox's name", "`sandbox-agent ps` lists sandboxes"),
		ValidArgsFunction: f.CompleteSandboxes(false),
		RunE: func(cmd *cobra.Command, args []string) error {
			m, err := f.Manager(false)
			if err != nil {
				return err
			}
			defer m.Close()
			var all []sandbox.Snapshot
			if len(args) == 0 {
				all, err = m.Snapshots().List(cmd.Context())
			} else {
				all, err = m.Snapshots().ListOf(cmd.Context(), args[0])
				err = f.UnknownName(cmd.Context(), args[0], err)
			}
			if err != nil {
				return app.SandboxError(err)
			}
			if asJSON {
				return f.JSON(all)
			}
			if len(all) == 0 {
				fmt.Fprintln(f.Stdout, "no snapshots: create one with: sandbox-agent snapshot create SANDBOX NAME")
				return nil
			}
			w := tabwriter.NewWriter(f.Stdout, 0, 4, 2, ' ', 0)
			fmt.Fprintln(w, "SANDBOX\tSNAPSHOT\tAGE\tSIZE")
			for _, s := range all {
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", text.Clean(s.Sandbox), text.Clean(s.Name),
					text.Age(time.Since(s.Created)), cmdutil.Megabytes(s.Bytes))
			}
			return w.Flush()
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func newSnapshotRestoreCmd(f *cmdutil.Factory) *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use: "restore SANDBOX SNAPSHOT", Short: "Recreate a sandbox from a snapshot",
		Long: `Recreates a sandbox with the files of a snapshot. Its limits, network and
published ports stay; its processes end. Its present files are kept first, as
the snapshot before-restore. A sandbox that was removed comes back. A box or jail
goes on: its clone gets the files of the snapshot, in a commit, and its other
files and its processes stay.`,
		Example: "  sandbox-agent snapshot restore dev before-upgrade",
		Args:    cmdutil.Args(2, 2, sandboxAndSnapshot, snapshotHint), ValidArgsFunction: completeSnapshots(f),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			m, err := f.Manager(false)
			if err != nil {
				return err
			}
			defer m.Close()
			sb, err := m.Snapshots().Restore(ctx, args[0], args[1])
			if err != nil {
				return snapshotError(err)
			}
			defer sb.Close()
			f.Endpoints().Ensure(ctx, sb.Name())
			return f.Done(asJSON, sb.Info(), "%s is as it was in %s", args[0], args[1])
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func newSnapshotRmCmd(f *cmdutil.Factory) *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use: "rm SANDBOX SNAPSHOT...", Short: "Remove snapshots of a sandbox",
		Long: `Removes snapshots. A snapshot that a sandbox was restored to stays until that
sandbox is removed or reset.`,
		Example:           "  sandbox-agent snapshot rm dev before-upgrade",
		Args:              cmdutil.Each(cmdutil.Args(2, cmdutil.Any, sandboxAndSnapshot, snapshotHint), app.CheckSandbox),
		ValidArgsFunction: completeSnapshots(f),
		RunE: func(cmd *cobra.Command, args []string) error {
			m, err := f.Manager(false)
			if err != nil {
				return err
			}
			defer m.Close()
			var errs []error
			for _, name := range args[1:] {
				if err := m.Snapshots().Remove(cmd.Context(), args[0], name); err != nil {
					errs = append(errs, err)
					continue
				}
				errs = append(errs, f.Done(asJSON, map[string]string{"removed": name}, "%s", name))
			}
			return snapshotError(errors.Join(errs...))
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print each removed one as JSON")
	return cmd
}

func snapshotError(err error) error {
	if errors.Is(err, sandbox.ErrNotFound) && !errors.Is(err, sandbox.ErrOtherOwner) {
		return app.NotFound(err, "list snapshots with: sandbox-agent snapshot list")
	}
	return app.SandboxError(err)
}

func noteOmitted(f *cmdutil.Factory, omitted []string) {
	if len(omitted) > 0 {
		fmt.Fprintf(f.Stderr, "note: not in it, as they are mounts, volumes or too large: %s\n", text.Clean(strings.Join(omitted, ", ")))
	}
}

// NewCmdFork makes the command.
func NewCmdFork(f *cmdutil.Factory) *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use: "fork SANDBOX NEW", Short: "Copy a sandbox with its files and limits",
		Long: `Creates another sandbox with the present files, the limits and the network of a
sandbox. Its processes pause for a moment and are not copied. Mounted
directories are shared by both; published ports stay with the first. Of a box or
jail with a clone, the fork has the clone: its commits, the files, and ignored
files as 'snapshot create' keeps them.`,
		Example:           "  sandbox-agent fork dev dev-2",
		Args:              cmdutil.Args(2, 2, "a sandbox's name and a new one", "for example: sandbox-agent fork dev dev-2"),
		ValidArgsFunction: f.CompleteSandboxes(false),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			sb, done, err := f.Sandboxes().Get(ctx, args[0])
			if err != nil {
				return err
			}
			defer done()
			fork, err := sb.Fork(ctx, args[1])
			if err != nil {
				return app.SandboxError(err)
			}
			defer fork.Close()
			i := fork.Info()
			noteOmitted(f, i.Omitted)
			return f.Done(asJSON, i, "%s is up, with the files of %s", args[1], args[0])
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// completeSnapshots completes a sandbox that has some, and then one of its snapshots.
func completeSnapshots(f *cmdutil.Factory) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), app.EngineWait)
		defer cancel()
		m, err := f.Manager(false)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		defer m.Close()
		all, err := m.Snapshots().List(ctx)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var names []string
		for _, s := range all {
			name := s.Sandbox
			if len(args) > 0 {
				if name != args[0] {
					continue
				}
				name = s.Name
			}
			if strings.HasPrefix(name, begun) {
				names = append(names, name)
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}
