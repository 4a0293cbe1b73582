package provision

import (
	"context"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"

	"github.com/sandbox-agent/sandbox-agent/internal/tree"
)

const (
	// rootDeadline bounds Root: some 300 MB by the engine's socket.
	rootDeadline = 5 * time.Minute
	// What a root folder may have at most.
	maxRootFiles = 1_000_000
	maxRootBytes = 20 << 30
	cleanUp      = 30 * time.Second
	// labelUnpacked marks the container that an image is read through. It never runs.
	labelUnpacked = "sandbox-agent.unpacked"
)

// rootPaths are where an image has programs, and what they need.
var rootPaths = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc"}

// Root unpacks the programs of an image, and what they need, in a folder that is there. Nothing of the image runs.
func (i Images) Root(ctx context.Context, image, dir string) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, rootDeadline, fmt.Errorf("image %s was not unpacked within %s", image, rootDeadline))
	defer cancel()
	if err := i.dropLeft(ctx); err != nil {
		return fmt.Errorf("unpack image %s: %w", image, orCause(ctx, err))
	}
	made, err := i.Client.ContainerCreate(ctx, &container.Config{Image: image, Cmd: []string{"true"}, Labels: map[string]string{labelUnpacked: ""}}, nil, nil, nil, "")
	if err != nil {
		return fmt.Errorf("unpack image %s: %w", image, orCause(ctx, err))
	}
	defer func() {
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUp)
		defer cancel()
		err = errors.Join(err, i.Client.ContainerRemove(clean, made.ID, container.RemoveOptions{Force: true, RemoveVolumes: true}))
	}()
	for _, p := range rootPaths {
		if err := i.unpack(ctx, made.ID, p, dir); err != nil {
			return fmt.Errorf("unpack image %s: %s: %w", image, p, orCause(ctx, err))
		}
	}
	return nil
}

// dropLeft removes containers that a Root which was killed has left.
func (i Images) dropLeft(ctx context.Context) error {
	left, err := i.Client.ContainerList(ctx, container.ListOptions{All: true, Filters: filters.NewArgs(filters.Arg("label", labelUnpacked))})
	if err != nil {
		return err
	}
	for _, c := range left {
		if time.Since(time.Unix(c.Created, 0)) < rootDeadline+cleanUp {
			continue // its Root may be at work
		}
		if err := i.Client.ContainerRemove(ctx, c.ID, container.RemoveOptions{Force: true, RemoveVolumes: true}); err != nil && !cerrdefs.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// unpack unpacks a folder or link of a container, if it has it.
func (i Images) unpack(ctx context.Context, id, from, dir string) error {
	r, _, err := i.Client.CopyFromContainer(ctx, id, from)
	if cerrdefs.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer r.Close()
	_, err = tree.Unpack(filepath.Join(dir, path.Dir(from)), r, tree.Options{Exact: true, MaxFiles: maxRootFiles, MaxBytes: maxRootBytes})
	return err
}
