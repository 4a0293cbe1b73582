package docker

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/container"

	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
)

var _ runtime.StandbyRuntime = (*Engine)(nil)

const (
	pauseTries = 10
	pauseRest  = 300 * time.Millisecond
)

// Pause implements runtime.StandbyRuntime.
func (e *api) Pause(ctx context.Context, id string) error {
	ctx, cancel := e.answered(ctx)
	defer cancel()
	err := e.c.ContainerPause(ctx, id)
	// runc tries for some 50 ms (version 1 of control groups) and gives up while processes start, as on a loaded machine.
	for try := 1; try < pauseTries && err != nil && strings.Contains(err.Error(), "unable to freeze"); try++ {
		select {
		case <-ctx.Done():
			return e.wrap("pause the sandbox", context.Cause(ctx))
		case <-time.After(pauseRest):
		}
		err = e.c.ContainerPause(ctx, id)
	}
	return e.wrap("pause the sandbox", err)
}

// Resume implements runtime.StandbyRuntime.
func (e *api) Resume(ctx context.Context, id string) error {
	ctx, cancel := e.answered(ctx)
	defer cancel()
	return e.wrap("resume the sandbox", e.c.ContainerUnpause(ctx, id))
}

// Rename implements runtime.StandbyRuntime.
func (e *api) Rename(ctx context.Context, from, to string) error {
	ctx, cancel := e.answered(ctx)
	defer cancel()
	err := e.c.ContainerRename(ctx, from, to)
	if cerrdefs.IsConflict(err) {
		return fmt.Errorf("rename the sandbox to %s: %w", to, runtime.ErrConflict)
	}
	return e.wrap("rename the sandbox", err)
}

// Send implements runtime.StandbyRuntime.
func (e *api) Send(ctx context.Context, id string, cpus float64, document io.Reader) error {
	if cpus > 0 {
		change, cancel := e.answered(ctx)
		defer cancel()
		_, err := e.c.ContainerUpdate(change, id, container.UpdateConfig{Resources: container.Resources{NanoCPUs: int64(cpus * 1e9)}})
		if err != nil {
			return e.wrap("limit the sandbox", err)
		}
	}
	att, err := e.hijacked(ctx, id, func() (types.HijackedResponse, error) {
		return e.c.ContainerAttach(ctx, id, container.AttachOptions{Stream: true, Stdin: true})
	})
	if err != nil {
		return e.wrap("attach to the sandbox", err)
	}
	return e.handOver(ctx, att, document)
}
