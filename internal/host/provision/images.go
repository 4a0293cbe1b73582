package provision

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/docker/docker/api/types/container"
	imagetypes "github.com/docker/docker/api/types/image"

	"github.com/sandbox-agent/sandbox-agent/image"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Client is what the care for images asks of the Docker API beside what building one does.
type Client interface {
	Engine
	ContainerList(ctx context.Context, o container.ListOptions) ([]container.Summary, error)
	ImageRemove(ctx context.Context, ref string, o imagetypes.RemoveOptions) ([]imagetypes.DeleteResponse, error)
}

// Images cares for the images of one engine.
type Images struct {
	Client   Client
	Version  string // of the CLI
	StateDir string // where the lock of a build lies
}

// BuiltImage is an image that was built here, or that somebody made of such a one.
type BuiltImage struct {
	ID   string   `json:"id"`
	Name string   `json:"name"` // that it was given here; empty means it has none
	Tags []string `json:"tags"`
	// Own says that every tag was given here.
	Own bool `json:"own"`
	// Used says that a container is made of it, running or not.
	Used    bool   `json:"used"`
	Version string `json:"version"`
	Created string `json:"created"`
	Bytes   int64  `json:"bytes"`
	Current bool   `json:"current"` // what a run would use now
}

func (i Images) options(name string, progress func(workorder.Event)) Options {
	return Options{Image: name, Version: i.Version, StateDir: i.StateDir, Progress: progress}
}

// Ensure returns the image of that name, and builds the default one where it is missing.
func (i Images) Ensure(ctx context.Context, name string, progress func(workorder.Event)) (workorder.Image, error) {
	return Ensure(ctx, i.Client, i.options(name, progress))
}

// Build builds the default image; again and without the cache with rebuild.
func (i Images) Build(ctx context.Context, rebuild bool, progress func(workorder.Event)) (workorder.Image, error) {
	o := i.options("", progress)
	o.Rebuild = rebuild
	return Ensure(ctx, i.Client, o)
}

// Derive builds the image name on the default image's base when it is missing.
func (i Images) Derive(ctx context.Context, name string, dockerfile []byte, progress func(workorder.Event)) error {
	return EnsureDerived(ctx, i.Client, i.options("", progress), name, dockerfile)
}

// Remove takes a tag off, and removes the image when that was its last one and nothing uses it.
func (i Images) Remove(ctx context.Context, tag string) error {
	_, err := i.Client.ImageRemove(ctx, tag, imagetypes.RemoveOptions{PruneChildren: true})
	return err
}

// List returns the images built here, and those that were made of them, newest first.
func (i Images) List(ctx context.Context) ([]BuiltImage, error) {
	built, err := List(ctx, i.Client)
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
	out := []BuiltImage{}
	for _, b := range built {
		out = append(out, BuiltImage{
			ID: b.ID, Name: b.Name, Tags: append([]string{}, b.Tags...), Own: b.Own, Used: used[b.ID], Version: b.Version,
			Created: b.Created.UTC().Format(time.RFC3339), Bytes: b.Bytes, Current: slices.Contains(b.Tags, current),
		})
	}
	return out, nil
}

// listTimeout bounds a list of all containers: an engine under load takes seconds.
const listTimeout = 30 * time.Second

// used are the ids of images that containers are made of.
func (i Images) used(ctx context.Context) (map[string]bool, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	list, err := i.Client.ContainerList(ctx, container.ListOptions{All: true})
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
func (i Images) current(ctx context.Context) (string, error) {
	arch, err := architecture(ctx, i.Client, "")
	if err != nil {
		return "", err
	}
	src, err := image.New(arch)
	if err != nil {
		return "", err
	}
	hash, err := src.Hash()
	if err != nil {
		return "", err
	}
	return defaultName(i.Version, hash), nil
}
