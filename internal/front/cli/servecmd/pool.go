// Package servecmd has the commands that serve other programs.
package servecmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/internal/front/poolserver"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
	"github.com/sandbox-agent/sandbox-agent/sandbox/pool"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// NewCmdPool makes the command.
func NewCmdPool(f *cmdutil.Factory) *cobra.Command {
	socket := ""
	cmd := &cobra.Command{
		Use: "pool", Short: "Lend clean sandboxes within milliseconds",
		Long: `Lends sandboxes of the pool that 'pool serve' keeps. A lease is ready within
milliseconds. It has a container's image and limits, and its own files,
processes, shared memory and loopback. Nothing of it is left for the next one; a
sandbox that cannot be cleaned is removed.`,
		Args: cmdutil.NoArgs,
	}
	cmd.AddCommand(newPoolServeCmd(f), newPoolStatsCmd(f, &socket), newPoolListCmd(f, &socket), newPoolAcquireCmd(f, &socket),
		newPoolExecCmd(f, &socket), newPoolReleaseCmd(f, &socket), newPoolDestroyCmd(f, &socket), newPoolDestroyAllCmd(f, &socket))
	for _, c := range cmd.Commands() {
		if c.Name() != "serve" {
			c.Flags().StringVar(&socket, "socket", "", "path of the pool's socket (default: in the state directory)")
		}
	}
	return cmd
}

// dial returns a client of the pool that is served with this state directory, or at a socket.
func dial(f *cmdutil.Factory, socket string) (*poolserver.Client, error) {
	if socket == "" {
		st, err := f.Store()
		if err != nil {
			return nil, err
		}
		socket = filepath.Join(st.Dir(), poolSocket)
	}
	return poolserver.Dial(socket), nil
}

// poolError gives an error of a pool's server its exit code and hint.
func poolError(err error) error {
	if errors.Is(err, poolserver.ErrNotServing) {
		return exiterr.New(workorder.ExitBox, err, "`sandbox-agent pool serve` serves one")
	}
	e, ok := errors.AsType[*poolserver.Error](err)
	if !ok {
		return err
	}
	switch e.Kind {
	case poolserver.KindNotFound:
		return app.NotFound(e, "`sandbox-agent pool list` lists leases, `docker images` the engine's images")
	case poolserver.KindLimit:
		return exiterr.New(workorder.ExitGeneral, e, "give "+
			"one back with `sandbox-agent pool release`, or serve the pool with a larger --max or with --wait")
	case poolserver.KindInvalid, poolserver.KindUnsupported:
		return exiterr.New(workorder.ExitInvalid, e, "")
	case poolserver.KindUnavailable:
		return exiterr.New(workorder.ExitBox, e, "")
	case poolserver.KindFailed:
	}
	return e
}

// poolVerb is a command that asks the pool for its numbers.
func poolVerb(
	f *cmdutil.Factory, socket *string, cmd *cobra.Command,
	do func(ctx context.Context, c *poolserver.Client, args []string) (pool.Stats, error),
) *cobra.Command {
	var asJSON bool
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := dial(f, *socket)
		if err != nil {
			return err
		}
		s, err := do(cmd.Context(), c, args)
		if err != nil {
			return poolError(err)
		}
		if asJSON {
			return f.JSON(s)
		}
		never := ""
		if s.Reuse == pool.ReuseNever {
			never = ", each lent once: " + text.Clean(s.Reason)
		}
		_, err = fmt.Fprintf(f.Stdout, "idle %d, busy %d, total %d of %d%s\n", s.Idle, s.Busy, s.Total, s.Max, never)
		return err
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func newPoolStatsCmd(f *cmdutil.Factory, socket *string) *cobra.Command {
	return poolVerb(f, socket, &cobra.Command{
		Use: "stats", Short: "Count the pool's sandboxes", Args: cmdutil.NoArgs, Example: "  sandbox-agent pool stats --json",
	}, func(ctx context.Context, c *poolserver.Client, _ []string) (pool.Stats, error) { return c.Stats(ctx) })
}

func newPoolReleaseCmd(f *cmdutil.Factory, socket *string) *cobra.Command {
	return poolVerb(f, socket, &cobra.Command{
		Use: "release LEASE", Short: "Give a lease back", Args: oneLease, ValidArgsFunction: completeLeases(f, socket),
		Example: "  sandbox-agent pool release L-a1b2c3",
	}, func(ctx context.Context, c *poolserver.Client, args []string) (pool.Stats, error) {
		return c.End(ctx, args[0], false)
	})
}

func newPoolDestroyCmd(f *cmdutil.Factory, socket *string) *cobra.Command {
	return poolVerb(f, socket, &cobra.Command{
		Use: "destroy LEASE", Short: "End a lease and remove its sandbox", Args: oneLease,
		Long: "Ends a lease and removes its sandbox. It is no error if the lease has ended.", ValidArgsFunction: completeLeases(f, socket),
		Example: "  sandbox-agent pool destroy L-a1b2c3",
	}, func(ctx context.Context, c *poolserver.Client, args []string) (pool.Stats, error) {
		return c.End(ctx, args[0], true)
	})
}

func newPoolDestroyAllCmd(f *cmdutil.Factory, socket *string) *cobra.Command {
	return poolVerb(f, socket, &cobra.Command{
		Use: "destroy-all", Short: "Remove all sandboxes of the pool, lent and idle", Args: cmdutil.NoArgs,
		Example: "  sandbox-agent pool destroy-all",
	}, func(ctx context.Context, c *poolserver.Client, _ []string) (pool.Stats, error) {
		return c.DestroyAll(ctx)
	})
}

func newPoolListCmd(f *cmdutil.Factory, socket *string) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List leases", Args: cmdutil.NoArgs, Example: "  sandbox-agent pool list",
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := dial(f, *socket)
			if err != nil {
				return err
			}
			all, err := c.List(cmd.Context())
			if err != nil {
				return poolError(err)
			}
			if asJSON {
				return f.JSON(all)
			}
			w := tabwriter.NewWriter(f.Stdout, 0, 4, 2, ' ', 0)
			fmt.Fprintln(w, "LEASE\tNAME\tSTATUS\tAGE\tSANDBOX")
			for _, l := range all {
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", l.ID, cmdutil.OrDash(text.Clean(l.Name)), l.Status, text.Age(time.Since(l.Since)), l.Sandbox)
			}
			return w.Flush()
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// oneLease accepts exactly one lease.
func oneLease(cmd *cobra.Command, args []string) error {
	const hint = "`sandbox-agent pool list` lists leases"
	if err := cmdutil.Args(1, 1, "one lease", hint)(cmd, args); err != nil {
		return err
	}
	if !poolserver.ValidLease(args[0]) {
		return exiterr.New(workorder.ExitUsage, fmt.Errorf("%.80q is not a lease's ID", args[0]), hint)
	}
	return nil
}

func completeLeases(f *cmdutil.Factory, socket *string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		c, err := dial(f, *socket)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		all, err := c.List(cmd.Context())
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var ids []string
		for _, l := range all {
			ids = append(ids, l.ID)
		}
		return ids, cobra.ShellCompDirectiveNoFileComp
	}
}

func newPoolAcquireCmd(f *cmdutil.Factory, socket *string) *cobra.Command {
	var r poolserver.Request
	var trust, kind, reuse, memory, cpus, pids string
	var mounts []string
	var allow cmdutil.RuleList
	var timeout time.Duration
	var asJSON bool
	cmd := &cobra.Command{
		Use: "acquire", Short: "Acquire a lease and print its id",
		Example: "  lease=$(sandbox-agent pool acquire)\n" +
			"  sandbox-agent pool acquire --trust trusted --memory 1g\n" +
			"  sandbox-agent pool acquire --allow api.example.com\n" +
			"  sandbox-agent pool acquire --image python:3.13 --reuse never",
		Args: cmdutil.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r.Access, r.Reuse = pool.Access(trust), pool.Reuse(reuse)
			errs := make([]error, 3)
			errs = append(errs, cmdutil.CheckTimeout(timeout))
			r.TimeoutSeconds = timeout.Seconds()
			r.Allow, errs[0] = allow.Rules()
			r.Limits, errs[1] = cmdutil.ParseLimits(memory, cpus, pids)
			if kind != "" {
				r.Runtime, errs[2] = sandbox.ParseRuntime(kind)
			}
			for _, t := range mounts {
				m, err := f.ParseMount(t)
				r.Mounts, errs = append(r.Mounts, m), append(errs, err)
			}
			if err := errors.Join(errs...); err != nil {
				return exiterr.New(workorder.ExitUsage, err, "")
			}
			c, err := dial(f, *socket)
			if err != nil {
				return err
			}
			l, err := c.Acquire(cmd.Context(), r)
			if err != nil {
				return poolError(err)
			}
			if asJSON {
				return f.JSON(l)
			}
			_, err = fmt.Fprintln(f.Stdout, l.ID)
			return err
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&trust, "trust", "", "sandboxed: no network (the default); trusted: with network")
	flags.Var(&allow, "allow", "reach only the hosts of a `RULE`, by a proxy: HOST[:PORT] (repeatable)")
	flags.StringVar(&kind, "runtime", "", "runtime: container (the default) or jail")
	flags.StringVar(&reuse, "reuse", "", "clean (the default), or never: a new sandbox for this lease")
	flags.StringVar(&r.Image, "image", "", "image of the engine (default: the pool's)")
	flags.StringVarP(&r.User, "user", "u", "", "another user than root, as uid:gid (default 1000:1000)")
	flags.StringVar(&r.Name, "name", "", "name for 'pool list'")
	flags.StringArrayVarP(&r.Env, "env", "e", nil, "set a variable for all commands: `NAME=value` (repeatable)")
	flags.StringArrayVarP(&mounts, "mount", "v", nil, "directory to mount: `DIR:TARGET[:ro]` (repeatable)")
	cmdutil.DurationVar(flags, &timeout, "timeout", 0, "limit of each command of the lease without its own --timeout (default "+
		pool.DefaultTimeout.String()+")")
	flags.StringVar(&memory, "memory", "", "memory limit, such as 512m or 2g, or none (default 512m)")
	flags.StringVar(&cpus, "cpus", "", "CPU limit, such as 0.5 or 2, or none (default 1)")
	flags.StringVar(&pids, "pids", "", "limit of processes and threads, or none (default 512)")
	flags.BoolVar(&asJSON, "json", false, "print JSON")
	for flag, values := range map[string][]string{
		"trust": {string(pool.AccessNone), string(pool.AccessNetwork)}, "reuse": {string(pool.ReuseClean), string(pool.ReuseNever)},
		"runtime": {string(sandbox.RuntimeContainer), string(sandbox.RuntimeJail)},
	} {
		// It can only fail for a flag that does not exist.
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
	return cmd
}

type poolExecOptions struct {
	exec        poolserver.ExecRequest
	lease, most string
	timeout     time.Duration
	json        bool
}

func newPoolExecCmd(f *cmdutil.Factory, socket *string) *cobra.Command {
	o := &poolExecOptions{}
	cmd := &cobra.Command{
		Use: "exec LEASE COMMAND...", Short: "Run a command in a lease",
		Long: `Runs a command in a lease, in its own directory /workspace, and ends with its
exit code; 124 means that it reached --timeout.`,
		Example: "  sandbox-agent pool exec L-a1b2c3 python3 -c 'print(6 * 7)'\n  echo hi | sandbox-agent pool exec --timeout 5s L-a1b2c3 cat",
		Args: func(cmd *cobra.Command, args []string) (err error) {
			if o.lease, o.exec.Argv, err = cmdutil.NameAndCommand(cmd, args); err != nil {
				return err
			}
			if o.lease != "" && len(o.exec.Argv) > 0 {
				return nil
			}
			return exiterr.New(workorder.ExitUsage, errors.New("name a lease and a command"),
				"for example: sandbox-agent pool exec L-a1b2c3 uname -a")
		},
		ValidArgsFunction: completeLeases(f, socket),
		RunE:              func(cmd *cobra.Command, _ []string) error { return o.do(cmd.Context(), f, *socket) },
	}
	flags := cmd.Flags()
	flags.StringVarP(&o.exec.Dir, "workdir", "w", "", "directory in which the command starts (default /workspace)")
	flags.StringArrayVarP(&o.exec.Env, "env", "e", nil, "set a variable: `NAME=value` (repeatable)")
	cmdutil.DurationVar(flags, &o.timeout, "timeout", 0, "end the command and its processes after this long (default: the lease's, "+
		pool.DefaultTimeout.String()+")")
	flags.StringVar(&o.most, "max-output", "", "limit of each stream, such as 64k (default: none; with --json 1m)")
	flags.BoolVar(&o.exec.ParseJSON, "parse-json", false, "with --json: add the last line of standard output, if it is JSON, as 'json'")
	flags.SetInterspersed(false) // what follows the lease is the command's
	flags.BoolVar(&o.json, "json", false, "print JSON with output, exit code and duration")
	return cmd
}

func (o *poolExecOptions) do(ctx context.Context, f *cmdutil.Factory, socket string) error {
	var err error
	if o.exec.MaxOutput, err = cmdutil.ParseOutput(o.most); err != nil || o.timeout < 0 {
		return exiterr.New(workorder.ExitUsage, errors.Join(err, cmdutil.CheckTimeout(o.timeout)), "")
	}
	if o.exec.ParseJSON && !o.json {
		return app.Usagef("--parse-json needs --json")
	}
	o.exec.TimeoutSeconds = o.timeout.Seconds()
	if in, ok := f.Stdin.(*os.File); f.Stdin != nil && (!ok || !term.IsTerminal(int(in.Fd()))) {
		b, err := io.ReadAll(io.LimitReader(f.Stdin, maxPoolInput+1))
		if err != nil {
			return fmt.Errorf("read standard input: %w", err)
		}
		if len(b) > maxPoolInput {
			return app.Usagef("standard input has more than %d bytes", maxPoolInput)
		}
		o.exec.StdinBytes = b
	}
	c, err := dial(f, socket)
	if err != nil {
		return err
	}
	var r poolserver.Result
	if o.json || o.most != "" {
		r, err = c.Exec(ctx, o.lease, o.exec)
	} else {
		r, err = c.ExecTo(ctx, o.lease, o.exec, f.Stdout, f.CommandStderr())
	}
	if err != nil {
		return poolError(err)
	}
	if o.json {
		err = f.JSON(r)
	} else {
		_, err = f.Stdout.Write(r.Output())
		_, _ = f.CommandStderr().Write(r.Errors())
		f.TellEnd(r.ExitStatus, o.timeout, "`sandbox-agent pool acquire --memory` gives another more")
	}
	if err != nil {
		return err
	}
	return cmdutil.ExitOf(r.ExitStatus)
}

// maxPoolInput bounds the standard input of a command, in bytes: a request has it with all else.
const maxPoolInput = 16 << 20
