package dockerd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"
)

// sweepPasses bounds the rounds for containers that another one creates during the removal.
const sweepPasses = 10

// listTime bounds one list of containers, which takes milliseconds: a hanging engine must not block the run.
const listTime = 10 * time.Second

// list returns all containers, including stopped ones; none if the engine was never started.
func (e *Engine) list(ctx context.Context) ([]container.Summary, error) {
	if e.Info().Version == "" {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()
	all, err := e.cli.ContainerList(ctx, container.ListOptions{All: true})
	if err != nil {
		return nil, fmt.Errorf("list inner containers: %w", err)
	}
	return all, nil
}

// Containers lists the ids of all containers, including stopped ones; none if the engine was never started.
func (e *Engine) Containers(ctx context.Context) (ids []string, err error) {
	all, err := e.list(ctx)
	for i := range all {
		ids = append(ids, all[i].ID)
	}
	return ids, err
}

// Binders lists the ids of containers that run, or may start at any moment, and bind a directory of the box.
func (e *Engine) Binders(ctx context.Context) (ids []string, err error) {
	all, err := e.list(ctx)
	for i := range all {
		stopped := all[i].State == container.StateExited || all[i].State == container.StateCreated || all[i].State == container.StateDead
		if !stopped && slices.ContainsFunc(all[i].Mounts, func(m container.MountPoint) bool { return m.Type == mount.TypeBind }) {
			ids = append(ids, all[i].ID)
		}
	}
	return ids, err
}

// RemoveContainers removes all containers except those of keep, running and restarting ones included.
func (e *Engine) RemoveContainers(ctx context.Context, keep map[string]bool) error {
	var last error
	for range sweepPasses {
		ids, err := e.Containers(ctx)
		if err != nil {
			return err
		}
		var wg sync.WaitGroup
		var mu sync.Mutex
		found := false
		last = nil
		for _, id := range ids {
			if keep[id] {
				continue
			}
			found = true
			wg.Go(func() {
				err := e.cli.ContainerRemove(ctx, id, container.RemoveOptions{Force: true, RemoveVolumes: true})
				if err != nil && !cerrdefs.IsNotFound(err) && !cerrdefs.IsConflict(err) { // another client removes it
					mu.Lock()
					last = errors.Join(last, fmt.Errorf("remove the inner container %.12s: %w", id, err))
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		if !found {
			return nil
		}
		if ctx.Err() != nil {
			return errors.Join(last, ctx.Err())
		}
	}
	return errors.Join(last, errors.New("new inner containers appear as fast as they are removed"))
}
