package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/docker/docker/api/types/container"
	imagetypes "github.com/docker/docker/api/types/image"

	"github.com/sandbox-agent/sandbox-agent/image"
	"github.com/sandbox-agent/sandbox-agent/internal/host/cli"
	"github.com/sandbox-agent/sandbox-agent/internal/host/engine/docker"
	"github.com/sandbox-agent/sandbox-agent/internal/host/provision"
	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
	"github.com/sandbox-agent/sandbox-agent/internal/version"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

func openDocker() (*cli.Backend, error) {
	e, err := docker.New(os.Getenv)
	if err != nil {
		return nil, err
	}
	return &cli.Backend{Engine: e, Images: images{e}, Companion: e, Leftovers: e}, nil
}

// images joins provisioning to an engine.
type images struct{ e *docker.Engine }

func (i images) options(name string, progress func(workorder.Event)) provision.Options {
	dir, err := store.DefaultDir(os.Getenv)
	if err != nil {
		dir = os.TempDir() // only a lock lies there
	}
	return provision.Options{Image: name, Version: version.String(), StateDir: dir, Progress: progress}
}

func (i images) Ensure(ctx context.Context, name string, progress func(workorder.Event)) (workorder.Image, error) {
	return provision.Ensure(ctx, i.e.Client(), i.options(name, progress))
}

func (i images) Build(ctx context.Context, rebuild bool, progress func(workorder.Event)) (workorder.Image, error) {
	o := i.options("", progress)
	o.Rebuild = rebuild
	return provision.Ensure(ctx, i.e.Client(), o)
}

func (i images) Derive(ctx context.Context, name string, dockerfile []byte, progress func(workorder.Event)) error {
	return provision.EnsureDerived(ctx, i.e.Client(), i.options("", progress), name, dockerfile)
}

func (i images) List(ctx context.Context) ([]cli.BuiltImage, error) {
	list, err := provision.List(ctx, i.e.Client())
	if err != nil {
		return nil, err
	}
	current, err := i.current(ctx)
	if err != nil {
		return nil, err
	}
	used, err := i.used(ctx)
	if err != nil {
		return nil, err
	}
	var out []cli.BuiltImage
	for _, b := range list {
		out = append(out, cli.BuiltImage{
			ID: b.ID, Name: b.Name, Tags: append([]string{}, b.Tags...), Own: b.Own, Used: used[b.ID], Version: b.Version,
			Created: b.Created.UTC().Format(time.RFC3339), Bytes: b.Bytes, Current: slices.Contains(b.Tags, current),
		})
	}
	return out, nil
}

// listTimeout bounds a list of all containers: an engine under load takes seconds.
const listTimeout = 30 * time.Second

// used are the ids of images that containers are made of.
func (i images) used(ctx context.Context) (map[string]bool, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	list, err := i.e.Client().ContainerList(ctx, container.ListOptions{All: true})
	if err != nil {
		return nil, fmt.Errorf("look which images have containers: %w", err)
	}
	ids := map[string]bool{}
	for _, c := range list {
		ids[c.ImageID] = true
	}
	return ids, nil
}

// current is the name of the image that a run would use, there or not.
func (i images) current(ctx context.Context) (string, error) {
	info, err := i.e.Info(ctx)
	if err != nil {
		return "", err
	}
	arch := "amd64"
	if info.Arch == "aarch64" || info.Arch == "arm64" {
		arch = "arm64"
	}
	src, err := image.New(arch)
	if err != nil {
		return "", err
	}
	hash, err := src.Hash()
	if err != nil {
		return "", err
	}
	return provision.DefaultName(version.String(), hash), nil
}

func (i images) Remove(ctx context.Context, tag string) error {
	_, err := i.e.Client().ImageRemove(ctx, tag, imagetypes.RemoveOptions{PruneChildren: true})
	return err
}
