package runtimetest

import (
	"cmp"
	"context"
	"io"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
)

var (
	_ runtime.Copier     = (*Fake)(nil)
	_ runtime.Execer     = (*Fake)(nil)
	_ runtime.ImageStore = (*Fake)(nil)
)

// Exec runs the program of Programs with the command's name; it ignores user, directory and environment.
func (f *Fake) Exec(ctx context.Context, id string, cmd runtime.ExecSpec) (int, error) {
	c, _, err := f.get(id)
	if err != nil {
		return 0, err
	}
	f.mu.Lock()
	prog, ok := f.Programs[cmd.Argv[0]]
	f.mu.Unlock()
	if !ok {
		return 127, nil
	}
	code := make(chan int, 1)
	go func() {
		stdin := cmd.Stdin
		if stdin == nil {
			stdin = strings.NewReader("")
		}
		code <- prog(&Box{
			Stdin: stdin, Stdout: cmp.Or(cmd.Stdout, io.Discard), Stderr: cmp.Or(cmd.Stderr, io.Discard), Stopped: c.stop,
			Killed: c.kill, Args: cmd.Argv[1:], Terminal: cmd.Terminal, c: c,
		})
	}()
	select {
	case n := <-code:
		return n, nil
	case <-c.done:
		return 137, nil // like a process that the kernel kills with the box
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}
