package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/host/branch"
	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/internal/host/handoff"
	"github.com/sandbox-agent/sandbox-agent/internal/host/localrepo"
	"github.com/sandbox-agent/sandbox-agent/internal/host/registry"
	"github.com/sandbox-agent/sandbox-agent/internal/host/trust"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// branches are those of this state folder.
func (a *App) branches() (*branch.Store, error) {
	st, err := a.store()
	if err != nil {
		return nil, err
	}
	return branch.New(st.Dir()), nil
}

// top is the repository that the user is in; "" outside of any.
func (a *App) top() (string, error) {
	dir, err := a.here()
	if err != nil {
		return "", err
	}
	return trust.Top(dir), nil
}

// branch is that of a sandbox, which may be gone. The error is branch.ErrNone where there is none.
func (a *App) branch(ctx context.Context, name string) (*branch.Branch, error) {
	if !sandbox.ValidName(name) {
		return nil, branch.ErrNone
	}
	all, err := a.branches()
	if err != nil {
		return nil, err
	}
	top, err := a.top()
	if err != nil {
		return nil, err
	}
	return all.Find(ctx, name, top)
}

// branchPlace is the repository that has the work of a sandbox.
func (a *App) branchPlace(ctx context.Context, b *branch.Branch, local string) (*handoff.Place, error) {
	dir, err := a.here()
	if err != nil {
		return nil, err
	}
	if local == "" {
		local = "sandbox-" + b.Sandbox
	}
	if err := b.Publish(ctx); err != nil {
		return nil, err
	}
	return handoff.Open(ctx, handoff.Work{Of: "sandbox " + b.Sandbox, Branch: local, Repo: b.Repo, Base: b.Base(ctx), Head: b.Head(ctx)}, dir)
}

// oneOrThis accepts one name of a sandbox, or none.
func oneOrThis(cmd *cobra.Command, args []string) error {
	if len(args) <= 1 {
		return nil
	}
	return oneSandbox(cmd, args)
}

// meantBranch is the branch that the arguments name, or else the one whose work stands on what is checked out here.
func (a *App) meantBranch(ctx context.Context, args []string) (*branch.Branch, error) {
	if len(args) == 1 {
		b, err := a.branch(ctx, args[0])
		if errors.Is(err, branch.ErrNone) {
			err = notFound(err, "`sandbox-agent list --all` lists them; `sandbox-agent up NAME --repo .` makes one")
		}
		return b, err
	}
	top, found, err := a.descending(ctx)
	if err != nil {
		return nil, err
	}
	if top == "" {
		return nil, fault.New(workorder.ExitUsage, errors.New("this folder is in no git repository"), "name a sandbox; `sandbox-agent list --all` lists those with a branch")
	}
	names := make([]string, 0, len(found))
	for _, b := range found {
		names = append(names, b.Sandbox)
	}
	switch len(found) {
	case 0:
		return nil, notFound(errors.New("no sandbox's branch descends from the current HEAD"), "name one; `sandbox-agent list` lists them")
	case 1:
		return found[0], nil
	}
	return nil, fault.New(workorder.ExitUsage, fmt.Errorf("the branches of several sandboxes descend from the current HEAD: %s", strings.Join(names, ", ")), "name one")
}

// descending are the branches of sandboxes that descend from what is checked out in the repository that the user is in, which is "" outside of any.
func (a *App) descending(ctx context.Context) (top string, found []*branch.Branch, err error) {
	if top, err = a.top(); err != nil || top == "" {
		return "", nil, err
	}
	head, err := localrepo.Git(top).Resolve(ctx, "HEAD")
	if err != nil {
		return top, nil, err
	}
	all, err := a.branches()
	if err != nil {
		return top, nil, err
	}
	list, err := all.List(ctx)
	for _, i := range list {
		if i.Repo == top && i.DescendsFrom(ctx, head) {
			found = append(found, i.Branch)
		}
	}
	return top, found, err
}

// completeBranches lists sandboxes with a branch.
func (a *App) completeBranches(cmd *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
	all, err := a.branches()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	list, _ := all.List(cmd.Context()) // of those that can be read
	var names []string
	for _, i := range list {
		if strings.HasPrefix(i.Name, begun) {
			names = append(names, cobra.CompletionWithDesc(i.Name, i.Title))
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// completeWork lists sandboxes with a branch, and tasks.
func (a *App) completeWork(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	names, _ := a.completeBranches(cmd, args, begun)
	ids, how := a.completeTasks(false)(cmd, args, begun)
	return append(names, ids...), how
}

func newLogCmd(a *App) *cobra.Command {
	patch, asJSON := false, false
	cmd := &cobra.Command{
		Use: "log [SANDBOX]", Short: "Show the commits of a sandbox, with the commands that were run", Args: oneOrThis, ValidArgsFunction: a.completeBranches,
		Long: `Shows the commits of a sandbox's branch, the last one first, and below each the commands that were run, with exit code and time.
Without a name it is the one whose branch descends from what is checked out here.`,
		Example: "  sandbox-agent log dev\n  sandbox-agent log dev -p\n  git log sandbox/dev",
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			b, err := a.meantBranch(ctx, args)
			if err != nil {
				return err
			}
			if patch && !asJSON {
				w := &diffWriter{w: a.Stdout, color: a.color(a.Stdout)}
				return errors.Join(b.Patch(ctx, w), w.flush())
			}
			all, err := b.Log(ctx)
			if err != nil {
				return err
			}
			if asJSON {
				return a.json(all)
			}
			printLog(a.Stdout, all)
			return nil
		},
	}
	cmd.Flags().BoolVarP(&patch, "patch", "p", false, "show what each commit changed")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON document")
	return cmd
}

// printLog prints commits for people.
func printLog(w io.Writer, all []branch.Entry) {
	for _, e := range all {
		fmt.Fprintf(w, "%.10s  %s  %s\n", e.Commit, e.Time.Local().Format(time.DateTime), text.Clean(e.Subject))
		for _, r := range e.Ran {
			first, _, _ := strings.Cut(r.Command, "\n")
			fmt.Fprintf(w, "            $ %s   (exit %d, %s)\n", clip(text.Clean(first)), r.ExitCode, r.Duration.Round(time.Millisecond))
		}
	}
}

func newMergeCmd(a *App) *cobra.Command {
	remove := false
	cmd := &cobra.Command{
		Use: "merge [SANDBOX]", Short: "Merge a sandbox's branch into what is checked out", Args: oneOrThis, ValidArgsFunction: a.completeBranches,
		Long: `Merges a sandbox's branch into the branch that is checked out, with a commit of its own. Uncommitted changes are put aside
meanwhile and come back. Conflicts stay in the files, as git leaves them. Without a name it is the one whose branch descends
from what is checked out here.`,
		Example: "  sandbox-agent merge dev\n  sandbox-agent merge dev -d",
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			b, err := a.meantBranch(ctx, args)
			if err != nil {
				return err
			}
			if err := a.saveLast(ctx, b.Sandbox); err != nil {
				if remove {
					return err
				}
				a.warn(err.Error())
			}
			p, err := a.branchPlace(ctx, b, "")
			if err != nil {
				return err
			}
			without, err := p.Merge(ctx, "Merge sandbox "+b.Sandbox)
			if err != nil {
				return err
			}
			if without {
				fmt.Fprintln(a.Stdout, "already up to date")
			} else {
				fmt.Fprintf(a.Stdout, "merged %s\n", b.Sandbox)
			}
			if !remove {
				return nil
			}
			if b.Head(ctx) != p.Head {
				return fault.New(workorder.ExitGeneral, fmt.Errorf("sandbox %s was not deleted: it has commits since it was merged", b.Sandbox), "merge it again")
			}
			return a.deleteEnvironments(ctx, []string{b.Sandbox})
		},
	}
	cmd.Flags().BoolVarP(&remove, "delete", "d", false, "delete the sandbox and its branch then")
	return cmd
}

// saveLast commits what commands of the background have changed in a sandbox that runs.
func (a *App) saveLast(ctx context.Context, name string) error {
	m, err := a.sandboxes()
	if err != nil {
		return err
	}
	defer m.Close()
	sb, err := m.Get(ctx, name)
	if a.gone(name, err) {
		return nil
	}
	if err != nil {
		return sandboxError(err)
	}
	defer sb.Close(context.WithoutCancel(ctx))
	if sb.Info().State == sandbox.StateRunning {
		_, err = sb.Save(ctx, sandbox.Ran{})
	}
	return err
}

// gone reports whether an error of Get says that there is no sandbox. Where a kind does not answer, as an engine that this user may not use, it is what is kept that says it.
func (a *App) gone(name string, err error) bool {
	if errors.Is(err, sandbox.ErrNotFound) || err == nil {
		return err != nil
	}
	st, serr := a.store()
	if serr != nil {
		return false
	}
	_, kerr := registry.New(st.Dir()).Load(name)
	return errors.Is(kerr, fs.ErrNotExist)
}

// deleteEnvironments removes sandboxes with their branches.
func (a *App) deleteEnvironments(ctx context.Context, names []string) error {
	m, err := a.sandboxes()
	if err != nil {
		return err
	}
	defer m.Close()
	var errs []error
	for _, name := range names {
		if !sandbox.ValidName(name) {
			errs = append(errs, notFound(fmt.Errorf("there is no sandbox %s", text.Clean(name)), "`sandbox-agent list --all` lists them"))
			continue
		}
		b, berr := a.branch(ctx, name)
		sb, serr := m.Get(ctx, name)
		switch {
		case serr == nil:
			serr = sb.Remove(ctx)
		case a.gone(name, serr) && berr == nil:
			serr = nil
		}
		if berr == nil && serr == nil {
			berr = b.Delete(ctx)
		} else if errors.Is(berr, branch.ErrNone) {
			berr = nil
		}
		if err := errors.Join(sandboxError(serr), berr); err != nil {
			errs = append(errs, err)
			continue
		}
		fmt.Fprintf(a.Stdout, "deleted %s\n", name)
	}
	return errors.Join(errs...)
}

func newDeleteCmd(a *App) *cobra.Command {
	all := false
	cmd := &cobra.Command{
		Use: "delete SANDBOX... | --all", Short: "Remove sandboxes with their files and their branches", ValidArgsFunction: a.completeBranches,
		Long:    "Removes sandboxes as `sandbox-agent down` does, and their branches, here and as sandbox/NAME in your repository. What was merged stays.",
		Example: "  sandbox-agent delete dev\n  sandbox-agent delete --all",
		Args: func(_ *cobra.Command, args []string) error {
			if (len(args) > 0) != all {
				return nil
			}
			return fault.New(workorder.ExitUsage, errors.New("name the sandboxes, or give --all"), "`sandbox-agent list --all` lists them")
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if all {
				list, err := a.listed(cmd.Context(), true)
				if err != nil {
					return err
				}
				for _, i := range list {
					args = append(args, i.Name)
				}
			}
			return a.deleteEnvironments(cmd.Context(), args)
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "all sandboxes that have a branch")
	return cmd
}

// environmentRow is a sandbox with a branch.
type environmentRow struct {
	branch.Info
	State sandbox.State `json:"state"`
}

// listed are the sandboxes with a branch of the repository that the user is in, or all; the last that was changed first.
func (a *App) listed(ctx context.Context, all bool) ([]environmentRow, error) {
	store, err := a.branches()
	if err != nil {
		return nil, err
	}
	top, err := a.top()
	if err != nil {
		return nil, err
	}
	list, err := store.List(ctx)
	if err != nil {
		return nil, err
	}
	states := map[string]sandbox.State{}
	if len(list) > 0 {
		m, err := a.sandboxes()
		if err != nil {
			return nil, err
		}
		defer m.Close()
		running, _ := m.List(ctx) // of kinds that do not answer nothing is known
		for _, i := range running {
			states[i.Name] = i.State
		}
	}
	rows := []environmentRow{}
	for _, i := range list {
		if !all && top != "" && i.Repo != top {
			continue
		}
		row := environmentRow{i, states[i.Name]}
		if row.State == "" {
			row.State = sandbox.StateGone
		}
		rows = append(rows, row)
	}
	return rows, nil
}

type listOptions struct{ quiet, whole, json, all bool }

func newListCmd(a *App) *cobra.Command {
	o := &listOptions{}
	cmd := &cobra.Command{
		Use: "list", Short: "List sandboxes with a branch, the last that was changed first", Args: noArgs,
		Long:    "Lists the sandboxes that have a branch of the repository that you are in, and outside of any all of them; also those that are gone, whose commits stay until `sandbox-agent delete`.",
		Example: "  sandbox-agent list\n  sandbox-agent list --all -q",
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.do(cmd.Context(), a) },
	}
	f := cmd.Flags()
	f.BoolVarP(&o.quiet, "quiet", "q", false, "names only")
	f.BoolVar(&o.whole, "no-trunc", false, "whole titles")
	f.BoolVar(&o.all, "all", false, "of all repositories")
	f.BoolVar(&o.json, "json", false, "print a JSON document")
	return cmd
}

func (o *listOptions) do(ctx context.Context, a *App) error {
	rows, err := a.listed(ctx, o.all)
	if err != nil {
		return err
	}
	switch {
	case o.json:
		return a.json(rows)
	case o.quiet:
		for _, i := range rows {
			fmt.Fprintln(a.Stdout, i.Name)
		}
		return nil
	}
	return a.printList(rows, o.whole)
}

// maxTitle is what of a title is shown, in characters.
const maxTitle = 40

func (a *App) printList(rows []environmentRow, whole bool) error {
	w := tabwriter.NewWriter(a.Stdout, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "SANDBOX\tTITLE\tSTATUS\tCREATED\tUPDATED")
	for _, i := range rows {
		title, _, _ := strings.Cut(text.Clean(i.Title), "\n")
		if !whole {
			title = text.Runes(title, maxTitle)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", i.Name, orDash(title), i.State, ago(i.Created), ago(i.Updated))
	}
	return w.Flush()
}

// watchEvery is how often the list is shown anew.
const watchEvery = time.Second

func newWatchCmd(a *App) *cobra.Command {
	all := false
	cmd := &cobra.Command{
		Use: "watch", Short: "Show the list of sandboxes with a branch, anew each second", Args: noArgs, Example: "  sandbox-agent watch",
		RunE: func(cmd *cobra.Command, _ []string) error {
			tick := time.NewTicker(watchEvery)
			defer tick.Stop()
			for {
				rows, err := a.listed(cmd.Context(), all)
				if err != nil {
					return err
				}
				if isTerminal(a.Stdout) {
					fmt.Fprint(a.Stdout, "\x1b[H\x1b[2J")
				}
				if err := a.printList(rows, false); err != nil {
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
	cmd.Flags().BoolVar(&all, "all", false, "of all repositories")
	return cmd
}

func newPruneCmd(a *App) *cobra.Command {
	before, dry := "1w", false
	cmd := &cobra.Command{
		Use: "prune", Short: "Delete sandboxes that nothing has changed for long, with their branches", Args: noArgs,
		Long:    "Deletes the sandboxes with a branch that were last changed before --before, but for those that run. A branch's commits are gone with it, unless they were merged.",
		Example: "  sandbox-agent prune --dry-run\n  sandbox-agent prune --before 2w",
		RunE: func(cmd *cobra.Command, _ []string) error {
			old, err := parseBefore(before)
			if err != nil {
				return err
			}
			rows, err := a.listed(cmd.Context(), true)
			if err != nil {
				return err
			}
			var names []string
			for _, i := range rows {
				if i.State == sandbox.StateRunning || time.Since(i.Updated) < old {
					continue
				}
				names = append(names, i.Name)
				if dry {
					fmt.Fprintf(a.Stdout, "would delete %s, changed %s\n", i.Name, ago(i.Updated))
				}
			}
			if dry {
				return nil
			}
			return a.deleteEnvironments(cmd.Context(), names)
		},
	}
	cmd.Flags().StringVar(&before, "before", before, "how long nothing has changed, as 12h, 3d, 2w or 1mo")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "only say what would be deleted")
	return cmd
}

// parseBefore reads a time in hours, days, weeks or months.
func parseBefore(s string) (time.Duration, error) {
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
	return 0, fault.New(workorder.ExitUsage, fmt.Errorf("--before %q is not a time", s), "give a number with h, d, w or mo, such as 1w")
}
