// Package codecmd has the commands that run code: run, session, env, artifact and notebook.
package codecmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
	"github.com/sandbox-agent/sandbox-agent/sandbox/code"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

type codeOptions struct {
	q       code.Request
	env     []string // variables; until the previous release, a preset
	file    string
	memory  string
	allow   cmdutil.RuleList
	runtime string
	// fallback says what runs the code where no isolation is available.
	fallback string
	json     bool
	parse    bool
}

// NewCmdRun makes the command.
func NewCmdRun(f *cmdutil.Factory) *cobra.Command {
	o := &codeOptions{}
	var rest []string // the code, if it is an argument
	cmd := &cobra.Command{
		Use: "run PRESET [CODE | -f FILE]", Short: "Run code in a fresh sandbox, or in a session",
		Long: `Runs code and ends with its exit code; 124 means that it reached --timeout. Each
call has a fresh sandbox: an empty directory /workspace, no network, no files of
this machine, 512 MB of memory, one CPU and 512 processes. It is removed
afterwards. It is a jail where bubblewrap is available, otherwise a container of
a small image, which is built when it is missing. With neither, it is an error,
unless --fallback host or the setting lets the code run on this machine.

With --session the code runs in an interpreter that keeps its state between
calls, and has the variables of its first call. A session ends after five
minutes without use, or after an hour.

SANDBOX_AGENT_PROJECT_DIR, or PROJECT_DIR, names a directory that the code sees
read-only at /project.

PRESET is node, python, shell, another one of 'preset list', or the path of an
artifact.`,
		Example: `  sandbox-agent run python 'print(6 * 7)'
  sandbox-agent run node -f script.js
  sandbox-agent run -e NAME=world shell 'echo hello $NAME'
  sandbox-agent run --allow pypi.org shell 'curl https://pypi.org/simple/six/'
  sandbox-agent run python --session s 'x = 1'
  sandbox-agent run python --session s 'x + 1'`,
		Args: func(_ *cobra.Command, args []string) error {
			if o.q.Preset, o.q.Env = presetIn(o.env); o.q.Preset == "" && len(args) > 0 {
				o.q.Preset, args = args[0], args[1:]
			} else if len(args) > 1 {
				return exiterr.New(workorder.ExitUsage, fmt.Errorf("--env %q is not NAME=value", o.q.Preset), runExample)
			}
			switch rest = args; {
			case o.q.Preset == "":
				return exiterr.New(workorder.ExitUsage, errors.New("no preset given"), runExample+"; list presets with: sandbox-agent preset list")
			case len(rest) > 1, len(rest) == 1 && o.file != "":
				return exiterr.New(workorder.ExitUsage, errors.New("give the code once: as one argument, with -f, or on standard input"), runExample)
			}
			return nil
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return completePresets(f)(cmd, args, begun)
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			text, err := o.code(f, rest)
			if err != nil {
				return err
			}
			return o.do(cmd.Context(), f, text)
		},
	}
	flags := cmd.Flags()
	flags.StringArrayVarP(&o.env, "env", "e", nil, "set a variable: `NAME=value` (repeatable)")
	flags.StringVarP(&o.file, "file", "f", "", "read the code from a file; - is standard input")
	flags.StringVar(&o.q.Session, "session", "", "run in the session of this name")
	cmdutil.DurationVar(flags, &o.q.Timeout, "timeout", 0, "end the code and its processes after this long (default "+
		code.DefaultTimeout.String()+")")
	flags.StringVar(&o.memory, "memory", "", "memory limit, such as 512m or 2g (default 512m)")
	flags.StringVar(&o.runtime, "runtime", "", "runtime: jail, container or box (default: the first available)")
	cmdutil.FallbackVar(cmd, &o.fallback)
	flags.Var(&o.allow, "allow", "let the code reach only the hosts of a `RULE`, by a proxy: HOST[:PORT] (repeatable)")
	flags.BoolVar(&o.parse, "parse-json", false, "with --json: add the last line of standard output, if it is JSON, as 'json'")
	flags.BoolVar(&o.json, "json", false, "print JSON with output, exit code and duration")
	// It can only fail for a flag that does not exist.
	_ = cmd.RegisterFlagCompletionFunc("runtime", cobra.FixedCompletions([]string{
		string(sandbox.RuntimeJail),
		string(sandbox.RuntimeContainer), string(sandbox.RuntimeBox),
	}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

const runExample = "for example: sandbox-agent run python 'print(6 * 7)'"

var isVariable = lazyregexp.New(`^[A-Za-z_][A-Za-z0-9_]*=`)

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

func (o *codeOptions) code(f *cmdutil.Factory, args []string) (string, error) {
	if len(args) == 1 && args[0] != "-" {
		return args[0], nil
	}
	in := f.Stdin
	if o.file != "" && o.file != "-" {
		file, err := os.Open(o.file)
		if err != nil {
			return "", exiterr.New(workorder.ExitUsage, fmt.Errorf("read the code: %w", err), "")
		}
		defer file.Close()
		in = file
	} else if t, ok := f.Stdin.(*os.File); f.Stdin == nil || ok && term.IsTerminal(int(t.Fd())) {
		return "", exiterr.New(workorder.ExitUsage, errors.New("no code given"), runExample)
	}
	b, err := io.ReadAll(io.LimitReader(in, code.MaxCode+1))
	if err != nil {
		return "", fmt.Errorf("read the code: %w", err)
	}
	if len(b) > code.MaxCode {
		return "", app.Usagef("the code has more than %d bytes", code.MaxCode)
	}
	return string(b), nil
}

// checkSession returns a usage error for a name that no session can have.
func checkSession(name string) error {
	return exiterr.New(workorder.ExitUsage, code.CheckSession(name), "for example: sandbox-agent run python --session s 'x = 1'")
}

func (o *codeOptions) do(ctx context.Context, f *cmdutil.Factory, source string) (err error) {
	var errs []error
	o.q.Code = source
	if o.q.MemoryBytes, err = cmdutil.ParseMemory(o.memory); err == nil && o.q.MemoryBytes < 0 {
		err = errors.New("--memory: a call has a limit")
	}
	errs = append(errs, err, cmdutil.CheckTimeout(o.q.Timeout))
	o.q.Allow, err = o.allow.Rules()
	errs = append(errs, err)
	if o.q.Session != "" {
		errs = append(errs, code.CheckSession(o.q.Session))
	}
	if o.runtime != "" {
		o.q.Runtime, err = sandbox.ParseRuntime(o.runtime)
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return exiterr.New(workorder.ExitUsage, err, "")
	}
	if err := app.CheckFallback(&f.Env, o.fallback, o.runtime); err != nil {
		return err
	}
	if o.parse && !o.json {
		return app.Usagef("--parse-json needs --json")
	}
	if !o.json {
		o.q.Stdout, o.q.Stderr = f.Stdout, f.CommandStderr()
	}
	all, name, err := f.Code().Preset(o.q.Preset)
	if err != nil {
		return err
	}
	o.q.Preset = name
	r, done, err := f.Code().Runner(all, o.fallback)
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
		var last json.RawMessage
		if o.parse {
			last = text.LastJSON([]byte(res.Stdout))
		}
		err = f.JSON(struct {
			code.Result
			JSON json.RawMessage `json:"json,omitempty"`
		}{res, last})
	case res.Value != "":
		_, err = fmt.Fprintln(f.Stdout, res.Value)
	}
	if err != nil {
		return err
	}
	if !o.json {
		f.TellEnd(res.ExitStatus, res.Limit, "`--memory` gives it more")
		if res.Lost {
			fmt.Fprintf(f.Stderr, "note: %s\n", res.LostNote())
		}
		if res.Ended && res.Session != "" {
			fmt.Fprintf(f.Stderr, "note: session %s has ended: the next call restarts it\n", res.Session)
		}
	}
	return cmdutil.ExitOf(res.ExitStatus)
}

// runError gives an error of package code its exit code and hint.
func runError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return cmdutil.Interrupted(ctx)
	}
	return app.CodeError(err)
}

// NewCmdSession makes the command.
func NewCmdSession(f *cmdutil.Factory) *cobra.Command {
	cmd := &cobra.Command{Use: "session", Short: "Manage sessions of 'run'", Args: cmdutil.NoArgs}
	cmd.AddCommand(newSessionListCmd(f), newSessionRmCmd(f))
	return cmd
}

func newSessionListCmd(f *cmdutil.Factory) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List sessions", Args: cmdutil.NoArgs, Example: "  sandbox-agent session list",
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			r, done, err := f.Code().Runner(nil, "")
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, done(cmd.Context())) }()
			all, err := r.Sessions(cmd.Context())
			if err != nil && !errors.Is(err, sandbox.ErrUnavailable) { // without an engine there are those in jails
				return app.SandboxError(err)
			}
			if asJSON {
				return f.JSON(all)
			}
			w := tabwriter.NewWriter(f.Stdout, 0, 4, 2, ' ', 0)
			fmt.Fprintln(w, "SESSION\tENVIRONMENT\tRUNTIME\tAGE\tSANDBOX")
			for _, s := range all {
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", s.ID, s.Preset, s.Runtime, text.Age(time.Since(s.Started)), s.Sandbox)
			}
			return w.Flush()
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func newSessionRmCmd(f *cmdutil.Factory) *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use: "rm SESSION...", Aliases: []string{"reset"}, Short: "End sessions with their state", Example: "  sandbox-agent session rm s",
		Args: cmdutil.Each(cmdutil.Args(1, cmdutil.Any, "the name of a session", "`sandbox-agent session list` lists them"), checkSession),
		ValidArgsFunction: func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
			r, done, err := f.Code().Runner(nil, "")
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
			r, done, err := f.Code().Runner(nil, "")
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, done(cmd.Context())) }()
			var errs []error
			for _, id := range args {
				err := r.EndSession(cmd.Context(), id)
				if err == nil && asJSON {
					err = f.JSON(map[string]string{"ended": id})
				}
				errs = append(errs, err)
			}
			err = errors.Join(errs...)
			if errors.Is(err, sandbox.ErrNotFound) {
				return app.NotFound(err, "list sessions with: sandbox-agent session list")
			}
			return app.SandboxError(err)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print each ended session as JSON")
	return cmd
}
