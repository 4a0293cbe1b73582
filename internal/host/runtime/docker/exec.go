package docker

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/pkg/stdcopy"

	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
)

const (
	// endPoll and endWait: an engine closes the stream of a command a moment before it knows the exit code; a busy one
	// has been seen to take some tenths of a second.
	endPoll = 10 * time.Millisecond
	endWait = 10 * time.Second
)

// Exec implements runtime.Execer.
func (e *Engine) Exec(ctx context.Context, id string, c runtime.Command) (int, error) {
	made, err := e.c.ContainerExecCreate(ctx, id, container.ExecOptions{
		Cmd: c.Argv, User: c.User, WorkingDir: c.Dir, Env: c.Env,
		AttachStdin: c.Stdin != nil, AttachStdout: true, AttachStderr: true,
	})
	if err != nil {
		return 0, e.wrap("run a command in the sandbox", err)
	}
	conn, err := e.c.ContainerExecAttach(ctx, made.ID, container.ExecAttachOptions{})
	if err != nil {
		return 0, e.wrap("run a command in the sandbox", err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, conn.Close)
	defer stop()
	if c.Stdin != nil {
		go func() {
			// An error is that the command takes no more, or that its input ended early: its exit code says so.
			_, _ = io.Copy(conn.Conn, c.Stdin)
			_ = conn.CloseWrite()
		}()
	}
	_, err = stdcopy.StdCopy(orDiscard(c.Stdout), orDiscard(c.Stderr), bufio.NewReaderSize(conn.Reader, 64<<10))
	if ctx.Err() != nil {
		return 0, fmt.Errorf("wait for a command in the sandbox: %w", ctx.Err())
	}
	if err != nil {
		return 0, e.wrap("read the output of a command in the sandbox", err)
	}
	return e.exitCode(ctx, made.ID)
}

func (e *Engine) exitCode(ctx context.Context, exec string) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, endWait)
	defer cancel()
	for {
		is, err := e.c.ContainerExecInspect(ctx, exec)
		if err != nil {
			return 0, e.wrap("ask how a command in the sandbox ended", err)
		}
		if !is.Running {
			return is.ExitCode, nil
		}
		select {
		case <-ctx.Done():
			return 0, e.wrap("ask how a command in the sandbox ended", ctx.Err())
		case <-time.After(endPoll):
		}
	}
}

// Commit implements runtime.Committer.
func (e *Engine) Commit(ctx context.Context, id, ref string) (string, error) {
	made, err := e.c.ContainerCommit(ctx, id, container.CommitOptions{Reference: ref, Pause: true})
	if err != nil {
		return "", e.wrap("make image "+ref+" of the sandbox", err)
	}
	return made.ID, nil
}

// Pause implements runtime.Pauser.
func (e *Engine) Pause(ctx context.Context, id string) error {
	err := e.c.ContainerPause(ctx, id)
	return e.unlessState(ctx, "pause the sandbox", id, "paused", err)
}

// Resume implements runtime.Pauser.
func (e *Engine) Resume(ctx context.Context, id string) error {
	err := e.c.ContainerUnpause(ctx, id)
	return e.unlessState(ctx, "let the sandbox go on", id, "running", err)
}

// unlessState is err, but for a box that is in the state already: engines differ in how they refuse that.
func (e *Engine) unlessState(ctx context.Context, doing, id, state string, err error) error {
	if err != nil && !cerrdefs.IsNotFound(err) {
		if in, look := e.c.ContainerInspect(ctx, id); look == nil && in.State != nil && in.State.Status == state {
			return nil
		}
	}
	return e.wrap(doing, err)
}
