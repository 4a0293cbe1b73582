package codecmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/internal/front/notebook"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/sandbox/code"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// notebookTimeout is what a cell has if --timeout does not say.
const notebookTimeout = 10 * time.Minute

// NewCmdNotebook makes the command.
func NewCmdNotebook(f *cmdutil.Factory) *cobra.Command {
	cmd := &cobra.Command{Use: "notebook", Short: "Run notebooks in a sandbox", Args: cmdutil.NoArgs}
	cmd.AddCommand(newNotebookRunCmd(f))
	return cmd
}

type notebookOptions struct {
	sandbox, env, session, out string
	timeout                    time.Duration
	allowErrors, json          bool
}

func newNotebookRunCmd(f *cmdutil.Factory) *cobra.Command {
	o := &notebookOptions{}
	cmd := &cobra.Command{
		Use: "run NOTEBOOK", Short: "Run a notebook's cells and fill in their outputs",
		Long: `Runs the cells of a Jupyter notebook in order and writes their outputs into it,
or with --out into another file. It stops after a cell that failed and ends with
1, or with 124 if that cell reached --timeout. Outputs so far are written.

The cells run in a fresh jail without a network and without files of this
machine; with --preset in a fresh sandbox of a preset, with --sandbox in an
existing one. There --session keeps the state for the next call. Python cells
run in IPython where the sandbox has it. Cells in other languages run in the
kernel that the notebook names, by the sandbox's jupyter_client.`,
		Example: "  sandbox-agent notebook run report.ipynb\n" +
			"  sandbox-agent notebook run report.ipynb --out filled.ipynb --timeout 1m\n" +
			"  sandbox-agent notebook run report.ipynb --preset python\n" +
			"  sandbox-agent notebook run part2.ipynb --sandbox dev --session s",
		Args:              cmdutil.Args(1, 1, "one notebook", "for example: sandbox-agent notebook run report.ipynb"),
		ValidArgsFunction: cobra.FixedCompletions([]string{"ipynb"}, cobra.ShellCompDirectiveFilterFileExt),
		RunE:              func(cmd *cobra.Command, args []string) error { return o.do(cmd.Context(), f, args[0]) },
	}
	flags := cmd.Flags()
	flags.StringVar(&o.sandbox, "sandbox", "", "run in this sandbox (default: a fresh jail)")
	flags.StringVar(&o.env, "preset", "", "run in this preset")
	flags.StringVarP(&o.env, "env", "e", "", "")
	_ = flags.MarkHidden("env") // the name of --preset until the previous release
	flags.StringVar(&o.session, "session", "", "run in this session and keep it; needs --sandbox or --preset")
	flags.StringVarP(&o.out, "out", "o", "", "write to this file; - is standard output (default: the notebook)")
	cmdutil.DurationVar(flags, &o.timeout, "timeout", notebookTimeout, "interrupt a cell after this long; 0 never does")
	flags.BoolVar(&o.allowErrors, "allow-errors", false, "continue after a cell that failed")
	flags.BoolVar(&o.json, "json", false, "print JSON about the cells that ran")
	// They can only fail for flags that do not exist.
	_ = cmd.RegisterFlagCompletionFunc("sandbox", f.CompleteSandboxes(true))
	_ = cmd.RegisterFlagCompletionFunc("preset", completePresets(f))
	_ = cmd.RegisterFlagCompletionFunc("session", completeSessionsOf(f, &o.sandbox))
	return cmd
}

// completeSessionsOf lists the sessions of the sandbox that a flag names.
func completeSessionsOf(f *cmdutil.Factory, name *string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		if *name == "" {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), app.EngineWait)
		defer cancel()
		sb, done, err := f.Sandboxes().Get(ctx, *name)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		defer done()
		all, _ := sb.Sessions(ctx) // of one that does not answer there are none to complete
		ids := make([]string, 0, len(all))
		for _, s := range all {
			ids = append(ids, s.ID)
		}
		return ids, cobra.ShellCompDirectiveNoFileComp
	}
}

// check returns all that is wrong with the options.
func (o *notebookOptions) check() error {
	errs := []error{cmdutil.CheckTimeout(o.timeout)}
	if o.session != "" && o.sandbox == "" && o.env == "" {
		errs = append(errs, errors.New("--session needs --sandbox or --preset: a fresh jail is gone when the notebook has run"))
	}
	if o.env != "" && o.session != "" {
		errs = append(errs, code.CheckSession(o.session))
	}
	if o.env != "" && o.sandbox != "" {
		errs = append(errs, errors.New("--preset and --sandbox exclude each other"))
	}
	if o.out == "-" && o.json {
		errs = append(errs, errors.New("--json and --out - would both print a document"))
	}
	return errors.Join(errs...)
}

// notebookRun is the document of --json.
type notebookRun struct {
	Notebook string `json:"notebook"`
	Out      string `json:"out"`
	Sandbox  string `json:"sandbox,omitempty"`
	Env      string `json:"env,omitempty"`
	Driver   string `json:"driver"`
	Session  string `json:"session,omitempty"`
	notebook.Report
}

func (o *notebookOptions) do(ctx context.Context, f *cmdutil.Factory, path string) error {
	if err := o.check(); err != nil {
		return exiterr.New(workorder.ExitUsage, err, "")
	}
	nb, mode, err := readNotebook(path)
	if err != nil {
		return err
	}
	if err := writable(o.out); err != nil {
		return exiterr.New(workorder.ExitUsage, err, "")
	}
	q := app.NotebookRequest{Sandbox: o.sandbox, Preset: o.env, Session: o.session, Python: nb.Python()}
	q.Kernel, q.Language = nb.Kernel()
	s, done, err := f.Code().OpenNotebook(ctx, q)
	if err != nil && ctx.Err() != nil {
		return cmdutil.Interrupted(ctx)
	}
	if err != nil {
		return err
	}
	defer done()
	doc := notebookRun{
		Notebook: path, Out: cmp.Or(o.out, path), Sandbox: s.Sandbox, Env: o.env, Driver: string(s.Driver()),
		Session: o.session,
	}
	var rerr error
	doc.Report, rerr = nb.Run(ctx, s.Session, notebook.Options{Timeout: o.timeout, AllowErrors: o.allowErrors})
	b, err := nb.Encode()
	switch {
	case err != nil:
	case doc.Out == "-":
		_, err = f.Stdout.Write(b)
	default:
		err = app.WriteNotebook(doc.Out, b, mode)
	}
	if err := errors.Join(app.SandboxError(rerr), err); err != nil {
		return err
	}
	return o.tell(f, doc)
}

// readNotebook reads one, with the mode of its file.
func readNotebook(path string) (*notebook.Notebook, fs.FileMode, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, 0, exiterr.New(workorder.ExitUsage, fmt.Errorf("read the notebook: %w", err), "")
	}
	defer file.Close()
	st, err := file.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = fmt.Errorf("%s is no file", path)
	}
	if err != nil {
		return nil, 0, exiterr.New(workorder.ExitUsage, fmt.Errorf("read the notebook: %w", err), "")
	}
	b, err := io.ReadAll(io.LimitReader(file, notebook.MaxFile+1))
	if err != nil {
		return nil, 0, fmt.Errorf("read the notebook: %w", err)
	}
	nb, err := notebook.Parse(b)
	if err != nil {
		return nil, 0, exiterr.New(workorder.ExitInvalid, fmt.Errorf("%s: %w", path, err), "")
	}
	return nb, st.Mode().Perm(), nil
}

// writable finds an --out that cannot be written before all cells have run.
func writable(out string) error {
	if out == "" || out == "-" {
		return nil
	}
	if st, err := os.Stat(out); err == nil && !st.Mode().IsRegular() {
		return fmt.Errorf("--out %s is no file", out)
	}
	if st, err := os.Stat(filepath.Dir(out)); err != nil {
		return fmt.Errorf("--out: %w", err)
	} else if !st.IsDir() {
		return fmt.Errorf("--out: %s is not a directory", filepath.Dir(out))
	}
	return nil
}

// tell says what became of the notebook, and is its exit code.
func (o *notebookOptions) tell(f *cmdutil.Factory, doc notebookRun) error {
	if o.json {
		if err := f.JSON(doc); err != nil {
			return err
		}
	} else {
		where := ", written to " + doc.Out
		if doc.Out == "-" {
			where = ""
		}
		fmt.Fprintf(f.Stderr, "%d of %d code cells ran%s\n", doc.Ran, doc.Code, where)
		for i, cell := range doc.Failed {
			why := ""
			if i == 0 {
				why = ": " + text.Clean(doc.Error+": "+doc.Message)
			}
			fmt.Fprintf(f.Stderr, "cell %d failed%s\n", cell, why)
		}
	}
	switch {
	case len(doc.Failed) == 0 || o.allowErrors && !doc.Stopped:
		return nil
	case doc.TimedOut:
		return cmdutil.Exit(app.ExitTimedOut)
	}
	return cmdutil.Exit(1)
}
