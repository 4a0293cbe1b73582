package docker

import (
	"context"
	"io"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
)

// HasImage reports whether the engine has the image.
func (e *Engine) HasImage(ctx context.Context, ref string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	_, err := e.c.ImageInspect(ctx, ref)
	switch {
	case err == nil:
		return true, nil
	case cerrdefs.IsNotFound(err), cerrdefs.IsInvalidArgument(err):
		return false, nil
	}
	return false, e.wrap("look for image "+ref, err)
}

// SaveImage streams an image as a docker archive.
func (e *Engine) SaveImage(ctx context.Context, ref string) (io.ReadCloser, error) {
	r, err := e.c.ImageSave(ctx, []string{ref})
	if err != nil {
		return nil, e.wrap("save image "+ref, err)
	}
	return r, nil
}

// CopyIn unpacks a tar stream into an existing folder of the box.
func (e *Engine) CopyIn(ctx context.Context, id, dir string, tarball io.Reader) error {
	return e.wrap("copy into the box", e.c.CopyToContainer(ctx, id, dir, tarball, container.CopyToContainerOptions{}))
}
