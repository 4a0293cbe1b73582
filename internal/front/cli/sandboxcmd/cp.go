package sandboxcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

type cpOptions struct{ json bool }

// NewCmdCp makes the command.
func NewCmdCp(f *cmdutil.Factory) *cobra.Command {
	o := &cpOptions{}
	cmd := &cobra.Command{
		Use: "cp SANDBOX:SRC DST | SRC SANDBOX:DST", Short: "Copy files between this machine and a sandbox",
		Long: `Copies a file, or a directory with everything in it, into or out of a standalone
sandbox. A path in the sandbox is absolute, or relative to the sandbox's
directory; the sandbox's user reads and writes there. A stopped sandbox starts.

The destination is as with cp -r and docker cp:

  DST is a directory     copied into it, with the name of SRC; with SRC/. all
                         that is in SRC
  DST is a file          replaced by a file; an error for a directory
  DST does not exist     created with that name, in an existing directory
  DST/ does not exist    created as a directory; an error for a file
  -                      a tar archive: written to standard output, or
                         unpacked in the directory DST

Permissions are kept, less this machine's umask; owner and times are not. Links
in a directory stay links; SRC and DST themselves are followed. A file appears
complete or not at all. Devices, pipes, sockets, and links that lead outside of
what is copied are skipped. At most 1,000,000 files and 64 GiB are copied out of
a sandbox; a tar on standard output has no limit. Begin a local name that has a
colon with a directory: ./a:b.`,
		Example: "  sandbox-agent cp main.go dev:/src/\n" +
			"  sandbox-agent cp ./project/. dev:/work\n" +
			"  sandbox-agent cp dev:/work/report.html .\n" +
			"  sandbox-agent cp dev:dist - | tar t",
		Args:              cmdutil.Args(2, 2, "a source and a target", cpHint),
		ValidArgsFunction: completeSides(f),
		RunE:              func(cmd *cobra.Command, args []string) error { return o.do(cmd.Context(), f, args[0], args[1]) },
	}
	cmd.Flags().BoolVar(&o.json, "json", false, "print JSON with the number of files and bytes")
	return cmd
}

const (
	cpHint = "for example: sandbox-agent cp dev:/work/report.html ."
	// stdio is a tar on a standard stream.
	stdio = "-"
)

// side is one end of a copy.
type side struct {
	sandbox string // "" is this machine
	path    string
}

// sideOf reads SANDBOX:PATH, or a path of this machine.
func sideOf(arg string) side {
	name, path, ok := strings.Cut(arg, ":")
	if !ok || strings.Contains(name, "/") || name == "." {
		return side{path: arg}
	}
	path = cmp.Or(path, ".")
	return side{name, path}
}

// sidesOf reads both ends, of which one is in a sandbox.
func sidesOf(from, to string) (src, dst side, err error) {
	src, dst = sideOf(from), sideOf(to)
	name := src.sandbox + dst.sandbox
	switch {
	case from == "" || to == "":
		err = exiterr.New(workorder.ExitUsage, errors.New("a path is empty"), cpHint)
	case src.sandbox != "" && dst.sandbox != "":
		err = exiterr.New(workorder.ExitUsage, fmt.Errorf("%s and %s are both in a sandbox: copy out of one, then into the other", from, to),
			"a file of this machine with a colon in its name is ./NAME")
	case strings.HasPrefix(from, ":") || strings.HasPrefix(to, ":"):
		err = exiterr.New(workorder.ExitUsage, errors.New("a sandbox's name is empty"),
			"a file of this machine with a colon in its name is ./NAME")
	case name == "":
		err = exiterr.New(workorder.ExitUsage, fmt.Errorf("neither %s nor %s is in a sandbox", from, to), cpHint)
	case !sandbox.ValidName(name):
		err = exiterr.New(workorder.ExitUsage, fmt.Errorf("%.80q is no name of a sandbox", name),
			"`sandbox-agent ps` lists sandboxes; a file of this machine with a colon in its name is ./NAME")
	}
	return src, dst, err
}

func (o *cpOptions) do(ctx context.Context, f *cmdutil.Factory, from, to string) error {
	src, dst, err := sidesOf(from, to)
	if err != nil {
		return err
	}
	tarred := src == side{path: stdio} || dst == side{path: stdio}
	if tarred && o.json {
		return exiterr.New(workorder.ExitUsage, errors.New("--json counts files, and - is a tar as it comes"), "")
	}
	if dst.path == stdio && dst.sandbox == "" && cmdutil.IsTerminal(f.Stdout) {
		return exiterr.New(workorder.ExitUsage, errors.New("a tar is not for a terminal"), "for example: sandbox-agent cp dev:dist - | tar t")
	}
	sb, done, err := f.Sandboxes().Get(ctx, src.sandbox+dst.sandbox)
	if err != nil {
		return err
	}
	defer done()
	files := sb.Files()
	var sum sandbox.CopyResult
	switch {
	case tarred && src.sandbox != "":
		err = files.TarOut(ctx, src.path, f.Stdout)
	case tarred:
		err = files.TarIn(ctx, dst.path, f.Stdin)
	case src.sandbox != "":
		sum, err = files.CopyOut(ctx, src.path, dst.path)
	default:
		sum, err = files.CopyIn(ctx, src.path, dst.path)
	}
	if dst.sandbox != "" {
		f.Sandboxes().Save(ctx, sb, sandbox.CommandRecord{Subject: "Copy files to " + dst.path})
	}
	if ctx.Err() != nil {
		return cmdutil.Interrupted(ctx)
	}
	if sum.Skipped > 0 {
		fmt.Fprintln(f.Stderr, "warning: "+leftOut(sum))
	}
	if err != nil || tarred {
		return copyError(err)
	}
	if o.json {
		return f.JSON(sum)
	}
	fmt.Fprintf(f.Stdout, "%d files, %s\n", sum.Files, cmdutil.Size(sum.Bytes))
	return nil
}

func leftOut(sum sandbox.CopyResult) string {
	s := fmt.Sprintf("left out: %d devices, pipes, sockets, or links that lead out of the copy", sum.Skipped)
	if sum.FirstSkipped != "" {
		s += ", among them " + text.Clean(sum.FirstSkipped)
	}
	return s
}

// copyError gives an error of a copy its exit code and hint.
func copyError(err error) error {
	_, ours := errors.AsType[*fs.PathError](err)
	switch {
	case errors.Is(err, sandbox.ErrExists), errors.Is(err, sandbox.ErrFileType):
		return exiterr.New(workorder.ExitGeneral, err, "`sandbox-agent cp --help` tells where a copy goes")
	case errors.Is(err, sandbox.ErrPermission) && ours:
		return exiterr.New(workorder.ExitGeneral, err, "")
	case errors.Is(err, sandbox.ErrPermission):
		return exiterr.New(workorder.ExitGeneral, err, "in "+
			"a sandbox files are read and written by its user: `sandbox-agent up --user` says who that is")
	case errors.Is(err, sandbox.ErrTooLarge):
		return exiterr.New(workorder.ExitGeneral, err, "`sandbox-agent cp SANDBOX:SRC -` has no bound")
	case errors.Is(err, sandbox.ErrNotFound):
		return exiterr.New(workorder.ExitNotFound, err, "")
	}
	return app.SandboxError(err)
}

// completeSides completes sandboxes' names, with a colon, beside files of this machine.
func completeSides(f *cmdutil.Factory) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 1 || strings.Contains(begun, ":") {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		names, _ := f.CompleteSandboxes(false)(cmd, nil, begun)
		for i := range names {
			names[i] += ":"
		}
		return names, cobra.ShellCompDirectiveNoSpace
	}
}
