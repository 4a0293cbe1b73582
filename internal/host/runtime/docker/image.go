package docker

import (
	"context"
	"io"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
)

// ImageID is the id of an image, "" if the engine has none of that name.
func (e *Engine) ImageID(ctx context.Context, ref string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	in, err := e.c.ImageInspect(ctx, ref)
	switch {
	case err == nil:
		return in.ID, nil
	case cerrdefs.IsNotFound(err), cerrdefs.IsInvalidArgument(err):
		return "", nil
	}
	return "", e.wrap("look for image "+ref, err)
}

func (e *api) image(ctx context.Context, ref string) (image.InspectResponse, error) {
	ctx, cancel := e.answered(ctx)
	defer cancel()
	return e.c.ImageInspect(ctx, ref)
}

// SaveImage streams an image as a docker archive.
func (e *Engine) SaveImage(ctx context.Context, ref string) (io.ReadCloser, error) {
	r, err := e.opened(ctx, func(ctx context.Context) (io.ReadCloser, error) { return e.c.ImageSave(ctx, []string{ref}) })
	if err != nil {
		return nil, e.wrap("save image "+ref, err)
	}
	return r, nil
}

// CopyIn unpacks a tar stream into an existing folder of the box.
func (e *Engine) CopyIn(ctx context.Context, id, dir string, tarball io.Reader) error {
	return e.wrap("copy into the sandbox", e.c.CopyToContainer(ctx, id, dir, tarball, container.CopyToContainerOptions{}))
}
