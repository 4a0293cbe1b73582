package sandboxcmd

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
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
	if !o.json {
		return runInTask(ctx, f, id, c, o.terminal)
	}
	most := cmp.Or(c.MaxOutput, sandbox.DefaultMaxOutput)
	out, errOut := text.NewHeadTail(most), text.NewHeadTail(most)
	begun := time.Now()
	code, err := execInTask(ctx, f, id, c, app.TaskStreams{Stdout: out, Stderr: errOut, Term: f.Getenv("TERM")})
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

// runInTask runs a command in a task's running sandbox, in the user's terminal if withTerminal is set and there is one.
func runInTask(ctx context.Context, f *cmdutil.Factory, id string, c sandbox.Command, withTerminal bool) error {
	s := app.TaskStreams{Stdout: f.Stdout, Stderr: f.CommandStderr(), Term: f.Getenv("TERM")}
	if withTerminal {
		size, resized, leave, err := terminal(f)
		if err != nil {
			return err
		}
		defer leave()
		c.Terminal, s.Resized = size, resized
	}
	code, err := execInTask(ctx, f, id, c, s)
	if err != nil {
		return err
	}
	return cmdutil.ExitOf(sandbox.ExitStatus{ExitCode: code})
}

// execInTask runs a command in a task's running sandbox.
func execInTask(ctx context.Context, f *cmdutil.Factory, id string, c sandbox.Command, s app.TaskStreams) (code int, err error) {
	code, err = f.Tasks().Exec(ctx, id, c, s)
	if err != nil && ctx.Err() != nil {
		return 0, cmdutil.Interrupted(ctx)
	}
	return code, err
}
