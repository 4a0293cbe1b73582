// Package workcmd has the commands that show and take over the commits of tasks and sandboxes.
package workcmd

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
)

// NewCmdDiff makes the command.
func NewCmdDiff(f *cmdutil.Factory) *cobra.Command {
	stat, names := false, false
	cmd := &cobra.Command{
		Use: "diff [TASK | SANDBOX]", Short: "Show the changes of a task or sandbox", Args: cmdutil.LastOrOne, ValidArgsFunction: f.CompleteWork,
		Long: `Shows what the branch of a task or sandbox changed since its base, as git diff
does. The repository is the task's own where that is on this machine; otherwise
run it in your clone. Without a name: see 'help names'.`,
		Example: "  sandbox-agent diff\n  sandbox-agent diff A1B2 --stat\n  sandbox-agent diff A1B2 > work.patch",
		RunE: func(cmd *cobra.Command, args []string) error {
			w, err := f.Works().Find(cmd.Context(), args)
			if err != nil {
				return err
			}
			r, err := w.Open(cmd.Context())
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
			if !cmdutil.IsTerminal(f.Stdout) {
				return r.Diff(cmd.Context(), f.Stdout, options...)
			}
			out := &diffWriter{w: f.Stdout, color: f.Color(f.Stdout)}
			return errors.Join(r.Diff(cmd.Context(), out, options...), out.flush())
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

// NewCmdCheckout makes the command.
func NewCmdCheckout(f *cmdutil.Factory) *cobra.Command {
	name, asJSON := "", false
	cmd := &cobra.Command{
		Use: "checkout [TASK | SANDBOX]", Short: "Check out the branch of a task or sandbox", Args: cmdutil.LastOrOne,
		ValidArgsFunction: f.CompleteWork,
		Long: `Switches the working tree to the task's branch, or to a local branch at the last
commit of a sandbox, which a second checkout updates. It never overwrites
uncommitted changes, ignored files or your own commits on that branch. Working
trees that the current directory is not in are never changed. Without a name:
see 'help names'.`,
		Example: "  sandbox-agent checkout A1B2\n  sandbox-agent checkout dev -b try",
		RunE: func(cmd *cobra.Command, args []string) error {
			if name != "" {
				if err := f.Branches().CheckLocalName(cmd.Context(), name); err != nil {
					return err
				}
			}
			w, err := f.Works().Find(cmd.Context(), args)
			if err != nil {
				return err
			}
			r, err := w.OpenHere(cmd.Context(), "checkout", false)
			if err != nil {
				return err
			}
			r.Branch = cmp.Or(name, r.Branch)
			before, err := r.Checkout(cmd.Context())
			if err != nil {
				return err
			}
			if asJSON {
				return f.JSON(handedOver{Path: r.Path(), Branch: r.Branch, Before: before, Head: r.Head, Changed: before != r.Branch})
			}
			fmt.Fprintf(f.Stdout, "%s is at %s\n", text.Clean(r.Path()), text.Clean(r.Branch))
			if before != r.Branch {
				if git.ValidSHA(before) { // no branch was checked out
					before = "--detach " + before
				}
				fmt.Fprintf(f.Stdout, "back: git -C %s switch %s\n", text.Clean(r.Path()), text.Clean(before))
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().StringVarP(&name, "branch", "b", "", "name of the local branch (default: the task's, or sandbox-NAME)")
	return cmd
}

// NewCmdApply makes the command.
func NewCmdApply(f *cmdutil.Factory) *cobra.Command {
	remove, asJSON := false, false
	cmd := &cobra.Command{
		Use: "apply [TASK | SANDBOX]", Short: "Apply the changes of a task or sandbox, uncommitted", Args: cmdutil.LastOrOne,
		ValidArgsFunction: f.CompleteWork,
		Long: `Merges the changes of a task or sandbox into the working tree and the index, and
commits nothing. It changes nothing at all where the changes conflict with what
is checked out, or where a changed file has uncommitted changes. Working trees
outside of the current directory are never changed. Without a name: see
'help names'.`,
		Example: "  sandbox-agent apply A1B2\n  git diff --cached",
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			w, err := f.Works().Find(ctx, args)
			if err != nil {
				return err
			}
			r, err := w.OpenHere(ctx, "apply", remove)
			if err != nil {
				return err
			}
			files, err := r.Apply(ctx)
			if err != nil {
				return err
			}
			if asJSON {
				err = f.JSON(handedOver{Path: r.Path(), Head: r.Head, Changed: len(files) > 0, Files: files})
			} else {
				for _, file := range files {
					fmt.Fprintln(f.Stdout, text.Clean(file))
				}
			}
			if err != nil {
				return err
			}
			fmt.Fprintf(f.Stderr, "%d files changed in %s, none committed\n", len(files), text.Clean(r.Path()))
			if !remove {
				return nil
			}
			head, err := f.Branches().DeleteMerged(ctx, w.Branch, r.Head)
			return f.Deleted(w.Name(), head, asJSON, err)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVarP(&remove, "delete", "d", false, "delete the sandbox and its branch afterwards")
	return cmd
}
