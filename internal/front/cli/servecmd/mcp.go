package servecmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/internal/front/mcpserver"
	"github.com/sandbox-agent/sandbox-agent/internal/host/loopback"
	"github.com/sandbox-agent/sandbox-agent/internal/version"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
	"github.com/sandbox-agent/sandbox-agent/sandbox/code"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// warmPlaces is how many places are made ahead for each environment that an agent has used: it waits for one call at a time.
const warmPlaces = 1

// placeWait is how long a call waits where clients have all the places that there may be.
const placeWait = 30 * time.Second

const (
	mcpAddress       = "127.0.0.1:7071" // of --listen without a value: clients keep it in their settings
	mcpToken         = "mcp.token"      // in the state directory
	mcpTokenVariable = "SANDBOX_AGENT_MCP_TOKEN"
)

// The toolsets.
const (
	toolsRun  = "run"
	toolsTask = "task"
	toolsEnv  = "env"
	toolsAll  = "all"
)

type mcpOptions struct {
	tools     []string
	listen    string
	stdio     bool
	listens   bool
	tokenFile string
	runtime   string
	kind      sandbox.Runtime
	single    bool
}

// offers reports whether a toolset is served.
func (o *mcpOptions) offers(tools string) bool {
	return slices.Contains(o.tools, tools) || slices.Contains(o.tools, toolsAll)
}

// NewCmdMCP makes the command.
func NewCmdMCP(f *cmdutil.Factory) *cobra.Command {
	o := &mcpOptions{}
	cmd := &cobra.Command{
		Use: "mcp", Short: "Serve tools to agents over the Model Context Protocol",
		Long: `Serves tools to one client over standard input and output until it closes them.
With --listen it serves any number of clients over HTTP, at /mcp of a port of
the loopback. --tools selects the tools:

  run   run code as 'run' does, also in sessions, which end with the client
  task  create tasks; read their state and results
  env   create sandboxes of the current directory's repository, work in them,
        and log, diff, check out and merge their branches; with --single a
        client has one at a time
  all   all of them

Each HTTP request has to have a token: that of mcp.token in the state directory,
which is created when it is missing, of --token-file, or of the variable
SANDBOX_AGENT_MCP_TOKEN.

Standard output has protocol messages only. The log is sandbox-agent-mcp.log in
the directory for temporary files, or SANDBOX_AGENT_MCP_LOG. docs/mcp.md has the
configuration of common agents.`,
		Example: "  claude mcp add sandbox -- sandbox-agent mcp\n" +
			"  claude mcp add sandbox -- sandbox-agent mcp --tools run,task\n" +
			"  claude mcp add environments -- sandbox-agent mcp --tools env --single\n" +
			"  sandbox-agent mcp --listen 127.0.0.1:7071",
		Args: cmdutil.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.listens = cmd.Flags().Changed("listen")
			return o.do(cmd.Context(), f)
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&o.tools, "tools", []string{toolsRun}, "tools to serve: "+strings.Join(toolsets(), ", "))
	flags.BoolVar(&o.stdio, "stdio", false, "serve on standard input and output (the default)")
	flags.StringVar(&o.listen, "listen", "", "serve over HTTP at this loopback address; empty is "+mcpAddress)
	flags.StringVar(&o.tokenFile, "token-file", "", "file with the token of --listen (default: mcp.token in the state directory)")
	flags.BoolVar(&o.single, "single", false, "with the tools env: one sandbox per client, which need not be named")
	flags.StringVar(&o.runtime, "runtime", "", "with the tools env: runtime box (the default), container or jail")
	// They can only fail for flags that do not exist.
	_ = cmd.RegisterFlagCompletionFunc("runtime", cobra.FixedCompletions(envKinds(), cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("tools", cmdutil.CompleteList(toolsets()...))
	_ = flags.SetAnnotation("listen", cmdutil.MayBeEmpty, []string{"true"})
	_ = cmd.RegisterFlagCompletionFunc("listen", cobra.FixedCompletions([]string{mcpAddress}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func toolsets() []string { return []string{toolsRun, toolsTask, toolsEnv, toolsAll} }

// envKinds can have a clone, and isolate it.
func envKinds() []string {
	return []string{string(sandbox.RuntimeBox), string(sandbox.RuntimeContainer), string(sandbox.RuntimeJail)}
}

func (o *mcpOptions) check() error {
	var errs []error
	if o.kind = sandbox.Runtime(o.runtime); o.runtime != "" && !slices.Contains(envKinds(), o.runtime) {
		errs = append(errs, fmt.Errorf("--runtime %q: use one of %s", o.runtime, strings.Join(envKinds(), ", ")))
	}
	if (o.runtime != "" || o.single) && !o.offers(toolsEnv) {
		errs = append(errs, errors.New("--single and --runtime are for --tools env"))
	}
	for _, t := range o.tools {
		if !slices.Contains(toolsets(), t) {
			errs = append(errs, fmt.Errorf("--tools %q: use some of %s", t, strings.Join(toolsets(), ", ")))
		}
	}
	if len(o.tools) == 0 {
		errs = append(errs, fmt.Errorf("--tools: use some of %s", strings.Join(toolsets(), ", ")))
	}
	if o.stdio && o.listens {
		errs = append(errs, errors.New("give --stdio or --listen, not both"))
	}
	if o.listens {
		o.listen = cmp.Or(o.listen, mcpAddress)
		errs = append(errs, loopback.Check(o.listen))
	} else if o.tokenFile != "" {
		errs = append(errs, errors.New("--token-file is for --listen"))
	}
	return exiterr.New(workorder.ExitUsage, errors.Join(errs...), "")
}

func (o *mcpOptions) do(ctx context.Context, f *cmdutil.Factory) (err error) {
	if err := o.check(); err != nil {
		return err
	}
	level := slog.LevelInfo
	if f.Debug {
		level = slog.LevelDebug
	}
	log, done, err := f.Code().ServerLog(level)
	if err != nil {
		return err
	}
	defer done()
	options, err := f.Code().Options()
	if err != nil {
		return err
	}
	options.Warm, options.Wait = warmPlaces, placeWait
	known := f.Code().Served(log)
	if o.offers(toolsRun) { // clients do not wait for it
		defer known.Build(ctx, f.Code())()
	}
	options.Presets = known.Presets
	r, closeRunner, err := f.Code().Open(options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeRunner(ctx)) }()
	serve, err := o.way(ctx, f)
	if err != nil {
		return err
	}
	s := mcpserver.New(o.offer(f, r, log))
	var asked <-chan struct{}
	if f.Reloads != nil {
		var stop func()
		asked, stop = f.Reloads()
		defer stop()
	}
	defer known.KeepUp(ctx, asked, s.Changed)()
	return serve(ctx, s)
}

func (o *mcpOptions) offer(f *cmdutil.Factory, r *code.Runner, log *slog.Logger) mcpserver.Options {
	all := mcpserver.Options{Version: version.String(), Log: log}
	if o.offers(toolsRun) {
		all.Runner = r
	}
	if o.offers(toolsTask) {
		all.Tasks = mcpserver.NewTasks(&f.Env, log)
	}
	if o.offers(toolsEnv) {
		all.Sandboxes, all.Single = mcpserver.NewSandboxes(&f.Env, log, o.kind), o.single
	}
	return all
}

func (o *mcpOptions) way(ctx context.Context, f *cmdutil.Factory) (func(context.Context, *mcpserver.Server) error, error) {
	if !o.listens {
		return func(ctx context.Context, s *mcpserver.Server) error {
			return s.Run(ctx, mcpserver.Stdio(f.Stdin, f.Stdout))
		}, nil
	}
	token, where, err := o.token(f)
	if err != nil {
		return nil, err
	}
	l, err := loopback.Listen(ctx, o.listen)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(f.Stderr, "the server is at http://%s%s; clients need the token in %s\n", l.Addr(), mcpserver.Path, where)
	return func(ctx context.Context, s *mcpserver.Server) error { return s.Serve(ctx, l, token) }, nil
}

// token is that of --listen, and where it is.
func (o *mcpOptions) token(f *cmdutil.Factory) (token, where string, err error) {
	if token := f.Getenv(mcpTokenVariable); token != "" && o.tokenFile == "" {
		return token, mcpTokenVariable, exiterr.New(workorder.ExitUsage, loopback.CheckToken(token), "set "+mcpTokenVariable+
			" to another, or unset it")
	}
	where = o.tokenFile
	if where == "" {
		st, err := f.Store()
		if err != nil {
			return "", "", err
		}
		if err := os.MkdirAll(st.Dir(), 0o700); err != nil {
			return "", "", fmt.Errorf("create the state directory: %w", err)
		}
		where = filepath.Join(st.Dir(), mcpToken)
	}
	token, err = loopback.KeptToken(where)
	return token, where, err
}
