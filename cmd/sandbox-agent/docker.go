package main

import (
	"context"
	"os"
	"time"

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
	var out []cli.BuiltImage
	for _, b := range list {
		out = append(out, cli.BuiltImage{
			ID: b.ID, Name: b.Name, Version: b.Version, Created: b.Created.UTC().Format(time.RFC3339), Bytes: b.Bytes, Current: b.Name == current,
		})
	}
	return out, nil
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

func (i images) Remove(ctx context.Context, id string) error {
	_, err := i.e.Client().ImageRemove(ctx, id, imagetypes.RemoveOptions{PruneChildren: true})
	return err
}
