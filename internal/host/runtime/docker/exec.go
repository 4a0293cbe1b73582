package docker

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/pkg/stdcopy"

	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
)

const (
	// endPoll and endWait are for the exit code: an engine ends a command's stream shortly before it knows the code.
	endPoll = 10 * time.Millisecond
	endWait = 10 * time.Second
)

// Exec implements runtime.Execer.
func (e *Engine) Exec(ctx context.Context, id string, c runtime.ExecSpec) (int, error) {
	var size *[2]uint
	if c.Terminal != nil {
		size = &[2]uint{c.Terminal.Size.Height, c.Terminal.Size.Width}
	}
	exec, conn, err := e.execStream(ctx, id, container.ExecOptions{
		Cmd: c.Argv, User: c.User, WorkingDir: c.Dir, Env: c.Env, Tty: c.Terminal != nil, ConsoleSize: size,
		AttachStdin: c.Stdin != nil, AttachStdout: true, AttachStderr: true,
	})
	if err != nil {
		return 0, e.wrap("run a command in the sandbox", err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, conn.Close)
	defer stop()
	if c.Stdin != nil {
		go func() {
			// An error means that the command reads no more input, or that the input ended early: the exit code shows it.
			_, _ = io.Copy(conn.Conn, c.Stdin)
			if c.Terminal == nil { // with a terminal, an engine would also cut off the output
				_ = conn.CloseWrite()
			}
		}()
	}
	if c.Terminal != nil {
		ended := make(chan struct{})
		defer close(ended)
		go e.resize(ctx, exec, *c.Terminal, ended)
		_, err = io.Copy(orDiscard(c.Stdout), conn.Reader)
	} else {
		_, err = stdcopy.StdCopy(orDiscard(c.Stdout), orDiscard(c.Stderr), bufio.NewReaderSize(conn.Reader, 64<<10))
	}
	if ctx.Err() != nil {
		return 0, fmt.Errorf("wait for a command in the sandbox: %w", ctx.Err())
	}
	if err != nil {
		return 0, e.wrap("read the output of a command in the sandbox", err)
	}
	return e.exitCode(ctx, exec)
}

// execStream starts a command, and returns its id and stream. ctx bounds only the start.
func (e *api) execStream(ctx context.Context, id string, o container.ExecOptions) (exec string, stream types.HijackedResponse, err error) {
	short, cancel := e.answered(ctx)
	defer cancel()
	made, err := e.c.ContainerExecCreate(short, id, o)
	if err != nil {
		return "", stream, err
	}
	stream, err = e.hijacked(ctx, id, func() (types.HijackedResponse, error) {
		return e.c.ContainerExecAttach(ctx, made.ID, container.ExecAttachOptions{Tty: o.Tty, ConsoleSize: o.ConsoleSize})
	})
	return made.ID, stream, err
}

// resize passes on the terminal's sizes until the command ends, also the first one, which an engine before 23.0 ignores at the start.
func (e *api) resize(ctx context.Context, exec string, t runtime.Terminal, ended <-chan struct{}) {
	for size := t.Size; ; {
		// An error means that the command has ended, or only shows a wrong size.
		_ = e.c.ContainerExecResize(ctx, exec, container.ResizeOptions{Width: size.Width, Height: size.Height})
		select {
		case size = <-t.Resized:
		case <-ended:
			return
		}
	}
}

func (e *api) exitCode(ctx context.Context, exec string) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, endWait)
	defer cancel()
	for {
		is, err := e.c.ContainerExecInspect(ctx, exec)
		if err != nil {
			return 0, e.wrap("read the exit code of a command in the sandbox", err)
		}
		if !is.Running {
			return is.ExitCode, nil
		}
		select {
		case <-ctx.Done():
			return 0, e.wrap("read the exit code of a command in the sandbox", ctx.Err())
		case <-time.After(endPoll):
		}
	}
}

// unlessState returns err, or nil if the box is already in the state: engines differ in how they refuse that.
func (e *api) unlessState(ctx context.Context, doing, id, state string, err error) error {
	if err != nil && !cerrdefs.IsNotFound(err) {
		if in, look := e.c.ContainerInspect(ctx, id); look == nil && in.State != nil && in.State.Status == state {
			return nil
		}
	}
	return e.wrap(doing, err)
}
