package mcpserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/front/render"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
)

// branchSandbox is one environment during a call.
type branchSandbox struct {
	*envCall
	log *slog.Logger
	sb  *sandbox.Sandbox
	b   *app.Branch
}

// Close ends the call.
func (e *branchSandbox) Close(context.Context) { _, _ = e.sb.Close(), e.m.Close() }

// Turn implements Sandbox.
func (e *branchSandbox) Turn(ctx context.Context) (func(), error) { return e.b.Lock(ctx) }

// wake starts the environment. If it had to be recreated, wake restores its work.
func (e *branchSandbox) wake(ctx context.Context) error {
	if err := e.sb.Resume(ctx); err != nil {
		return WrongCall(app.SandboxError(err))
	}
	// Who leaves now would leave a clone without the work.
	back, err := e.sb.Branch().Restore(context.WithoutCancel(ctx))
	if err != nil {
		return WrongCall(app.SandboxError(err))
	}
	if back || e.sb.Recreated() {
		fmt.Fprintln(e.said, "note: the environment was missing and was recreated with its commits; other files are lost")
	}
	return nil
}

// Info is what is known of it.
func (e *branchSandbox) Info(ctx context.Context) (SandboxInfo, error) {
	at, err := e.endpoints(nil)
	return SandboxInfo{
		ID: e.sb.Name(), Title: cmp.Or(e.b.Title(ctx), e.sb.Spec().Title), State: string(e.sb.Info().State),
		Branch: app.BranchName(e.sb.Name()), Workdir: sandbox.CloneDir, Endpoints: at, Notes: e.notes(),
	}, err
}

// endpoints are where ports are on this machine; without a list those that are kept.
func (e *branchSandbox) endpoints(ports []app.Port) (map[string]SandboxEndpoint, error) {
	served := app.Addresses(ports)
	if ports == nil {
		var err error
		if served, err = e.env.Endpoints().List(e.sb.Name()); err != nil {
			return nil, err
		}
	}
	all := map[string]SandboxEndpoint{}
	for port, at := range served {
		all[port] = SandboxEndpoint{Inside: "localhost:" + port, Host: at}
	}
	for _, s := range e.services() {
		for _, p := range s.Ports {
			outer, inner, both := strings.Cut(p, ":")
			if !both {
				outer, inner = p, p
			}
			all[s.Name+":"+inner] = SandboxEndpoint{Inside: s.Name + ":" + inner, Host: served[outer]}
		}
	}
	return all, nil
}

func (e *branchSandbox) services() []sandbox.Service {
	if box := e.sb.Spec().Box; box != nil {
		return box.Services
	}
	return nil
}

func (e *branchSandbox) exposed(ctx context.Context, ports []int) ([]app.Port, error) {
	names := make([]string, 0, len(ports))
	for _, p := range ports {
		names = append(names, strconv.Itoa(p))
	}
	parsed, err := app.ParsePorts(names)
	if err != nil {
		return nil, &WrongError{err}
	}
	if len(parsed) == 0 {
		return nil, nil
	}
	added, err := e.env.Endpoints().Add(ctx, e.sb.Name(), parsed)
	return added, WrongCall(err)
}

// Run runs a command as `exec` does.
func (e *branchSandbox) Run(ctx context.Context, q SandboxCommand) (r SandboxResult, err error) {
	if len(q.Command) > maxEnvCommand {
		return r, Wrongf("command: it has %d bytes, and at most %d can be: write it to a file with environment_file_write, and run that",
			len(q.Command), maxEnvCommand)
	}
	if err := e.wake(ctx); err != nil {
		return r, err
	}
	ports, err := e.exposed(ctx, q.Ports)
	if err != nil {
		return r, err
	}
	if len(ports) > 0 {
		if r.Endpoints, err = e.endpoints(ports); err != nil {
			return r, err
		}
	}
	c := sandbox.Command{
		Argv: []string{cmp.Or(string(q.Shell), sandbox.Shells[0]), "-c", q.Command}, Dir: sandbox.CloneDir,
		Background: q.Background, Masked: true, MaxOutput: maxEnvOutput, Timeout: time.Duration(q.Timeout * float64(time.Second)),
	}
	if q.Background {
		p, err := e.sb.Start(ctx, c)
		if err != nil {
			return r, WrongCall(app.SandboxError(err))
		}
		defer p.Close()
		if len(ports) > 0 {
			if err := e.env.Endpoints().AwaitListening(ctx, e.sb, p, ports); err != nil {
				return r, WrongCall(err)
			}
		}
		r.Notes = e.notes(fmt.Sprintf("it runs in the background: `sandbox-agent attach %s %s` shows the user what it prints; "+
			"what it changes is committed with the next command", e.sb.Name(), p.ID()))
		return r, nil
	}
	c.Timeout = cmp.Or(c.Timeout, envTimeout)
	started := time.Now()
	got, err := e.sb.Run(ctx, c)
	if err != nil {
		if ctx.Err() != nil { // what it had changed by then is not lost
			e.env.Sandboxes().Save(ctx, e.sb, app.RanNow(c.Argv, started, app.ExitLeft))
		}
		return r, WrongCall(app.SandboxError(err))
	}
	ran := app.RanNow(c.Argv, started, got.ExitCode)
	ran.Reason = text.Runes(text.Clean(q.Explanation), maxEnvTitle)
	r.Commit = e.env.Sandboxes().Save(ctx, e.sb, ran)
	r.Stdout, r.Stderr, r.ExitCode, r.TimedOut = string(got.Stdout), string(got.Stderr), got.ExitCode, got.TimedOut
	if got.TimedOut {
		r.ExitCode = app.ExitTimedOut
		r.Notes = append(r.Notes, fmt.Sprintf("it was ended after %s: timeout gives another more, background lets a server run", c.Timeout))
	}
	if got.OutOfMemory {
		r.Notes = append(r.Notes, "the environment's memory limit ended it")
	}
	if got.Reason != "" {
		r.Notes = append(r.Notes, got.Reason)
	}
	r.Notes = e.notes(r.Notes...)
	return r, nil
}

// Update changes the title.
func (e *branchSandbox) Update(ctx context.Context, title string) (SandboxInfo, error) {
	if err := e.b.SetTitle(ctx, text.Runes(text.Words(text.Clean(title)), maxEnvTitle)); err != nil {
		return SandboxInfo{}, err
	}
	return e.Info(ctx)
}

// Checkpoint keeps the commits under a name, and where the kind can all files.
func (e *branchSandbox) Checkpoint(ctx context.Context, name string) (c SandboxCheckpoint, err error) {
	if err := e.wake(ctx); err != nil {
		return c, err
	}
	s, err := e.sb.Snapshot(ctx, name)
	switch {
	case err == nil:
		c.Commit, c.Snapshot = s.Commit, s.Name
		c.Notes = append(c.Notes, fmt.Sprintf("`sandbox-agent snapshot restore %s %s` brings its files back", e.sb.Name(), name))
		if len(s.Omitted) > 0 {
			c.Notes = append(c.Notes, "not in it: "+strings.Join(s.Omitted, ", "))
		}
	case errors.Is(err, sandbox.ErrUnsupported): // a worktree in a jail
		if _, err := e.env.Sandboxes().TrySave(ctx, e.sb, sandbox.CommandRecord{Subject: "Save"}); err != nil {
			return c, err
		}
		c.Commit, err = e.sb.Branch().Tag(ctx, name)
		c.Notes = append(c.Notes, "files that are not committed are not in it: this kind of sandbox has no snapshots")
	}
	if errors.Is(err, sandbox.ErrExists) || errors.Is(err, sandbox.ErrSnapshotExists) || errors.Is(err, sandbox.ErrName) {
		return c, &WrongError{Err: err}
	}
	if err != nil {
		return c, err
	}
	c.Tag = e.sb.Name() + "/" + name
	c.Notes = e.notes(c.Notes...)
	return c, nil
}

// Log is what `log` prints.
func (e *branchSandbox) Log(ctx context.Context) (string, error) {
	all, err := e.b.Log(ctx)
	out := text.NewHeadTail(maxEnvText)
	render.Log(out, all)
	return string(out.Bytes()), err
}

// Diff is what `diff` prints.
func (e *branchSandbox) Diff(ctx context.Context) (string, error) {
	p, err := e.env.Branches().Handoff(ctx, e.b)
	if err != nil {
		return "", WrongCall(err)
	}
	out := text.NewHeadTail(maxEnvText)
	err = p.Diff(ctx, out, "--patch")
	return cmp.Or(string(out.Bytes()), "Nothing has changed.\n"), WrongCall(err)
}
