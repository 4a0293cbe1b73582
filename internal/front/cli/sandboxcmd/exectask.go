package sandboxcmd

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// inTask runs the command in a task's running box.
func (o *execOptions) inTask(ctx context.Context, f *cmdutil.Factory, id string, c sandbox.Command) error {
	if o.background || o.timeout > 0 || len(o.expose) > 0 {
		return exiterr.New(workorder.ExitUsage, errors.New("--detach, --timeout and --expose need a standalone sandbox"),
			"in a task's sandbox the command ends with the agent")
	}
	if err := c.Check(); err != nil {
		return app.SandboxError(err)
	}
	argv := c.Argv
	if c.Dir != "" || len(c.Env) > 0 {
		argv = []string{"env"}
		if c.Dir != "" {
			argv = append(argv, "-C", c.Dir)
		}
		argv = append(append(argv, c.Env...), c.Argv...)
	}
	cmd := launch.ShellCommand{Argv: argv, Stdin: c.Stdin, Stdout: f.Stdout, Stderr: f.Stderr, Term: f.Getenv("TERM")}
	if o.json {
		most := cmp.Or(c.MaxOutput, sandbox.DefaultMaxOutput)
		out, errOut := text.NewHeadTail(most), text.NewHeadTail(most)
		cmd.Stdout, cmd.Stderr = out, errOut
		begun := time.Now()
		code, err := execInTask(ctx, f, id, cmd)
		if err != nil {
			return err
		}
		if err := f.JSON(execResult{
			Sandbox: id, Stdout: string(out.Bytes()), Stderr: string(errOut.Bytes()), DurationMS: time.Since(begun).Milliseconds(),
			ExitStatus: sandbox.ExitStatus{ExitCode: code, Truncated: out.Cut() || errOut.Cut()},
		}); err != nil {
			return err
		}
		return cmdutil.ExitOf(sandbox.ExitStatus{ExitCode: code})
	}
	if o.terminal {
		t, leave, err := terminal(f)
		if err != nil {
			return err
		}
		defer leave()
		cmd.Terminal = t
	}
	code, err := execInTask(ctx, f, id, cmd)
	if err != nil {
		return err
	}
	return cmdutil.ExitOf(sandbox.ExitStatus{ExitCode: code})
}
