package workcmd

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/internal/front/render"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// NewCmdLog makes the command.
func NewCmdLog(f *cmdutil.Factory) *cobra.Command {
	patch, asJSON := false, false
	cmd := &cobra.Command{
		Use: "log [TASK | SANDBOX]", Short: "Show the commits of a task or sandbox", Args: cmdutil.LastOrOne,
		ValidArgsFunction: f.CompleteWork,
		Long: `Shows the commits of a task's or sandbox's branch since its base, newest first.
Below each commit of a sandbox are the commands that made it, with exit code and
duration; a task's attempts follow its commits. Without a name: see 'help
names'.`,
		Example: "  sandbox-agent log A1B2\n  sandbox-agent log dev -p\n  git log sandbox/dev",
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			w, err := f.Works().Find(ctx, args)
			if err != nil {
				return err
			}
			if patch {
				out := &diffWriter{w: f.Stdout, color: f.Color(f.Stdout)}
				return errors.Join(w.Patch(ctx, out), out.flush())
			}
			l, err := w.Log(ctx)
			switch {
			case err != nil:
				return err
			case asJSON && w.Task != nil:
				return f.JSON(l)
			case asJSON:
				return f.JSON(l.Commits)
			}
			render.Log(f.Stdout, l.Commits)
			for _, t := range l.Attempts {
				fmt.Fprintf(f.Stdout, "attempt %d   %s  %s\n", t.Number, t.FinishedAt.Local().Format(time.DateTime), t.Status)
			}
			return nil
		},
	}
	cmd.Flags().BoolVarP(&patch, "patch", "p", false, "show the changes of each commit")
	defer cmd.MarkFlagsMutuallyExclusive("patch", "json")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON: a sandbox's list of commits, or a task's with its attempts")
	return cmd
}

// NewCmdMerge makes the command.
func NewCmdMerge(f *cmdutil.Factory) *cobra.Command {
	remove, asJSON := false, false
	cmd := &cobra.Command{
		Use: "merge [TASK | SANDBOX]", Short: "Merge a task or sandbox into the current branch", Args: cmdutil.LastOrOne,
		ValidArgsFunction: f.CompleteWork,
		Long: `Merges the branch of a task or sandbox into the branch that is checked out, with
a merge commit. Uncommitted changes are stashed meanwhile and restored.
Conflicts stay in the files, as git leaves them. Working trees outside of the
current directory are never changed. Without a name: see 'help names'.`,
		Example: "  sandbox-agent merge A1B2\n  sandbox-agent merge dev -d",
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			w, err := f.Works().Find(ctx, args)
			if err != nil {
				return err
			}
			r, err := w.OpenHere(ctx, "merge", remove)
			if err != nil {
				return err
			}
			without, err := r.Merge(ctx, w.MergeMessage())
			if err != nil {
				return err
			}
			line := "already up to date"
			if !without {
				line = fmt.Sprintf("merged %s in %s", w.Name(), text.Clean(r.Path()))
			}
			if err := f.Done(asJSON, handedOver{Path: r.Path(), Head: r.Head, Changed: !without}, "%s", line); err != nil || !remove {
				return err
			}
			head, err := f.Branches().DeleteMerged(ctx, w.Branch, r.Head)
			return f.Deleted(w.Name(), head, asJSON, err)
		},
	}
	cmd.Flags().BoolVarP(&remove, "delete", "d", false, "delete the sandbox and its branch afterwards")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// handedOver is what merge, apply and checkout have done in a repository.
type handedOver struct {
	Path    string   `json:"path"`
	Branch  string   `json:"branch,omitempty"`
	Before  string   `json:"before,omitempty"` // branch or commit that was checked out
	Head    string   `json:"head"`             // of the work
	Changed bool     `json:"changed"`
	Files   []string `json:"files,omitempty"`
}

// NewCmdDelete makes the command.
func NewCmdDelete(f *cmdutil.Factory) *cobra.Command {
	all, asJSON, d := false, false, app.Deletion{}
	cmd := &cobra.Command{
		Use: "delete SANDBOX... | --all", Short: "Delete sandboxes with their branches", ValidArgsFunction: f.CompleteBranches,
		Long: `Removes sandboxes as 'down' does, and their branches, both here and as
sandbox/NAME in your repository. What was merged stays. A branch with commits
that exist nowhere else is deleted only with --force, or after a question at a
terminal.`,
		Example: "  sandbox-agent delete dev\n  sandbox-agent delete --all",
		Args: cmdutil.Each(func(_ *cobra.Command, args []string) error {
			if (len(args) > 0) != all {
				return nil
			}
			return exiterr.New(workorder.ExitUsage, errors.New("name the sandboxes, or give --all"), "`sandbox-agent list --all` lists them")
		}, app.CheckSandbox),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.Branches().DeleteAll(cmd.Context(), args, d, func(name, head string, err error) error {
				return f.Deleted(name, head, asJSON, err)
			})
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "delete all sandboxes that have a branch")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print each deleted one as JSON")
	cmd.Flags().BoolVar(&d.Force, "force", false, "discard commits that exist nowhere else and files that cannot be saved")
	return cmd
}
