package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// exitTimeout is the exit code of a command that was stopped at its own deadline, as with timeout(1).
const exitTimeout = 124

// exitNotRun is the exit code of a command that never ran.
const exitNotRun = -1

// ShellCommand is one command of setup or validation.
type ShellCommand struct {
	Name string // in events
	Run  string // for bash -c
	Log  string // path of the complete output, relative to Config.OutDir
}

// ShellResult reports how a command ended.
type ShellResult struct {
	ExitCode int // exitNotRun if it could not be started
	Duration time.Duration
	Tail     string // end of the output
	// Err is nil after exit code 0; otherwise it explains the failure.
	Err error
	// Warning reports an incomplete log.
	Warning string
}

// Shell runs one command as the user in the workspace. Processes that it detaches keep running (see shellOutput).
func Shell(ctx context.Context, c Config, cmd ShellCommand) ShellResult {
	began := time.Now()
	r := c.shell(ctx, cmd)
	r.Duration = time.Since(began)
	return r
}

func (c *Config) shell(ctx context.Context, cmd ShellCommand) ShellResult {
	read, write, err := c.pipe()
	if err != nil {
		return ShellResult{ExitCode: exitNotRun, Err: fmt.Errorf("%s: %w", cmd.Name, err)}
	}
	out, err := c.newShellOutput(cmd, read)
	if err != nil {
		return ShellResult{ExitCode: exitNotRun, Err: errors.Join(err, read.Close(), write.Close())}
	}
	p, err := proc.Start(ctx, proc.Spec{
		Argv: []string{"bash", "-c", cmd.Run}, Dir: c.Workspace, Env: c.env(), User: c.User,
		Stdout: write, Stderr: write,
		StopSignal: syscall.SIGTERM, Grace: workorder.AgentGrace, OOMScoreAdj: oomScore,
	})
	_ = write.Close() // the child has its own copy
	if err == nil {
		err = p.Wait()
	}
	r := ShellResult{ExitCode: proc.ExitCode(err)}
	tail, oerr := out.ended()
	if r.Tail = tail; oerr != nil {
		r.Warning = c.text(fmt.Sprintf("%s is incomplete: %v", cmd.Log, oerr))
	}
	switch {
	case err == nil:
	case ctx.Err() != nil:
		r.Err = fmt.Errorf("%s was stopped: %w", cmd.Name, errors.Join(context.Cause(ctx), err))
	default:
		r.Err = fmt.Errorf("%s: %w", cmd.Name, err)
	}
	return r
}

// pipe creates one pipe for both streams, so that their lines stay in order. The user owns it, so that /dev/stderr opens.
func (c *Config) pipe() (read, write *os.File, err error) {
	if read, write, err = os.Pipe(); err != nil {
		return nil, nil, fmt.Errorf("create pipe: %w", err)
	}
	if c.User == nil {
		return read, write, nil
	}
	if err := write.Chown(int(c.User.UID), int(c.User.GID)); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("create pipe: %w", err), read.Close(), write.Close())
	}
	return read, write, nil
}

// Validate runs all validate commands, even if earlier ones fail. Those that did not run count as not passed.
func Validate(ctx context.Context, c Config) []workorder.Validation {
	var out []workorder.Validation
	used := map[string]bool{}
	for _, v := range c.Order.Validate {
		log := c.logName(workorder.LogsDir + "/validate-" + fileName(v.Name, used) + ".log")
		out = append(out, c.validate(ctx, v, log))
	}
	return out
}

func (c *Config) validate(ctx context.Context, v workorder.Check, log string) workorder.Validation {
	res := workorder.Validation{Name: v.Name, Command: c.Redact.String(v.Run), Log: log}
	if ctx.Err() != nil {
		res.ExitCode, res.Log, res.Tail = exitNotRun, "", "not run: "+context.Cause(ctx).Error()
		return res
	}
	c.emit(workorder.Event{Type: workorder.EventValidateStarted, Name: v.Name, Text: v.Run})
	limit := c.limits().commandTimeout
	errSlow := fmt.Errorf("it took longer than %v", limit)
	vctx, cancel := context.WithTimeoutCause(ctx, limit, errSlow)
	defer cancel()
	var others *proc.ProcessSet
	if c.User != nil {
		others = proc.SnapshotProcesses(c.User.UID, nil)
	}
	r := Shell(vctx, *c, ShellCommand{Name: v.Name, Run: v.Run, Log: log})
	if others != nil {
		others.KillOthers() // a server left by one command must not serve the tests of the next
	}
	res.ExitCode, res.DurationMS, res.Tail = r.ExitCode, r.Duration.Milliseconds(), r.Tail
	res.Passed = r.Err == nil
	switch {
	case res.Passed:
	case errors.Is(context.Cause(vctx), errSlow):
		res.ExitCode = exitTimeout
		res.Tail += fmt.Sprintf("\n[stopped: %v]", errSlow)
	case ctx.Err() != nil:
		res.Tail += fmt.Sprintf("\n[stopped: %v]", context.Cause(ctx))
	case r.ExitCode == exitNotRun:
		res.Tail = c.text(r.Err.Error())
	}
	status := "passed"
	if !res.Passed {
		status = "failed"
	}
	c.emit(workorder.Event{
		Type: workorder.EventValidateFinished, Name: v.Name, Status: status,
		ExitCode: &res.ExitCode, DurationMS: res.DurationMS,
	})
	return res
}

var notInFileName = lazyregexp.New(`[^A-Za-z0-9._-]+`)

// fileName derives a file name from a command's name, different from those used.
func fileName(name string, used map[string]bool) string {
	base := cmp.Or(text.Cut(strings.TrimLeft(notInFileName.ReplaceAllString(name, "_"), "."), 100), "_")
	n := base
	for i := 2; used[n]; i++ {
		n = fmt.Sprintf("%s-%d", base, i)
	}
	used[n] = true
	return n
}
