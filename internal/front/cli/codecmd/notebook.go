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
	"github.com/sandbox-agent/sandbox-agent/internal/host/statedir"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
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
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				return nil
			}
			return exiterr.New(workorder.ExitUsage, fmt.Errorf("%s needs one notebook, got %d", cmd.CommandPath(), len(args)),
				"for example: sandbox-agent notebook run report.ipynb")
		},
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
	in, done, err := o.place(ctx, f)
	if err != nil {
		return err
	}
	defer done()
	s, err := in.interpreter(ctx, f, nb)
	if err != nil {
		if err = runError(ctx, err); ctx.Err() == nil && cmdutil.ExitCode(err) == workorder.ExitGeneral { // what is to run it does not start
			err = exiterr.New(workorder.ExitInvalid, err, "")
		}
		return err
	}
	if o.session == "" {
		defer func() { _ = s.Close(context.WithoutCancel(ctx)) }() // of a sandbox that is gone there is nothing to end
	}
	doc := notebookRun{
		Notebook: path, Out: cmp.Or(o.out, path), Sandbox: in.sandbox, Env: o.env, Driver: string(s.Driver()),
		Session: o.session,
	}
	var rerr error
	doc.Report, rerr = nb.Run(ctx, s, notebook.Options{Timeout: o.timeout, AllowErrors: o.allowErrors})
	b, err := nb.Encode()
	if err == nil {
		err = writeNotebook(f.Stdout, doc.Out, b, mode)
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

// writeNotebook writes one, at once or not at all.
func writeNotebook(stdout io.Writer, path string, b []byte, mode fs.FileMode) error {
	if path == "-" {
		_, err := stdout.Write(b)
		return err
	}
	if to, err := filepath.EvalSymlinks(path); err == nil {
		path = to // what a link leads to is written, and the link stays
	}
	return statedir.WriteFile(path, b, mode)
}

// notebookPlace is where a notebook runs.
type notebookPlace struct {
	sandbox.Executor
	session sandbox.SessionOptions
	sandbox string // its name, where it has one
	what    string // of it, for people
	// open opens the session of an environment that is kept; nil where there is none.
	open func(ctx context.Context) (*sandbox.Session, error)
}

// place is the sandbox that was named, or a fresh one.
func (o *notebookOptions) place(ctx context.Context, f *cmdutil.Factory) (in *notebookPlace, done func(), err error) {
	in = &notebookPlace{session: sandbox.SessionOptions{ID: o.session}}
	if o.env != "" {
		return o.environment(ctx, f, in)
	}
	if o.sandbox != "" {
		sb, done, err := f.Sandboxes().Get(ctx, o.sandbox)
		if err != nil {
			return nil, nil, err
		}
		in.Executor, in.sandbox, in.what = sb, sb.Name(), "sandbox "+sb.Name()
		return in, done, nil
	}
	m, err := f.Manager(false)
	if err != nil {
		return nil, nil, err
	}
	sb, err := m.Create(ctx, sandbox.Spec{Runtime: sandbox.RuntimeJail, Lifetime: sandbox.LifetimeEphemeral, Network: sandbox.NetworkNone})
	if err != nil {
		return nil, nil, errors.Join(app.SandboxError(err), m.Close())
	}
	in.Executor, in.sandbox, in.what = sb, sb.Name(), "sandbox "+sb.Name()
	return in, func() { _, _ = sb.Remove(context.WithoutCancel(ctx), sandbox.RemoveOptions{}), m.Close() }, nil
}

// environment is a fresh place of an environment, or the place of a session.
func (o *notebookOptions) environment(ctx context.Context, f *cmdutil.Factory, in *notebookPlace) (*notebookPlace, func(), error) {
	all, name, err := f.Code().Preset(o.env)
	if err != nil {
		return nil, nil, err
	}
	r, closeRunner, err := f.Code().Runner(all)
	if err != nil {
		return nil, nil, err
	}
	done := func() { _ = closeRunner(ctx) } // what is left of it ends without signs of life
	in.what = "environment " + name
	if o.session != "" {
		in.open = func(ctx context.Context) (*sandbox.Session, error) { return r.Interpreter(ctx, name, o.session) }
		return in, done, nil
	}
	room, p, leave, err := r.Acquire(ctx, name)
	if err != nil {
		done()
		return nil, nil, runError(ctx, err)
	}
	in.Executor, in.session.Env, in.session.Driver, in.session.Kernel = room, p.Env, p.Driver, p.Kernel
	return in, func() { _ = leave(); done() }, nil
}

// interpreter is the session that can run the notebook's language.
func (in *notebookPlace) interpreter(ctx context.Context, f *cmdutil.Factory, nb *notebook.Notebook) (*sandbox.Session, error) {
	if in.open != nil {
		return in.open(ctx)
	}
	so := in.session
	if so.Driver == sandbox.DriverJupyter || so.Driver == sandbox.DriverIPython { // the environment says so
		return in.OpenSession(ctx, so)
	}
	so.Driver = sandbox.DriverIPython
	if !nb.Python() {
		so.Driver = sandbox.DriverJupyter
		if so.Kernel, _ = nb.Kernel(); so.Kernel == "" {
			_, language := nb.Kernel()
			return nil, exiterr.New(workorder.ExitInvalid, fmt.Errorf("the notebook is in %s and names no kernel", text.Clean(language)),
				"its metadata has a kernelspec with a name once Jupyter has run it")
		}
		return in.OpenSession(ctx, so)
	}
	const look = "import importlib.util as u, sys; sys.exit(u.find_spec('IPython') is None)"
	r, err := in.Run(ctx, sandbox.Command{Argv: []string{"python3", "-c", look}, Timeout: time.Minute})
	if err != nil {
		return nil, err
	}
	if r.ExitCode != 0 {
		so.Driver = sandbox.DriverPython
		fmt.Fprintf(f.Stderr, "note: %s has no IPython: the cells run in Python, without magics and pictures\n", in.what)
	}
	return in.OpenSession(ctx, so)
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
		return cmdutil.Exit(cmdutil.ExitTimedOut)
	}
	return cmdutil.Exit(1)
}
