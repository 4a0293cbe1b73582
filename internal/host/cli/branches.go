package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/host/branch"
	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/internal/host/handoff"
	"github.com/sandbox-agent/sandbox-agent/internal/host/localrepo"
	"github.com/sandbox-agent/sandbox-agent/internal/host/registry"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// branch is that of a sandbox, which may be gone. The error is branch.ErrNone where there is none.
func (a *App) branch(ctx context.Context, name string) (*branch.Branch, error) {
	if err := app.CheckTask(name); err != nil { // a task's ID has no branch here
		return nil, err
	}
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

// branchPlace is the repository that has the work of a sandbox: the work tree of it that the user is in, or else the one that the sandbox was made in.
func (a *App) branchPlace(ctx context.Context, b *branch.Branch) (*handoff.Place, error) {
	dir, err := a.here()
	if err != nil {
		return nil, err
	}
	err = b.Publish(ctx)
	if errors.Is(err, branch.ErrNotShown) { // another remote has the name: the commits are enough
		if lerr := b.Lend(ctx); lerr == nil {
			err = nil
		}
	}
	if err != nil {
		return nil, err
	}
	repo := b.Repo
	if top, err := a.top(); err == nil && top != "" && localrepo.Same(ctx, top, repo) {
		repo = top
	}
	return handoff.Open(ctx, handoff.Work{Of: "sandbox " + b.Sandbox, Branch: "sandbox-" + b.Sandbox, Repo: repo, Base: b.Base(ctx), Head: b.Head(ctx)}, dir)
}

// meantBranch is the branch that the arguments name, or else the one whose work stands on what is checked out here.
func (a *App) meantBranch(ctx context.Context, args []string) (*branch.Branch, error) {
	if len(args) == 1 {
		b, err := a.branch(ctx, args[0])
		if errors.Is(err, branch.ErrNone) {
			err = unknownName(ctx, a, args[0], err)
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

func newLogCmd(a *App) *cobra.Command {
	patch, asJSON := false, false
	cmd := &cobra.Command{
		Use: "log [SANDBOX]", Short: "Show the commits of a sandbox with their commands", Args: oneOrThis, ValidArgsFunction: a.CompleteBranches,
		Long: `Shows the commits of a sandbox's branch, newest first, and below each the
commands that made it, with exit code and duration. The default is the sandbox
whose branch descends from what is checked out here.`,
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
	cmd.Flags().BoolVarP(&patch, "patch", "p", false, "show the changes of each commit")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
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
		Use: "merge [SANDBOX]", Short: "Merge a sandbox's branch into the current branch", Args: oneOrThis, ValidArgsFunction: a.CompleteBranches,
		Long: `Merges a sandbox's branch into the branch that is checked out, with a merge
commit. Uncommitted changes are stashed meanwhile and restored. Conflicts stay
in the files, as git leaves them. The default is the sandbox whose branch
descends from what is checked out here.`,
		Example: "  sandbox-agent merge dev\n  sandbox-agent merge dev -d",
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			b, err := a.meantBranch(ctx, args)
			if err != nil {
				return err
			}
			p, err := a.savedPlace(ctx, "merge", b, remove)
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
				fmt.Fprintf(a.Stdout, "merged %s in %s\n", b.Sandbox, text.Clean(p.Path()))
			}
			if !remove {
				return nil
			}
			return a.deleteMerged(ctx, b, p.Head)
		},
	}
	cmd.Flags().BoolVarP(&remove, "delete", "d", false, "delete the sandbox and its branch afterwards")
	return cmd
}

// inTree returns a usage error unless the user is in a work tree of the repository that a verb changes: one that they do not see is not changed.
func (a *App) inTree(ctx context.Context, verb, of, repo string) error {
	top, err := a.top()
	if err != nil || top != "" && (top == repo || localrepo.Same(ctx, top, repo)) {
		return err
	}
	return fault.New(workorder.ExitUsage, fmt.Errorf("%s changes a work tree of %s, which the current directory is not in", verb, text.Clean(repo)),
		"go there: cd "+text.Shell(repo)+" && sandbox-agent "+verb+" "+of)
}

// savedPlace is branchPlace, once what no command has committed is. What cannot be committed is an error where the sandbox is deleted afterwards.
func (a *App) savedPlace(ctx context.Context, verb string, b *branch.Branch, deleted bool) (*handoff.Place, error) {
	if err := a.inTree(ctx, verb, b.Sandbox, b.Repo); err != nil {
		return nil, err
	}
	left, err := a.saveLast(ctx, b, deleted)
	if err != nil {
		return nil, fault.New(fault.Code(err), fmt.Errorf("%s nothing: what changed in sandbox %s since its last commit cannot be saved: %w", verb, b.Sandbox, err),
			cmp.Or(fault.Hint(err), "mend that; its commits so far are on "+branch.Remote+"/"+b.Sandbox+", for git itself"))
	}
	if len(left) > 0 {
		err := fault.New(workorder.ExitGeneral, fmt.Errorf("no commit of sandbox %s has %s: it is large, cannot be read, git refuses its name, it is in a submodule, or in a branch, tag or stash of the clone", b.Sandbox, strings.Join(left, ", ")),
			"take it out with `sandbox-agent cp`, or `git add` it in the sandbox; without -d nothing is deleted")
		if deleted {
			return nil, err
		}
		a.warn(err.Error())
	}
	return a.branchPlace(ctx, b)
}

// saveLast commits what no command has committed in a sandbox, and returns what cannot be. One that had ended runs then only where it can be deleted.
func (a *App) saveLast(ctx context.Context, b *branch.Branch, deleted bool) (left []string, err error) {
	m, err := a.sandboxes()
	if err != nil {
		return nil, err
	}
	defer m.Close()
	sb, err := m.Get(ctx, b.Sandbox)
	if a.gone(b.Sandbox, err) {
		return nil, nil
	}
	if err != nil {
		return nil, sandboxError(err)
	}
	defer sb.Close()
	if sb.Spec().BranchOf() != b.Repo {
		return nil, nil
	}
	saved, err := sb.Branch().SaveUncommitted(ctx)
	if refused := err != nil || len(saved.Unsaved) > 0; sb.Info().State == sandbox.StateStopped && (!deleted || refused) {
		err = errors.Join(err, sb.Stop(context.WithoutCancel(ctx)))
	}
	for _, u := range saved.Unsaved {
		left = append(left, u.Path)
	}
	return left, sandboxError(err)
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

// deletion is how a branch is deleted.
type deletion struct {
	// force also deletes commits that exist nowhere else, and files that cannot be saved.
	force bool
	// head is the branch's last commit as it was judged; the branch stays where it has another one by then. "" is any.
	head string
	// merged says that the work until head is elsewhere now.
	merged bool
}

// deleteBranch removes a branch with its sandbox, if that is there.
func (a *App) deleteBranch(ctx context.Context, m *sandbox.Manager, b *branch.Branch, d deletion) error {
	sb, err := m.Get(ctx, b.Sandbox)
	if err != nil && !a.gone(b.Sandbox, err) {
		return sandboxError(err)
	}
	if err != nil || sb.Spec().BranchOf() != b.Repo { // one of that name may be of another repository
		sb = nil
	}
	if sb != nil && !d.force {
		if err := sb.Branch().SaveForRemoval(ctx); err != nil {
			return deleteError(b.Sandbox, err)
		}
	}
	was := b.Head(ctx)
	if d.head != "" && was != d.head {
		return fault.New(workorder.ExitGeneral, fmt.Errorf("the branch of sandbox %s stays: it has a commit since", b.Sandbox), "`sandbox-agent merge` it again, or `sandbox-agent delete` it")
	}
	if err := a.mayDelete(ctx, b, was, d); err != nil {
		return err
	}
	switch {
	case sb == nil:
	case d.force:
		err = sb.Remove(ctx, sandbox.RemoveOptions{Discard: true})
	default:
		err = sb.Remove(ctx, sandbox.RemoveOptions{})
	}
	if sb != nil && err != nil {
		return deleteError(b.Sandbox, err)
	}
	if sb != nil {
		a.warnOfRepositories(ctx, sb)
	}
	if now := b.Head(ctx); !d.force && now != was {
		return fault.New(workorder.ExitGeneral, fmt.Errorf("the branch of sandbox %s stays: it has a commit since", b.Sandbox), "`sandbox-agent merge` it, or `sandbox-agent delete` it")
	}
	if err := b.Delete(ctx); err != nil {
		return err
	}
	if was != "" {
		was = fmt.Sprintf(" (was %.10s)", was)
	}
	fmt.Fprintf(a.Stdout, "deleted %s%s\n", b.Sandbox, was)
	return nil
}

// deleteError is sandboxError, of a command that deletes the branch, too.
func deleteError(name string, err error) error {
	if errors.Is(err, sandbox.ErrUnsaved) {
		return fault.New(workorder.ExitGeneral, err, "`sandbox-agent delete --force "+name+"` deletes it all the same")
	}
	return sandboxError(err)
}

// mayDelete refuses to delete the only name of commits, unless a person agrees.
func (a *App) mayDelete(ctx context.Context, b *branch.Branch, head string, d deletion) error {
	if d.force || d.merged {
		return nil
	}
	only, err := b.Unmerged(ctx)
	if err != nil || !only {
		return err
	}
	what := fmt.Sprintf("the branch of sandbox %s (at %.10s) has commits that exist nowhere else", b.Sandbox, head)
	if a.Confirm != nil {
		yes, err := a.Confirm(ctx, what+". Delete it?")
		if err != nil || yes {
			return err
		}
	}
	return fault.New(workorder.ExitGeneral, errors.New(what), "`sandbox-agent merge "+b.Sandbox+"` merges them; --force deletes them")
}

// deleteMerged removes a branch whose work until head is elsewhere now, with its sandbox.
func (a *App) deleteMerged(ctx context.Context, b *branch.Branch, head string) error {
	m, err := a.sandboxes()
	if err != nil {
		return err
	}
	defer m.Close()
	return a.deleteBranch(ctx, m, b, deletion{head: head, merged: true})
}

// deleteNamed removes a sandbox with its branch; one that is gone has a branch in this folder's repository, or else in another one.
func (a *App) deleteNamed(ctx context.Context, m *sandbox.Manager, name string, d deletion) error {
	sb, err := m.Get(ctx, name)
	switch {
	case errors.Is(err, sandbox.ErrName):
		return sandboxError(err)
	case err == nil && sb.Spec().BranchOf() != "":
		all, err := a.branches()
		if err != nil {
			return err
		}
		return a.deleteBranch(ctx, m, all.Of(name, sb.Spec().BranchOf()), d)
	case err == nil:
		if err := removeSandbox(ctx, sb, d.force); err != nil {
			return deleteError(name, err)
		}
		fmt.Fprintf(a.Stdout, "deleted %s\n", name)
		return nil
	case !a.gone(name, err):
		return sandboxError(err)
	}
	b, berr := a.branch(ctx, name)
	if errors.Is(berr, branch.ErrNone) {
		return unknownName(ctx, a, name, err)
	}
	if berr != nil {
		return berr
	}
	return a.deleteBranch(ctx, m, b, d)
}

func newDeleteCmd(a *App) *cobra.Command {
	all, d := false, deletion{}
	cmd := &cobra.Command{
		Use: "delete SANDBOX... | --all", Short: "Delete sandboxes with their branches", ValidArgsFunction: a.CompleteBranches,
		Long: `Removes sandboxes as 'down' does, and their branches, both here and as
sandbox/NAME in your repository. What was merged stays. A branch with commits
that exist nowhere else is deleted only with --force, or after a question at a
terminal.`,
		Example: "  sandbox-agent delete dev\n  sandbox-agent delete --all",
		Args: each(func(_ *cobra.Command, args []string) error {
			if (len(args) > 0) != all {
				return nil
			}
			return fault.New(workorder.ExitUsage, errors.New("name the sandboxes, or give --all"), "`sandbox-agent list --all` lists them")
		}, checkSandbox),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			m, err := a.sandboxes()
			if err != nil {
				return err
			}
			defer m.Close()
			var errs []error
			for _, name := range args {
				errs = append(errs, a.deleteNamed(ctx, m, name, d))
			}
			if all {
				list, err := a.listed(ctx, true)
				errs = append(errs, err)
				for _, i := range list {
					errs = append(errs, a.deleteBranch(ctx, m, i.Branch, d))
				}
			}
			return errors.Join(errs...)
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "delete all sandboxes that have a branch")
	cmd.Flags().BoolVar(&d.force, "force", false, "discard commits that exist nowhere else and files that cannot be saved")
	return cmd
}
