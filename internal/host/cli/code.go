package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/sandbox-agent/sandbox-agent/internal/diag"
	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/internal/host/statedir"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
	"github.com/sandbox-agent/sandbox-agent/sandbox/code"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

type codeOptions struct {
	q       code.Request
	env     []string // variables; until the previous release, a preset
	file    string
	memory  string
	runtime string
	json    bool
}

func newRunCmd(a *App) *cobra.Command {
	o := &codeOptions{}
	var rest []string // the code, if it is an argument
	cmd := &cobra.Command{
		Use: "run PRESET [CODE | -f FILE]", Short: "Run code in a fresh sandbox, or in a session",
		Long: `Runs code and ends with its exit code; 124 means that it reached --timeout. Each
call has a fresh sandbox: an empty directory /workspace, no network, no files of
this machine, 512 MB of memory, one CPU and 512 processes. It is removed
afterwards. It is a jail where bubblewrap is available, otherwise a container of
a small image, which is built when it is missing.

With --session the code runs in an interpreter that keeps its state between
calls, and has the variables of its first call. A session ends after five
minutes without use, or after an hour.

PRESET is node, python, shell, another one of 'env list', or the path of an
artifact.`,
		Example: `  sandbox-agent run python 'print(6 * 7)'
  sandbox-agent run node -f script.js
  sandbox-agent run -e NAME=world shell 'echo hello $NAME'
  sandbox-agent run python --session s 'x = 1'
  sandbox-agent run python --session s 'x + 1'`,
		Args: func(_ *cobra.Command, args []string) error {
			if o.q.Env, o.q.Variables = presetIn(o.env); o.q.Env == "" && len(args) > 0 {
				o.q.Env, args = args[0], args[1:]
			} else if len(args) > 1 {
				return fault.New(workorder.ExitUsage, fmt.Errorf("--env %q is not NAME=value", o.q.Env), runExample)
			}
			switch rest = args; {
			case o.q.Env == "":
				return fault.New(workorder.ExitUsage, errors.New("no preset given"), runExample+"; list presets with: sandbox-agent env list")
			case len(rest) > 1, len(rest) == 1 && o.file != "":
				return fault.New(workorder.ExitUsage, errors.New("give the code once: as one argument, with -f, or on standard input"), runExample)
			}
			return nil
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return a.completeEnvironments(cmd, args, begun)
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			text, err := o.code(a, rest)
			if err != nil {
				return err
			}
			return o.do(cmd.Context(), a, text)
		},
	}
	f := cmd.Flags()
	f.StringArrayVarP(&o.env, "env", "e", nil, "set a variable: `NAME=value` (repeatable)")
	f.StringVarP(&o.file, "file", "f", "", "read the code from a file; - is standard input")
	f.StringVar(&o.q.Session, "session", "", "run in the session of this name")
	durationVar(f, &o.q.Timeout, "timeout", 0, "end the code and its processes after this long (default "+code.DefaultTimeout.String()+")")
	f.StringVar(&o.memory, "memory", "", "memory limit, such as 512m or 2g (default 512m)")
	f.StringVar(&o.runtime, "runtime", "", "runtime: jail, container or box (default: the first available)")
	f.BoolVar(&o.json, "json", false, "print JSON with output, exit code and duration")
	// It can only fail for a flag that does not exist.
	_ = cmd.RegisterFlagCompletionFunc("runtime", cobra.FixedCompletions([]string{string(sandbox.RuntimeJail), string(sandbox.RuntimeContainer), string(sandbox.RuntimeBox)}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

const runExample = "for example: sandbox-agent run python 'print(6 * 7)'"

var isVariable = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*=`)

// presetIn separates variables from a preset, which --env named until the previous release.
func presetIn(env []string) (preset string, variables []string) {
	for _, v := range env {
		if isVariable.MatchString(v) {
			variables = append(variables, v)
		} else {
			preset = v
		}
	}
	return preset, variables
}

func (o *codeOptions) code(a *App, args []string) (string, error) {
	if len(args) == 1 && args[0] != "-" {
		return args[0], nil
	}
	in := a.Stdin
	if o.file != "" && o.file != "-" {
		f, err := os.Open(o.file)
		if err != nil {
			return "", fault.New(workorder.ExitUsage, fmt.Errorf("read the code: %w", err), "")
		}
		defer f.Close()
		in = f
	} else if t, ok := a.Stdin.(*os.File); a.Stdin == nil || ok && term.IsTerminal(int(t.Fd())) {
		return "", fault.New(workorder.ExitUsage, errors.New("no code given"), runExample)
	}
	b, err := io.ReadAll(io.LimitReader(in, code.MaxCode+1))
	if err != nil {
		return "", fmt.Errorf("read the code: %w", err)
	}
	if len(b) > code.MaxCode {
		return "", usage("the code has more than %d bytes", code.MaxCode)
	}
	return string(b), nil
}

// Variables that say when sessions end, in seconds.
const (
	sessionIdle = "SESSION_IDLE_TIMEOUT"
	sessionLife = "SESSION_MAX_LIFETIME"
)

// codeOptions are how code runs here.
func (a *App) codeOptions() (code.Options, error) {
	o := code.Options{Image: a.smallImage, Getenv: a.Getenv}
	var errs []error
	for name, to := range map[string]*time.Duration{sessionIdle: &o.Idle, sessionLife: &o.Life} {
		text := a.Getenv(name)
		if text == "" {
			continue
		}
		n, err := strconv.ParseUint(text, 10, 31)
		if err != nil || n == 0 {
			errs = append(errs, fmt.Errorf("%s %q: use seconds, such as 300", name, text))
			continue
		}
		*to = time.Duration(n) * time.Second
	}
	return o, fault.New(workorder.ExitUsage, errors.Join(errs...), "")
}

// codeRunner runs code for one command, in one of some environments.
func (a *App) codeRunner(all func() []code.Environment) (r *code.Runner, done func(context.Context) error, err error) {
	o, err := a.codeOptions()
	if err != nil {
		return nil, nil, err
	}
	o.Kept, o.Environments = true, all
	if dir, err := statedir.DefaultDir(a.Getenv); err == nil {
		o.Noted = filepath.Join(dir, "sessions")
	}
	return a.openRunner(o)
}

// abandonedTime bounds cleaning up after a signal.
const abandonedTime = 5 * time.Second

// openRunner opens a runner with what its sandboxes are made by.
func (a *App) openRunner(o code.Options) (r *code.Runner, done func(context.Context) error, err error) {
	m, err := a.sandboxes()
	if err != nil {
		return nil, nil, err
	}
	// Artifacts of others are programs of this machine that the user has chosen.
	if o.Hosts, err = a.OpenSandboxes(sandbox.Options{Getenv: a.Getenv, Log: a.Log(), AllowHost: true}); err != nil {
		return nil, nil, errors.Join(err, m.Close())
	}
	r = code.NewRunner(m, o)
	return r, func(ctx context.Context) error {
		clean := context.WithoutCancel(ctx)
		if ctx.Err() != nil { // the user waits for the end; sandboxes of sessions end by themselves
			var cancel func()
			clean, cancel = context.WithTimeout(clean, abandonedTime)
			defer cancel()
		}
		return errors.Join(r.Close(clean), m.Close(), o.Hosts.Close())
	}, nil
}

// checkSession returns a usage error for a name that no session can have.
func checkSession(name string) error {
	return fault.New(workorder.ExitUsage, code.CheckSession(name), "for example: sandbox-agent run python --session s 'x = 1'")
}

func (o *codeOptions) do(ctx context.Context, a *App, text string) (err error) {
	var errs []error
	o.q.Code = text
	if o.q.MemoryBytes, err = parseMemory(o.memory); err == nil && o.q.MemoryBytes < 0 {
		err = errors.New("--memory: a call has a limit")
	}
	errs = append(errs, err, negative(o.q.Timeout))
	if o.q.Session != "" {
		errs = append(errs, code.CheckSession(o.q.Session))
	}
	if o.runtime != "" {
		o.q.Backend, err = sandbox.ParseRuntime(o.runtime)
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return fault.New(workorder.ExitUsage, err, "")
	}
	if !o.json {
		o.q.Stdout, o.q.Stderr = a.Stdout, a.Stderr
	}
	all, name, err := a.known(o.q.Env)
	if err != nil {
		return err
	}
	o.q.Env = name
	r, done, err := a.codeRunner(all)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, done(ctx)) }()
	res, err := r.Run(ctx, o.q)
	if err != nil {
		return runError(ctx, err)
	}
	switch {
	case o.json:
		err = a.json(res)
	case res.Value != "":
		_, err = fmt.Fprintln(a.Stdout, res.Value)
	}
	if err != nil {
		return err
	}
	if !o.json {
		a.TellEnd(sandbox.RunResult{TimedOut: res.TimedOut, OutOfMemory: res.OutOfMemory, Signal: res.Signal}, res.Limit, "`--memory` gives it more")
		if res.Lost {
			fmt.Fprintf(a.Stderr, "note: %s\n", res.LostNote())
		}
		if res.Ended && res.Session != "" {
			fmt.Fprintf(a.Stderr, "note: session %s has ended: the next call restarts it\n", res.Session)
		}
	}
	return exitOf(sandbox.RunResult{ExitCode: res.ExitCode, TimedOut: res.TimedOut})
}

// runError gives an error of package code its exit code and hint.
func runError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return left(ctx)
	}
	if e, ok := errors.AsType[*code.UnknownError](err); ok {
		return notFound(e, didYouMean(diag.Nearest(e.Name, e.Available), "list presets with: sandbox-agent env list"))
	}
	if e, ok := errors.AsType[*code.BoundError](err); ok {
		return fault.New(workorder.ExitUsage, e, "take another session, or end it with `sandbox-agent session rm`")
	}
	if errors.Is(err, code.ErrNoSessions) {
		return fault.New(workorder.ExitInvalid, err, "")
	}
	if errors.Is(err, sandbox.ErrLost) {
		return unknownEnd(ctx, err)
	}
	return sandboxError(err)
}

func newSessionCmd(a *App) *cobra.Command {
	cmd := &cobra.Command{Use: "session", Short: "Manage sessions of 'run'", Args: noArgs}
	cmd.AddCommand(newSessionListCmd(a), newSessionRmCmd(a))
	return cmd
}

func newSessionListCmd(a *App) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List sessions", Args: noArgs, Example: "  sandbox-agent session list",
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			r, done, err := a.codeRunner(nil)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, done(cmd.Context())) }()
			all, err := r.Sessions(cmd.Context())
			if err != nil && !errors.Is(err, sandbox.ErrUnavailable) { // without an engine there are those in jails
				return sandboxError(err)
			}
			if asJSON {
				return a.json(all)
			}
			w := tabwriter.NewWriter(a.Stdout, 0, 4, 2, ' ', 0)
			fmt.Fprintln(w, "SESSION\tENVIRONMENT\tRUNTIME\tAGE\tSANDBOX")
			for _, s := range all {
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", s.ID, s.Env, s.Runtime, age(time.Since(s.Started)), s.Sandbox)
			}
			return w.Flush()
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func newSessionRmCmd(a *App) *cobra.Command {
	return &cobra.Command{
		Use: "rm SESSION...", Aliases: []string{"reset"}, Short: "End sessions with their state", Example: "  sandbox-agent session rm s",
		Args: each(func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return nil
			}
			return fault.New(workorder.ExitUsage, errors.New("name a session"), "`sandbox-agent session list` lists them")
		}, checkSession),
		ValidArgsFunction: func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
			r, done, err := a.codeRunner(nil)
			if err != nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			all, _ := r.Sessions(cmd.Context()) // what cannot be asked has none to complete
			_ = done(cmd.Context())
			var ids []string
			for _, s := range all {
				ids = append(ids, s.ID)
			}
			return ids, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			r, done, err := a.codeRunner(nil)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, done(cmd.Context())) }()
			var errs []error
			for _, id := range args {
				errs = append(errs, r.EndSession(cmd.Context(), id))
			}
			err = errors.Join(errs...)
			if errors.Is(err, sandbox.ErrNotFound) {
				return notFound(err, "list sessions with: sandbox-agent session list")
			}
			return sandboxError(err)
		},
	}
}
