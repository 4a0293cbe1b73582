package workcmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

type listOptions struct{ quiet, whole, json, all bool }

// NewCmdList makes the command.
func NewCmdList(f *cmdutil.Factory) *cobra.Command {
	o := &listOptions{}
	cmd := &cobra.Command{
		Use: "list", Short: "List sandboxes that have a branch", Args: cmdutil.NoArgs,
		Long: `Lists the sandboxes that have a branch of the current repository, the last
changed first. Sandboxes that are gone are listed until 'delete': their commits
stay. Outside of a repository it needs --all.`,
		Example: "  sandbox-agent list\n  sandbox-agent list --all -q",
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.do(cmd.Context(), f) },
	}
	flags := cmd.Flags()
	flags.BoolVarP(&o.quiet, "quiet", "q", false, "print names only")
	flags.BoolVar(&o.whole, "no-trunc", false, "print whole titles")
	flags.BoolVar(&o.all, "all", false, "list those of all repositories")
	flags.BoolVar(&o.json, "json", false, "print JSON")
	return cmd
}

func (o *listOptions) do(ctx context.Context, f *cmdutil.Factory) error {
	rows, err := f.Branches().List(ctx, o.all)
	switch {
	case err != nil && len(rows) == 0:
		return err
	case o.json:
		return errors.Join(f.JSON(rows), err)
	case o.quiet:
		for _, i := range rows {
			fmt.Fprintln(f.Stdout, i.Name)
		}
		return err
	}
	return errors.Join(printList(f, rows, o.whole), err)
}

// maxTitle is what of a title is shown, in characters.
const maxTitle = 40

func printList(f *cmdutil.Factory, rows []app.BranchRow, whole bool) error {
	w := tabwriter.NewWriter(f.Stdout, 0, 4, 2, ' ', 0)
	head := "SANDBOX\tTITLE\tSTATUS\tCREATED\tUPDATED"
	other := slices.ContainsFunc(rows, func(i app.BranchRow) bool { return i.Repo != rows[0].Repo })
	if other {
		head += "\tREPOSITORY"
	}
	fmt.Fprintln(w, head)
	for _, i := range rows {
		title, _, _ := strings.Cut(text.Clean(i.Title), "\n")
		if !whole {
			title = text.Runes(title, maxTitle)
		}
		line := fmt.Sprintf("%s\t%s\t%s\t%s\t%s", i.Name, cmdutil.OrDash(title), i.State, cmdutil.Ago(i.Created), cmdutil.Ago(i.Updated))
		if other {
			line += "\t" + text.Clean(i.Repo)
		}
		fmt.Fprintln(w, line)
	}
	return w.Flush()
}

// watchEvery is the interval between updates of the list.
const watchEvery = time.Second

// NewCmdWatch makes the command.
func NewCmdWatch(f *cmdutil.Factory) *cobra.Command {
	all := false
	cmd := &cobra.Command{
		Use: "watch", Short: "Show the list of sandboxes with a branch, live", Args: cmdutil.NoArgs,
		Long:    "Shows what `sandbox-agent list` shows, until it is interrupted. Outside of a\nrepository it needs --all.",
		Example: "  sandbox-agent watch\n  sandbox-agent watch --all",
		RunE: func(cmd *cobra.Command, _ []string) error {
			tick := time.NewTicker(watchEvery)
			defer tick.Stop()
			for {
				rows, err := f.Branches().List(cmd.Context(), all)
				if err != nil && len(rows) == 0 {
					return err
				}
				if cmdutil.IsTerminal(f.Stdout) {
					fmt.Fprint(f.Stdout, "\x1b[H\x1b[2J")
				}
				if err := printList(f, rows, false); err != nil {
					return err
				}
				select {
				case <-tick.C:
				case <-cmd.Context().Done():
					return nil
				}
			}
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "list those of all repositories")
	return cmd
}

// NewCmdPrune makes the command.
func NewCmdPrune(f *cmdutil.Factory) *cobra.Command {
	minAge, dry, asJSON, d := "1w", false, false, app.Deletion{}
	cmd := &cobra.Command{
		Use: "prune", Short: "Delete sandboxes that have not changed for long", Args: cmdutil.NoArgs,
		Long: `Deletes the sandboxes with a branch that have not changed for --older-than, with
their branches. Sandboxes that run stay. A branch with commits that exist
nowhere else is deleted only with --force, or after a question at a terminal.`,
		Example: "  sandbox-agent prune --dry-run\n  sandbox-agent prune --older-than 2w",
		RunE: func(cmd *cobra.Command, _ []string) error {
			old, err := parseAge(minAge)
			if err != nil {
				return err
			}
			var errs []error
			err = f.Branches().Prune(cmd.Context(), old, dry, d, func(i app.BranchRow, head string, err error) {
				if dry {
					err = f.Done(asJSON, map[string]string{"would_delete": i.Name}, "would delete %s, changed %s", i.Name, cmdutil.Ago(i.Updated))
				} else {
					err = f.Deleted(i.Name, head, asJSON, err)
				}
				errs = append(errs, err)
			})
			return errors.Join(append(errs, err)...)
		},
	}
	cmd.Flags().StringVar(&minAge, "older-than", minAge, "minimum age of the last change, such as 12h, 3d, 2w or 1mo")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print each deleted one as JSON")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "print what would be deleted, and delete nothing")
	cmd.Flags().BoolVar(&d.Force, "force", false, "discard commits that exist nowhere else and files that cannot be saved")
	cmdutil.OldFlag(cmd.Flags(), "before", "older-than")
	return cmd
}

// parseAge reads a time in hours, days, weeks or months.
func parseAge(s string) (time.Duration, error) {
	const day = 24 * time.Hour
	for _, u := range []struct {
		suffix string
		unit   time.Duration
	}{{"mo", 30 * day}, {"w", 7 * day}, {"d", day}, {"h", time.Hour}} {
		if n, ok := strings.CutSuffix(s, u.suffix); ok {
			const most = 1 << 16
			var count int64
			if _, err := fmt.Sscanf(n+".", "%d.", &count); err == nil && count >= 0 && count < most && fmt.Sprint(count) == n {
				return time.Duration(count) * u.unit, nil
			}
		}
	}
	return 0, exiterr.New(workorder.ExitUsage, fmt.Errorf("--older-than %q is not a time", s), "give a number with h, d, w or mo, such as 1w")
}
