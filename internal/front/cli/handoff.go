package cli

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/internal/host/branch"
	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/internal/host/handoff"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/outcome"
	"github.com/sandbox-agent/sandbox-agent/internal/host/localrepo"
	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// meant is the task that the arguments name, collected if it has ended; without one it is the last that was begun here.
func (a *App) meant(ctx context.Context, args []string) (*store.Record, error) {
	id := ""
	if len(args) > 0 {
		id = args[0]
	} else {
		st, err := a.Store()
		if err != nil {
			return nil, err
		}
		list, err := st.List()
		if err != nil {
			return nil, err
		}
		last, err := a.last(ctx, list)
		if err != nil {
			return nil, err
		}
		id = last.TaskID
	}
	_, rec, err := a.Tasks().Find(ctx, id)
	if err != nil {
		return nil, err
	}
	return a.Tasks().Collect(ctx, rec)
}

// last is the newest task of the repository that the user is in, and outside of any the newest of all: who says `apply` in one
// repository does not mean the files of another.
func (a *App) last(ctx context.Context, newest []*store.Record) (*store.Record, error) {
	if len(newest) == 0 {
		return nil, fault.New(workorder.ExitNotFound, errors.New("there are no tasks yet"),
			"start one with: sandbox-agent \"fix the flaky test\"")
	}
	dir, err := a.CurrentDir()
	if err != nil {
		return nil, err
	}
	top := localrepo.RepoRoot(dir)
	if top == "" {
		return newest[0], nil
	}
	for _, rec := range newest {
		if handoff.Of(ctx, cmp.Or(rec.LocalRepo, rec.Repo), top) {
			return rec, nil
		}
	}
	of := cmp.Or(newest[0].LocalRepo, newest[0].Repo, "no repository")
	return nil, fault.New(workorder.ExitNotFound, fmt.Errorf("no task on this machine is of the repository %s", top),
		fmt.Sprintf("name a task: the last one is %s, of %s; `sandbox-agent ps --all` lists them", newest[0].TaskID, of))
}

// place is the repository of this machine that has the work of a task, or of a sandbox.
func (a *App) place(ctx context.Context, args []string) (*handoff.Place, error) {
	if len(args) == 1 {
		if b, err := a.Branches().Find(ctx, args[0]); err == nil {
			return a.Branches().Handoff(ctx, b)
		} else if !errors.Is(err, branch.ErrNone) {
			return nil, err
		}
	}
	rec, err := a.meant(ctx, args)
	if err != nil {
		return nil, err
	}
	res, err := outcome.ReadResult(rec)
	if err != nil {
		return nil, err
	}
	dir, err := a.CurrentDir()
	if err != nil {
		return nil, err
	}
	repo := cmp.Or(rec.LocalRepo, rec.Repo)
	if top := localrepo.RepoRoot(dir); filepath.IsAbs(repo) && top != "" && localrepo.Same(ctx, top, repo) { // another work tree of it
		repo = top
	}
	return handoff.Open(ctx, handoff.Work{Of: "task " + rec.TaskID, Branch: res.Branch, Repo: repo, Base: res.BaseSHA, Head: res.HeadSHA}, dir)
}

// placeHere is place, of a repository that the user is in.
func (a *App) placeHere(ctx context.Context, verb string, args []string) (*handoff.Place, error) {
	p, err := a.place(ctx, args)
	if err == nil {
		err = a.Branches().CheckInTree(ctx, verb, p.Of[strings.LastIndexByte(p.Of, ' ')+1:], p.Path())
	}
	return p, err
}

// placeToCheckOut is placeHere, of a sandbox once what no command has committed is.
func (a *App) placeToCheckOut(ctx context.Context, args []string) (*handoff.Place, error) {
	const verb = "checkout"
	if len(args) == 1 {
		if b, err := a.Branches().Find(ctx, args[0]); err == nil {
			return a.Branches().SavedHandoff(ctx, verb, b, false)
		} else if !errors.Is(err, branch.ErrNone) {
			return nil, err
		}
	}
	return a.placeHere(ctx, verb, args)
}

func newDiffCmd(a *App) *cobra.Command {
	stat, names := false, false
	cmd := &cobra.Command{
		Use: "diff [TASK | SANDBOX]", Short: "Show the changes of a task or sandbox", Args: cmdutil.LastOrOne, ValidArgsFunction: a.CompleteWork,
		Long: `Shows what the branch of a task or sandbox changed since its base, as git diff
does. The default is the last task of the repository in the current directory,
and outside of any repository the last task. The repository is the task's own
where that is on this machine; otherwise run it in your clone.`,
		Example: "  sandbox-agent diff\n  sandbox-agent diff A1B2 --stat\n  sandbox-agent diff A1B2 > work.patch",
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := a.place(cmd.Context(), args)
			if err != nil {
				return err
			}
			options := []string{"--binary"}
			switch {
			case stat:
				options = []string{"--stat"}
			case names:
				options = []string{"--name-only"}
			}
			if !cmdutil.IsTerminal(a.Stdout) {
				return p.Diff(cmd.Context(), a.Stdout, options...)
			}
			w := &diffWriter{w: a.Stdout, color: a.Color(a.Stdout)}
			return errors.Join(p.Diff(cmd.Context(), w, options...), w.flush())
		},
	}
	cmd.Flags().BoolVar(&stat, "stat", false, "print only the number of changed lines per file")
	defer cmd.MarkFlagsMutuallyExclusive("stat", "name-only")
	cmd.Flags().BoolVar(&names, "name-only", false, "print only the names of changed files")
	return cmd
}

// diffWriter makes a diff safe for a terminal, which would obey what the agent wrote, and colours its lines.
type diffWriter struct {
	w     io.Writer
	color bool
	part  []byte // of a line
}

func (d *diffWriter) Write(b []byte) (int, error) {
	end := bytes.LastIndexByte(b, '\n') + 1
	if end == 0 { // of a line that may be as long as a file
		d.part = append(d.part, b...)
		return len(b), nil
	}
	lines := string(append(d.part, b[:end]...))
	d.part = bytes.Clone(b[end:])
	out := bufio.NewWriter(d.w)
	for line := range strings.Lines(lines) {
		d.line(out, strings.TrimSuffix(line, "\n"))
	}
	return len(b), out.Flush()
}

func (d *diffWriter) line(out io.Writer, s string) {
	color := ""
	switch {
	case !d.color:
	case strings.HasPrefix(s, "+"):
		color = "\x1b[32m"
	case strings.HasPrefix(s, "-"):
		color = "\x1b[31m"
	case strings.HasPrefix(s, "@@"):
		color = "\x1b[36m"
	case strings.HasPrefix(s, "diff "):
		color = "\x1b[1m"
	}
	end := ""
	if color != "" {
		end = "\x1b[0m"
	}
	fmt.Fprintln(out, color+text.Clean(s)+end)
}

// flush writes a last line without an end.
func (d *diffWriter) flush() error {
	if len(d.part) == 0 {
		return nil
	}
	_, err := d.Write([]byte{'\n'})
	return err
}

// commitID is the full ID of a commit.
var commitID = regexp.MustCompile(`^([0-9a-f]{40}|[0-9a-f]{64})$`)

// checkBranchName returns a usage error for the name of a local branch that git refuses, or that means something else as well: names below sandbox/ are those of
// sandboxes' own branches.
func (a *App) checkBranchName(ctx context.Context, name string) error {
	const hint = "for example: -b try"
	switch {
	case !workorder.ValidRefName(name) || name == "HEAD":
		return fault.New(workorder.ExitUsage, fmt.Errorf("--branch: %.80q is not a valid name of a branch", name), hint)
	case commitID.MatchString(name) || strings.HasPrefix(name, "refs/") || strings.HasPrefix(name, "sandbox/"):
		return fault.New(workorder.ExitUsage, fmt.Errorf("--branch: %.80q already means something else in git or for this program", name), hint)
	}
	top, err := a.RepoRoot()
	if err != nil || top == "" {
		return err
	}
	remote, err := localrepo.Git(top).Resolve(ctx, "refs/remotes/"+name)
	if err == nil && remote != "" {
		err = fault.New(workorder.ExitUsage, fmt.Errorf("--branch: %.80q is the name of a remote's branch", name), hint)
	}
	return err
}

func newCheckoutCmd(a *App) *cobra.Command {
	name, asJSON := "", false
	cmd := &cobra.Command{
		Use: "checkout [TASK | SANDBOX]", Short: "Check out the branch of a task or sandbox", Args: cmdutil.LastOrOne,
		ValidArgsFunction: a.CompleteWork,
		Long: `Switches the working tree to the task's branch, or to a local branch at the last
commit of a sandbox, which a second checkout updates. It never overwrites
uncommitted changes, ignored files or your own commits on that branch. The
default is the last task of the repository in the current directory. Working
trees that the current directory is not in are never changed.`,
		Example: "  sandbox-agent checkout A1B2\n  sandbox-agent checkout dev -b try",
		RunE: func(cmd *cobra.Command, args []string) error {
			if name != "" {
				if err := a.checkBranchName(cmd.Context(), name); err != nil {
					return err
				}
			}
			p, err := a.placeToCheckOut(cmd.Context(), args)
			if err != nil {
				return err
			}
			p.Branch = cmp.Or(name, p.Branch)
			before, err := p.Checkout(cmd.Context())
			if err != nil {
				return err
			}
			if asJSON {
				return a.JSON(handedOver{Path: p.Path(), Branch: p.Branch, Before: before, Head: p.Head, Changed: before != p.Branch})
			}
			fmt.Fprintf(a.Stdout, "%s is at %s\n", text.Clean(p.Path()), text.Clean(p.Branch))
			if before != p.Branch {
				if commitID.MatchString(before) { // no branch was checked out
					before = "--detach " + before
				}
				fmt.Fprintf(a.Stdout, "back: git -C %s switch %s\n", text.Clean(p.Path()), text.Clean(before))
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().StringVarP(&name, "branch", "b", "", "name of the local branch (default: the task's, or sandbox-NAME)")
	return cmd
}

func newApplyCmd(a *App) *cobra.Command {
	remove, asJSON := false, false
	cmd := &cobra.Command{
		Use: "apply [TASK | SANDBOX]", Short: "Apply the changes of a task or sandbox, uncommitted", Args: cmdutil.LastOrOne,
		ValidArgsFunction: a.CompleteWork,
		Long: `Merges the changes of a task or sandbox into the working tree and the index, and
commits nothing. It changes nothing at all where the changes conflict with what
is checked out, or where a changed file has uncommitted changes. The default is
the last task of the repository in the current directory. Working trees outside
of the current directory are never changed.`,
		Example: "  sandbox-agent apply A1B2\n  git diff --cached",
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			var b *branch.Branch
			var p *handoff.Place
			var err error
			if len(args) == 1 {
				b, err = a.Branches().Find(ctx, args[0])
			}
			switch {
			case b != nil && err == nil:
				p, err = a.Branches().SavedHandoff(ctx, "apply", b, remove)
			case err == nil || errors.Is(err, branch.ErrNone):
				p, err = a.placeHere(ctx, "apply", args)
			}
			if err != nil {
				return err
			}
			files, err := p.Apply(ctx)
			if err != nil {
				return err
			}
			if asJSON {
				err = a.JSON(handedOver{Path: p.Path(), Head: p.Head, Changed: len(files) > 0, Files: files})
			} else {
				for _, f := range files {
					fmt.Fprintln(a.Stdout, text.Clean(f))
				}
			}
			if err != nil {
				return err
			}
			fmt.Fprintf(a.Stderr, "%d files changed in %s, none committed\n", len(files), text.Clean(p.Path()))
			if remove && b != nil {
				head, err := a.Branches().DeleteMerged(ctx, b, p.Head)
				return a.deleted(b.Sandbox, head, asJSON, err)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVarP(&remove, "delete", "d", false, "delete the sandbox and its branch afterwards")
	return cmd
}
