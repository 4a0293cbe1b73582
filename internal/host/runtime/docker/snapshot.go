package docker

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/image"

	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
)

var _ runtime.Snapshotter = (*Sandboxes)(nil)

// Snapshot implements runtime.Snapshotter.
func (e *Sandboxes) Snapshot(ctx context.Context, id, ref string, labels map[string]string) (runtime.Snapshot, error) {
	doing := "make snapshot " + ref + " of the sandbox"
	ctx, cancel := context.WithTimeout(ctx, commitTime)
	defer cancel()
	c, err := e.c.ContainerInspect(ctx, id)
	if err != nil {
		return runtime.Snapshot{}, e.wrap(doing, err)
	}
	var s runtime.Snapshot
	for _, m := range c.Mounts {
		s.Omitted = append(s.Omitted, m.Destination)
	}
	// The image determines the default user of commands: the container's user is the guest's.
	cfg := &container.Config{Labels: maps.Clone(labels)}
	if img, err := e.c.ImageInspect(ctx, c.Image); err == nil && img.Config != nil {
		cfg.User = img.Config.User
	} else if err != nil {
		return runtime.Snapshot{}, e.wrap(doing, err)
	}
	if cfg.Labels == nil {
		cfg.Labels = map[string]string{}
	}
	cfg.Labels[runtime.LabelSandbox] = "" // a user's container from it is not a sandbox
	if err := e.awaitStarts(ctx, c.ExecIDs); err != nil {
		return runtime.Snapshot{}, e.wrap(doing, err)
	}
	made, err := e.c.ContainerCommit(ctx, id, container.CommitOptions{Reference: ref, Pause: true, Config: cfg})
	if err != nil {
		return runtime.Snapshot{}, e.wrap(doing, err)
	}
	s.ID, s.Ref, s.Labels, s.Created = made.ID, ref, labels, time.Now()
	s.Bytes, err = e.topLayer(ctx, made.ID)
	return s, err
}

const (
	startsTime = 10 * time.Second // a loaded machine starts a command in a second
	startsPoll = 20 * time.Millisecond
)

// awaitStarts waits until these commands of a container have a process. A container that is paused while the engine starts
// a command in it stays paused for good, and locks the engine's requests about it (Docker 20.10).
func (e *Sandboxes) awaitStarts(ctx context.Context, ids []string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startsTime, fmt.Errorf("a command in the sandbox did not start within %s", startsTime))
	defer cancel()
	for _, id := range ids {
		for {
			is, err := e.c.ContainerExecInspect(ctx, id)
			if err != nil || !is.Running || is.Pid != 0 {
				break // one that cannot be inspected has ended
			}
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(startsPoll):
			}
		}
	}
	return nil
}

// topLayer returns the size of an image's top layer.
func (e *Sandboxes) topLayer(ctx context.Context, id string) (int64, error) {
	layers, err := e.c.ImageHistory(ctx, id)
	if err != nil || len(layers) == 0 {
		return 0, e.wrap("read the size of image "+id, err)
	}
	return layers[0].Size, nil
}

// Snapshots implements runtime.Snapshotter.
func (e *Sandboxes) Snapshots(ctx context.Context, labels map[string]string) ([]runtime.Snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, e.listTime)
	defer cancel()
	f := filters.NewArgs(filters.Arg("label", runtime.LabelSnapshot))
	for k, v := range labels {
		if v != "" {
			k += "=" + v
		}
		f.Add("label", k)
	}
	list, err := e.c.ImageList(ctx, image.ListOptions{Filters: f})
	if err != nil {
		return nil, e.wrap("list snapshots", err)
	}
	all := make([]runtime.Snapshot, 0, len(list))
	for _, i := range list {
		s := runtime.Snapshot{Ref: i.ID, ID: i.ID, Labels: i.Labels, Created: time.Unix(i.Created, 0)}
		if len(i.RepoTags) > 0 {
			s.Ref = i.RepoTags[0]
		}
		if s.Bytes, err = e.topLayer(ctx, i.ID); cerrdefs.IsNotFound(err) {
			continue // it was removed meanwhile
		} else if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// RemoveSnapshot implements runtime.Snapshotter.
func (e *Sandboxes) RemoveSnapshot(ctx context.Context, ref string) error {
	ctx, cancel := e.answered(ctx)
	defer cancel()
	_, err := e.c.ImageRemove(ctx, ref, image.RemoveOptions{PruneChildren: true})
	if cerrdefs.IsConflict(err) && strings.Contains(err.Error(), "dependent child") && !strings.HasPrefix(ref, "sha256:") {
		return nil // the name is removed; the layers go with the last image that uses them
	}
	if cerrdefs.IsConflict(err) {
		return fmt.Errorf("remove snapshot %s: %w", ref, runtime.ErrInUse)
	}
	return e.wrap("remove snapshot "+ref, err)
}
