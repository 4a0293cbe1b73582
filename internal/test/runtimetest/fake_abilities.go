package runtimetest

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
)

var (
	_ runtime.Copier     = (*Fake)(nil)
	_ runtime.Execer     = (*Fake)(nil)
	_ runtime.ImageStore = (*Fake)(nil)

	_ runtime.StandbyRuntime = (*Fake)(nil)
)

// Pause marks a box as paused; its program goes on.
func (f *Fake) Pause(_ context.Context, id string) error { return f.state(id, "running", "paused") }

// Resume takes the mark away.
func (f *Fake) Resume(_ context.Context, id string) error { return f.state(id, "paused", "running") }

func (f *Fake) state(id, from, to string) error {
	c, _, err := f.get(id)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if c.State != from {
		return fmt.Errorf("sandbox %s is %s", id, c.State)
	}
	c.State = to
	return nil
}

// Rename implements runtime.StandbyRuntime.
func (f *Fake) Rename(_ context.Context, from, to string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.up(); err != nil {
		return err
	}
	var box *container
	for _, c := range f.boxes {
		if c.Name == to {
			return fmt.Errorf("rename sandbox to %s: %w", to, runtime.ErrConflict)
		}
		if c.Name == from {
			box = c
		}
	}
	if box == nil {
		return fmt.Errorf("sandbox %s: %w", from, runtime.ErrNotFound)
	}
	box.Name = to
	return nil
}

// Send implements runtime.StandbyRuntime.
func (f *Fake) Send(_ context.Context, id string, _ float64, document io.Reader) error {
	c, _, err := f.get(id)
	if err != nil {
		return err
	}
	go func() { _, _ = io.Copy(c.more, document) }()
	return nil
}

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
