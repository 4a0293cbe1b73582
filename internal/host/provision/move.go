package provision

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	cerrdefs "github.com/containerd/errdefs"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Lineage returns the image with that id and the images that it was prepared from, once for each name. It returns none if the
// engine does not have all of them under a name: new sandboxes do not use such an image.
func (i Images) Lineage(ctx context.Context, id string) (all []workorder.Image, err error) {
	for id != "" {
		r, err := i.Client.ImageInspect(ctx, id)
		if cerrdefs.IsNotFound(err) || err == nil && len(r.RepoTags) == 0 {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("inspect image %s: %w", id, err)
		}
		slices.Sort(r.RepoTags)
		for _, name := range r.RepoTags {
			all = append(all, workorder.Image{Name: name, ID: r.ID})
		}
		id = ""
		if r.Config != nil {
			id = r.Config.Labels[labelFrom]
		}
	}
	return all, nil
}

// Find returns the id of the image with that name; "" if the engine does not have it.
func (i Images) Find(ctx context.Context, name string) (string, error) {
	r, err := i.Client.ImageInspect(ctx, name)
	if cerrdefs.IsNotFound(err) {
		return "", nil
	}
	return r.ID, err
}

// Outdated reports whether a name is of a default image that new sandboxes of this program do not use.
func (i Images) Outdated(ctx context.Context, name string) (bool, error) {
	if !strings.HasPrefix(name, Repository+":") {
		return false, nil
	}
	current, err := i.current(ctx)
	return !slices.Contains(current, name), err
}

// Save streams images as a docker archive. The caller closes it.
func (i Images) Save(ctx context.Context, names []string) (io.ReadCloser, error) {
	return i.Client.ImageSave(ctx, names)
}

// Load loads the images of a docker archive.
func (i Images) Load(ctx context.Context, archive io.Reader) error {
	r, err := i.Client.ImageLoad(ctx, archive)
	if err != nil {
		return fmt.Errorf("load the images: %w", err)
	}
	defer r.Body.Close()
	for messages := json.NewDecoder(r.Body); ; {
		var m struct{ Error string }
		switch err := messages.Decode(&m); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("load the images: %w", err)
		case m.Error != "":
			return fmt.Errorf("load the images: %s", m.Error)
		}
	}
}
