package provision

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/build"
	"github.com/docker/docker/api/types/container"
	imagetypes "github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/client"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/sandbox-agent/sandbox-agent/image"
	"github.com/sandbox-agent/sandbox-agent/internal/host/programs"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Client is the part of the Docker API that Images needs.
type Client interface {
	Engine
	ContainerList(ctx context.Context, o container.ListOptions) ([]container.Summary, error)
	ContainerCreate(ctx context.Context, c *container.Config, h *container.HostConfig, n *network.NetworkingConfig, p *ocispec.Platform,
		name string) (container.CreateResponse, error)
	CopyFromContainer(ctx context.Context, id, path string) (io.ReadCloser, container.PathStat, error)
	ContainerRemove(ctx context.Context, id string, o container.RemoveOptions) error
	ImageSave(ctx context.Context, refs []string, o ...client.ImageSaveOption) (io.ReadCloser, error)
	ImageLoad(ctx context.Context, archive io.Reader, o ...client.ImageLoadOption) (imagetypes.LoadResponse, error)
}

// Images manages the images of one engine.
type Images struct {
	Client   Client
	Version  string // of the CLI
	StateDir string // for the locks of builds
	Programs *programs.Finder
}

// BuiltImage is an image built by this program, or based on one.
type BuiltImage struct {
	ID      string   `json:"id"`
	Name    string   `json:"name"` // the tag from this program; "" if it has none
	Tags    []string `json:"tags"`
	Own     bool     `json:"own"`  // all tags are from this program
	Used    bool     `json:"used"` // a running or stopped container uses it
	Version string   `json:"version"`
	Created string   `json:"created"`
	Bytes   int64    `json:"bytes"`
	Current bool     `json:"current"`         // used by new sandboxes
	Parts   string   `json:"parts,omitempty"` // of the default image, beyond what it always has
	// Prepared has the packages and tools installed for projects; "" for other images.
	Prepared string `json:"prepared,omitempty"`
	Old      bool   `json:"old,omitempty"` // new sandboxes do not use a prepared image any longer
}

func (i Images) options(name string, progress func(workorder.Event)) Options {
	return Options{Image: name, Version: i.Version, StateDir: i.StateDir, Programs: i.Programs, Progress: progress}
}

// Ensure returns the image of that name, and builds the default one with these parts if it is missing.
func (i Images) Ensure(ctx context.Context, name string, parts []string, progress func(workorder.Event)) (workorder.Image, error) {
	o := i.options(name, progress)
	o.Parts = parts
	return Ensure(ctx, i.Client, o)
}

// Small returns the small image and builds it if it is missing. It calls building before the build.
func (i Images) Small(ctx context.Context, building func(name string), progress func(workorder.Event)) (workorder.Image, error) {
	o := i.options("", progress)
	o.Building = building
	return EnsureSmall(ctx, i.Client, o)
}

// Build builds the default image with these parts, and with exact without others. With rebuild it builds an existing one, too, without
// the cache.
func (i Images) Build(ctx context.Context, parts []string, exact, rebuild bool, progress func(workorder.Event)) (workorder.Image, error) {
	o := i.options("", progress)
	o.Parts, o.Exact, o.Rebuild = parts, exact, rebuild
	return Ensure(ctx, i.Client, o)
}

// Derive builds the image name on the default image's base, if it is missing.
func (i Images) Derive(ctx context.Context, name string, dockerfile []byte, progress func(workorder.Event)) error {
	return EnsureDerived(ctx, i.Client, i.options("", progress), name, dockerfile)
}

// Prepare is EnsurePrepared.
func (i Images) Prepare(ctx context.Context, img workorder.Image, packages []string, tools map[string]string,
	progress func(workorder.Event),
) (workorder.Image, error) {
	return EnsurePrepared(ctx, i.Client, i.options("", progress), img, Needs{packages, tools})
}

// Remove removes a tag, and the image with its last tag if it is unused.
func (i Images) Remove(ctx context.Context, tag string) error {
	_, err := i.Client.ImageRemove(ctx, tag, imagetypes.RemoveOptions{PruneChildren: true})
	return err
}

// List returns the images built by this program and images based on them, newest first.
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
			Created: b.Created.UTC().Format(time.RFC3339), Bytes: b.Bytes,
			Current: slices.ContainsFunc(b.Tags, func(t string) bool { return slices.Contains(current, t) }),
			Parts:   b.Parts, Prepared: b.Prepared,
		})
	}
	for i, b := range built {
		out[i].Old = b.old(time.Now()) || b.Prepared != "" &&
			slices.ContainsFunc(out, func(o BuiltImage) bool { return o.ID == b.From && o.Own && !o.Current })
	}
	return out, nil
}

const listTimeout = 30 * time.Second // a loaded engine takes seconds

// used returns the ids of images with containers.
func (i Images) used(ctx context.Context) (map[string]bool, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	list, err := i.Client.ContainerList(ctx, container.ListOptions{All: true})
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	ids := map[string]bool{}
	for _, c := range list {
		ids[c.ImageID] = true
	}
	return ids, nil
}

// current returns the names of the images for new sandboxes, which may not exist.
func (i Images) current(ctx context.Context) ([]string, error) {
	arch, err := architecture(ctx, i.Client, "")
	if err != nil {
		return nil, err
	}
	entrypoint, err := cmp.Or(i.Programs, &programs.Finder{}).Entrypoint(ctx, arch, nil)
	if err != nil {
		return nil, err
	}
	small, err := image.Small()
	if err != nil {
		return nil, err
	}
	o := i.options("", nil)
	o.repository = SmallRepository
	name, err := o.name(small)
	if err != nil {
		return nil, err
	}
	names := []string{name}
	o.repository = Repository
	box := image.Box(entrypoint)
	for _, set := range image.Sets(nil) {
		if name, err = o.name(box.With(set)); err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	return names, nil
}

// EnsureDerived builds the image name from a Dockerfile whose build argument BASE is the default image's base. It does not replace
// an existing image.
func EnsureDerived(ctx context.Context, engine Engine, o Options, name string, dockerfile []byte) error {
	if _, err := inspect(ctx, engine, name); !cerrdefs.IsNotFound(err) {
		return err
	}
	base, err := EnsureBase(ctx, engine, o)
	if err != nil {
		return err
	}
	if o.Progress == nil {
		o.Progress = func(workorder.Event) {}
	}
	b := builder{engine: engine, name: name, o: o}
	ctx, cancel := context.WithTimeoutCause(ctx, buildDeadline, fmt.Errorf("image not built within %s", buildDeadline))
	defer cancel()
	start := time.Now()
	b.emit(workorder.Event{Type: workorder.EventStepStarted, Name: StepImage, Text: name})
	err = b.derive(ctx, dockerfile, build.ImageBuildOptions{BuildArgs: buildArgs(readHost(ctx).proxies, base)})
	e := workorder.Event{
		Type: workorder.EventStepFinished, Name: StepImage, Status: string(workorder.StepDone),
		DurationMS: time.Since(start).Milliseconds(),
	}
	if err != nil {
		e.Status, e.Text = string(workorder.StepFailed), err.Error()
	}
	b.emit(e)
	return err
}

func (b *builder) derive(ctx context.Context, dockerfile []byte, o build.ImageBuildOptions) error {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	if err := w.WriteHeader(&tar.Header{Name: "Dockerfile", Mode: 0o644, Size: int64(len(dockerfile))}); err != nil {
		return fmt.Errorf("build image %s: %w", b.name, err)
	}
	if _, err := w.Write(dockerfile); err != nil {
		return fmt.Errorf("build image %s: %w", b.name, err)
	}
	if err := w.Close(); err != nil {
		return fmt.Errorf("build image %s: %w", b.name, err)
	}
	return b.submit(ctx, &buf, o)
}
