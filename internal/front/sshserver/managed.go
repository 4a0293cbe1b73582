package sshserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
)

// managed are the sandboxes of a manager.
type managed struct {
	env *app.Env
	m   *sandbox.Manager
}

// Managed returns the sandboxes of a manager. A server may use them until the manager is closed.
func Managed(env *app.Env, m *sandbox.Manager) Sandboxes { return &managed{env, m} }

func (g *managed) List(ctx context.Context) ([]SandboxInfo, error) {
	all, err := g.m.List(ctx)
	rows := make([]SandboxInfo, 0, len(all))
	for _, i := range all {
		if i.Spec.Lifetime == sandbox.LifetimeNamed {
			rows = append(rows, SandboxInfo{Name: i.Name, State: string(i.State), What: string(i.Runtime) + " " + i.Image, Created: i.Created})
		}
	}
	return rows, err
}

func (g *managed) Open(ctx context.Context, name string) (Sandbox, error) {
	if !sandbox.ValidName(name) {
		return nil, ErrNotFound
	}
	sb, err := g.m.Get(ctx, name)
	if err != nil {
		if r, rerr := g.env.Registry(); rerr == nil {
			if _, known := r.Load(name); known == nil && !errors.Is(err, sandbox.ErrNotFound) {
				return nil, err // its engine does not answer
			}
		}
		// Another kind that does not answer, as an engine that this user has no right to, has none: the list tells of it.
		return nil, fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	g.env.Endpoints().Ensure(ctx, name)
	return &managedSandbox{g.env, sb}, nil
}

// Create implements Sandboxes.
func (g *managed) Create(ctx context.Context, name string) error {
	s := sandbox.Spec{Name: name}
	if err := g.env.Sandboxes().ChooseRuntime(ctx, g.m, &s, ""); err != nil {
		return err
	}
	sb, err := g.m.Create(ctx, s)
	if err != nil {
		return err
	}
	return sb.Close()
}

// Remove implements Sandboxes.
func (g *managed) Remove(ctx context.Context, name string) error {
	return g.env.Sandboxes().Down(ctx, g.m, name, false)
}

// managedSandbox is one of them.
type managedSandbox struct {
	env *app.Env
	sb  *sandbox.Sandbox
}

func (g *managedSandbox) Run(ctx context.Context, c ExecRequest) (int, error) {
	what := sandbox.Command{Argv: []string{"sh"}, Env: c.Env, Stdin: c.Stdin}
	if c.Terminal != nil {
		what.Terminal = &sandbox.Size{Rows: c.Terminal.Rows, Cols: c.Terminal.Cols}
	}
	switch {
	case c.Line != "":
		what.Argv = []string{"sh", "-c", c.Line}
	case c.Terminal != nil:
		var err error
		if what.Argv, err = app.VisitorTerminal(ctx, g.sb); err != nil {
			return 0, err
		}
	}
	if c.Terminal != nil {
		defer g.env.Sandboxes().MarkAttached(g.sb.Name())()
	}
	started := time.Now()
	p, err := g.sb.Start(ctx, what)
	if err != nil {
		return 0, err
	}
	if said := app.RecreatedNote(g.sb); said != "" {
		fmt.Fprint(c.Stderr, said+"\r\n")
	}
	over := make(chan struct{})
	defer close(over)
	go hand(ctx, p, c, over)
	r, err := p.Wait(ctx, c.Stdout, c.Stderr)
	if err != nil { // the client is gone, or the sandbox has stopped
		ctx, cancel := app.Outlast(ctx)
		defer cancel()
		_, _ = g.sb.Branch().SaveIfRunning(ctx, app.RanNow(what.Argv, started, app.ExitLost))
		return 0, err
	}
	g.env.Sandboxes().Save(ctx, g.sb, app.RanNow(what.Argv, started, r.ExitCode))
	if r.Reason != "" {
		fmt.Fprintf(c.Stderr, "error: %s\r\n", r.Reason)
	}
	return r.ExitCode, nil
}

// hand hands a client's sizes and signals on to its command.
func hand(ctx context.Context, p *sandbox.Process, c ExecRequest, over <-chan struct{}) {
	for {
		select {
		case s := <-c.Resized:
			_ = p.Resize(ctx, sandbox.Size{Rows: s.Rows, Cols: s.Cols}) // a command that has ended has none
		case s := <-c.Signals:
			_ = p.Signal(ctx, s)
		case <-over:
			return
		}
	}
}

func (g *managedSandbox) DialPort(ctx context.Context, port int) (net.Conn, error) {
	return g.sb.Endpoints().DialPort(ctx, port)
}

func (g *managedSandbox) Files(ctx context.Context) (io.ReadWriteCloser, error) {
	return g.sb.Files().SFTP(ctx)
}

func (g *managedSandbox) Close(context.Context) error { return g.sb.Close() }
