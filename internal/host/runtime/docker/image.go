package docker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// ImageID returns the id of an image; "" if the engine does not have it.
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

// EnsureImage implements runtime.ImageEnsurer. It pulls without credentials.
func (e *Sandboxes) EnsureImage(ctx context.Context, name string, _ *workorder.BoxSpec, progress func(line string)) error {
	if id, err := e.ImageID(ctx, name); err != nil || id != "" {
		return err
	}
	progress("pulling " + name)
	body, err := e.c.ImagePull(ctx, name, image.PullOptions{})
	if err != nil {
		return e.wrap("pull image "+name, err)
	}
	defer body.Close()
	for messages := json.NewDecoder(body); ; {
		var m struct{ ID, Status, Error string }
		switch err := messages.Decode(&m); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return e.wrap("pull image "+name, err)
		case m.Error != "":
			return fmt.Errorf("pull image %s: %s", name, m.Error)
		case m.ID == "" && m.Status != "": // not a single layer's
			progress(m.Status)
		}
	}
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

// CopyIn unpacks a tar stream into an existing directory of the box.
func (e *Engine) CopyIn(ctx context.Context, id, dir string, tarball io.Reader) error {
	return e.wrap("copy into the sandbox", e.c.CopyToContainer(ctx, id, dir, tarball, container.CopyToContainerOptions{}))
}
