package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

func newLogCmd(a *App) *cobra.Command {
	patch, asJSON := false, false
	cmd := &cobra.Command{
		Use: "log [SANDBOX]", Short: "Show the commits of a sandbox with their commands", Args: cmdutil.OneOrThis,
		ValidArgsFunction: a.CompleteBranches,
		Long: `Shows the commits of a sandbox's branch, newest first, and below each the
commands that made it, with exit code and duration. The default is the sandbox
whose branch descends from what is checked out here.`,
		Example: "  sandbox-agent log dev\n  sandbox-agent log dev -p\n  git log sandbox/dev",
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			b, err := a.Branches().FindOrCurrent(ctx, args)
			if err != nil {
				return err
			}
			if patch && !asJSON {
				w := &diffWriter{w: a.Stdout, color: a.Color(a.Stdout)}
				return errors.Join(b.Patch(ctx, w), w.flush())
			}
			all, err := b.Log(ctx)
			if err != nil {
				return err
			}
			if asJSON {
				return a.JSON(all)
			}
			cmdutil.PrintLog(a.Stdout, all)
			return nil
		},
	}
	cmd.Flags().BoolVarP(&patch, "patch", "p", false, "show the changes of each commit")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func newMergeCmd(a *App) *cobra.Command {
	remove, asJSON := false, false
	cmd := &cobra.Command{
		Use: "merge [SANDBOX]", Short: "Merge a sandbox's branch into the current branch", Args: cmdutil.OneOrThis,
		ValidArgsFunction: a.CompleteBranches,
		Long: `Merges a sandbox's branch into the branch that is checked out, with a merge
commit. Uncommitted changes are stashed meanwhile and restored. Conflicts stay
in the files, as git leaves them. The default is the sandbox whose branch
descends from what is checked out here.`,
		Example: "  sandbox-agent merge dev\n  sandbox-agent merge dev -d",
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			b, err := a.Branches().FindOrCurrent(ctx, args)
			if err != nil {
				return err
			}
			p, err := a.Branches().SavedHandoff(ctx, "merge", b, remove)
			if err != nil {
				return err
			}
			without, err := p.Merge(ctx, "Merge sandbox "+b.Sandbox)
			if err != nil {
				return err
			}
			line := "already up to date"
			if !without {
				line = fmt.Sprintf("merged %s in %s", b.Sandbox, text.Clean(p.Path()))
			}
			if err := a.Done(asJSON, handedOver{Path: p.Path(), Head: p.Head, Changed: !without}, "%s", line); err != nil || !remove {
				return err
			}
			head, err := a.Branches().DeleteMerged(ctx, b, p.Head)
			return a.deleted(b.Sandbox, head, asJSON, err)
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

// deleted reports that a sandbox was deleted, with the head of its branch.
func (a *App) deleted(name, head string, asJSON bool, err error) error {
	if err != nil {
		return err
	}
	was := ""
	if head != "" {
		was = fmt.Sprintf(" (was %.10s)", head)
	}
	return a.Done(asJSON, struct {
		Deleted string `json:"deleted"`
		Head    string `json:"head,omitempty"`
	}{name, head}, "deleted %s%s", name, was)
}

func newDeleteCmd(a *App) *cobra.Command {
	all, asJSON, d := false, false, app.Deletion{}
	cmd := &cobra.Command{
		Use: "delete SANDBOX... | --all", Short: "Delete sandboxes with their branches", ValidArgsFunction: a.CompleteBranches,
		Long: `Removes sandboxes as 'down' does, and their branches, both here and as
sandbox/NAME in your repository. What was merged stays. A branch with commits
that exist nowhere else is deleted only with --force, or after a question at a
terminal.`,
		Example: "  sandbox-agent delete dev\n  sandbox-agent delete --all",
		Args: cmdutil.Each(func(_ *cobra.Command, args []string) error {
			if (len(args) > 0) != all {
				return nil
			}
			return fault.New(workorder.ExitUsage, errors.New("name the sandboxes, or give --all"), "`sandbox-agent list --all` lists them")
		}, app.CheckSandbox),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			m, err := a.Manager(false)
			if err != nil {
				return err
			}
			defer m.Close()
			var errs []error
			for _, name := range args {
				head, err := a.Branches().DeleteNamed(ctx, m, name, d)
				errs = append(errs, a.deleted(name, head, asJSON, err))
			}
			if all {
				list, err := a.Branches().List(ctx, true)
				errs = append(errs, err)
				for _, i := range list {
					head, err := a.Branches().Delete(ctx, m, i.Branch, d)
					errs = append(errs, a.deleted(i.Name, head, asJSON, err))
				}
			}
			return errors.Join(errs...)
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "delete all sandboxes that have a branch")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print each deleted one as JSON")
	cmd.Flags().BoolVar(&d.Force, "force", false, "discard commits that exist nowhere else and files that cannot be saved")
	return cmd
}
