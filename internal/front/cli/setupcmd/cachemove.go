package setupcmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

func newCacheExportCmd(f *cmdutil.Factory) *cobra.Command {
	o := &cacheOptions{}
	cmd := &cobra.Command{
		Use: "export FILE", Short: "Write setup caches and their images to an archive",
		Long: `Writes outcomes of setup, and the images that they were made with, to an archive
for 'cache import' on another machine; - is standard output. The default is all
projects. Secrets are not in it: a setup that wrote one is not cached.`,
		Example: "  sandbox-agent cache export setup.tar.gz --project my-app\n" +
			"  sandbox-agent cache export - | ssh build sandbox-agent cache import -",
		Args: cmdutil.Args(1, 1, "one FILE", "give the archive to write; - writes to standard output"),
		RunE: func(cmd *cobra.Command, args []string) error { return o.export(cmd.Context(), f, args[0]) },
	}
	flags := cmd.Flags()
	flags.StringVarP(&o.project, "project", "p", "", "project name, or path of a project file, to export only its repository's")
	flags.StringVar(&o.projectsDir, "projects-dir", "", "another directory with project files")
	flags.StringVar(&o.repo, "repo", "", "directory or URL of the repository to export")
	cmd.MarkFlagsMutuallyExclusive("project", "repo")
	o.cacheFlags(f, cmd)
	return cmd
}

func newCacheImportCmd(f *cmdutil.Factory) *cobra.Command {
	o := &cacheOptions{}
	cmd := &cobra.Command{
		Use: "import FILE", Short: "Add the setup caches and images of an archive",
		Long: `Adds the setup caches of an archive made by 'cache export', and the images that
they need; - is standard input. Later tasks run programs from it: import only
archives that you trust as you trust your own setup commands. Entries that are
there already stay as they are.`,
		Example: "  sandbox-agent cache import setup.tar.gz\n  sandbox-agent cache import setup.tar.gz --repo .",
		Args:    cmdutil.Args(1, 1, "one FILE", importHint),
		RunE:    func(cmd *cobra.Command, args []string) error { return o.importArchive(cmd.Context(), f, args[0]) },
	}
	flags := cmd.Flags()
	flags.StringVarP(&o.project, "project", "p", "", "project name, or path of a project file, whose repository gets the setup caches")
	flags.StringVar(&o.projectsDir, "projects-dir", "", "another directory with project files")
	flags.StringVar(&o.repo, "repo", "", "directory or URL of the repository that gets the setup caches (default: the exported one)")
	cmd.MarkFlagsMutuallyExclusive("project", "repo")
	o.cacheFlags(f, cmd)
	return cmd
}

const importHint = "give an archive made by `sandbox-agent cache export FILE`; - reads standard input"

func (o *cacheOptions) export(ctx context.Context, f *cmdutil.Factory, path string) error {
	if path == "-" && (o.json || cmdutil.IsTerminal(f.Stdout)) {
		return exiterr.New(workorder.ExitUsage, errors.New("the archive goes to standard output"),
			"redirect it to a file or a pipe and leave out --json, or name a file")
	}
	repo, err := f.Machine().CacheRepo(ctx, o.project, o.projectsDir, o.repo, &o.CacheBox)
	if err != nil {
		return err
	}
	show, done := o.view(f)
	var r *app.CacheMove
	var size int64
	write := func(w io.Writer) (err error) {
		c := &countingWriter{w: w}
		r, err = f.Machine().ExportCache(ctx, o.CacheBox, repo, c, show)
		size = c.n
		return err
	}
	if path == "-" {
		err = write(f.Stdout)
	} else {
		err = writeFile(path, write)
	}
	done()
	if r == nil {
		return err
	}
	if err != nil {
		o.refused(f, r)
		return err
	}
	return o.moved(f, r, fmt.Sprintf("exported to %s (%s)", path, cmdutil.Size(size)), path == "-")
}

func (o *cacheOptions) importArchive(ctx context.Context, f *cmdutil.Factory, path string) error {
	archive, closed, err := openArchive(ctx, f, path, importHint)
	if err != nil {
		return err
	}
	defer closed()
	repo, err := f.Machine().CacheRepo(ctx, o.project, o.projectsDir, o.repo, &o.CacheBox)
	if err != nil {
		return err
	}
	show, done := o.view(f)
	r, err := f.Machine().ImportCache(ctx, o.CacheBox, repo, archive, show)
	done()
	if app.ExitCode(err) == workorder.ExitInvalid {
		err = exiterr.New(workorder.ExitInvalid, fmt.Errorf("import %s: %w", path, err), importHint)
	}
	if r != nil {
		err = errors.Join(err, o.moved(f, r, "in the cache", false))
	}
	return err
}

// moved prints the result of an export or import, to standard error if the archive is on standard output.
func (o *cacheOptions) moved(f *cmdutil.Factory, r *app.CacheMove, done string, toStderr bool) error {
	if o.json {
		return f.JSON(r)
	}
	out := f.Stdout
	if toStderr {
		out = f.Stderr
	}
	for _, s := range r.Snapshots {
		fmt.Fprintf(out, "%s  %s  %s\n", text.Clean(s.ID), cmdutil.Size(s.Bytes), text.Clean(s.Project))
	}
	o.refused(f, r)
	fmt.Fprintf(f.Stderr, "%d setup caches and %d images are %s\n", len(r.Snapshots), len(r.Images), done)
	return nil
}

func (o *cacheOptions) refused(f *cmdutil.Factory, r *app.CacheMove) {
	for _, s := range r.Refused {
		fmt.Fprintf(f.Stderr, "refused %s of %s: %s\n", text.Clean(s.ID), text.Clean(s.Project), text.Clean(s.Problem))
	}
}

// writeFile lets write fill a file, which replaces an existing one only when it is whole.
func writeFile(path string, write func(io.Writer) error) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return app.Usagef("write the archive: %w", err)
	}
	err = errors.Join(write(tmp), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		err = errors.Join(err, os.Remove(tmp.Name()))
	}
	return err
}

type countingWriter struct {
	w io.Writer
	n int64
}

func (c *countingWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}
