package docker

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/docker/docker/api/types/build"
	"github.com/docker/docker/api/types/container"
	imagetypes "github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/api/types/system"
	"github.com/docker/docker/client"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
)

// Client is the API for package provision. Its errors wrap runtime.ErrUnavailable if the engine does not answer.
type Client struct {
	c    *client.Client
	host string
}

// Client returns the API client, for work without boxes (building images).
func (e *Engine) Client() Client { return Client{e.c, e.host} }

// reached adds runtime.ErrUnavailable, or a *runtime.DeniedError, to an error of the connection. Other errors stay unchanged:
// their text may quote the connection to a registry.
func (c Client) reached(err error) error {
	if err == nil || !client.IsErrConnectionFailed(err) && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if d := denied(c.host, err); d != nil {
		return d
	}
	return fmt.Errorf("%w: %w", runtime.ErrUnavailable, err)
}

// Info asks the engine about itself.
func (c Client) Info(ctx context.Context) (system.Info, error) {
	v, err := c.c.Info(ctx)
	return v, c.reached(err)
}

// ImageInspect describes an image.
func (c Client) ImageInspect(ctx context.Context, ref string, o ...client.ImageInspectOption) (imagetypes.InspectResponse, error) {
	v, err := c.c.ImageInspect(ctx, ref, o...)
	return v, c.reached(err)
}

// ImageList lists images.
func (c Client) ImageList(ctx context.Context, o imagetypes.ListOptions) ([]imagetypes.Summary, error) {
	v, err := c.c.ImageList(ctx, o)
	return v, c.reached(err)
}

// ImageTag gives an image a further name.
func (c Client) ImageTag(ctx context.Context, ref, name string) error {
	return c.reached(c.c.ImageTag(ctx, ref, name))
}

// ImageBuild builds an image. The response's body reports the progress.
func (c Client) ImageBuild(ctx context.Context, buildContext io.Reader, o build.ImageBuildOptions) (build.ImageBuildResponse, error) {
	v, err := c.c.ImageBuild(ctx, buildContext, o)
	return v, c.reached(err)
}

// ImagePull pulls an image. The stream reports the progress.
func (c Client) ImagePull(ctx context.Context, ref string, o imagetypes.PullOptions) (io.ReadCloser, error) {
	v, err := c.c.ImagePull(ctx, ref, o)
	return v, c.reached(err)
}

// ImageRemove removes a tag, and the image with its last tag.
func (c Client) ImageRemove(ctx context.Context, ref string, o imagetypes.RemoveOptions) ([]imagetypes.DeleteResponse, error) {
	v, err := c.c.ImageRemove(ctx, ref, o)
	return v, c.reached(err)
}

// ImageImport creates an image from a tar archive. The stream reports the progress.
func (c Client) ImageImport(
	ctx context.Context, src imagetypes.ImportSource, ref string, o imagetypes.ImportOptions,
) (io.ReadCloser, error) {
	v, err := c.c.ImageImport(ctx, src, ref, o)
	return v, c.reached(err)
}

// ContainerList lists containers.
func (c Client) ContainerList(ctx context.Context, o container.ListOptions) ([]container.Summary, error) {
	v, err := c.c.ContainerList(ctx, o)
	return v, c.reached(err)
}

// ContainerCreate creates a container and does not start it.
func (c Client) ContainerCreate(
	ctx context.Context, cfg *container.Config, h *container.HostConfig, n *network.NetworkingConfig, p *ocispec.Platform, name string,
) (container.CreateResponse, error) {
	v, err := c.c.ContainerCreate(ctx, cfg, h, n, p, name)
	return v, c.reached(err)
}

// CopyFromContainer returns files of a container as a tar archive.
func (c Client) CopyFromContainer(ctx context.Context, id, path string) (io.ReadCloser, container.PathStat, error) {
	r, stat, err := c.c.CopyFromContainer(ctx, id, path)
	return r, stat, c.reached(err)
}

// ImageSave streams images as a docker archive.
func (c Client) ImageSave(ctx context.Context, refs []string, o ...client.ImageSaveOption) (io.ReadCloser, error) {
	r, err := c.c.ImageSave(ctx, refs, o...)
	return r, c.reached(err)
}

// ImageLoad loads the images of a docker archive. The body reports the progress.
func (c Client) ImageLoad(ctx context.Context, archive io.Reader, o ...client.ImageLoadOption) (imagetypes.LoadResponse, error) {
	r, err := c.c.ImageLoad(ctx, archive, o...)
	return r, c.reached(err)
}

// ContainerRemove removes a container.
func (c Client) ContainerRemove(ctx context.Context, id string, o container.RemoveOptions) error {
	return c.reached(c.c.ContainerRemove(ctx, id, o))
}
