package image

import (
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
)

//go:embed adapter
var adapterFiles embed.FS

// Releases are the images of a release in a registry.
type Releases struct {
	Repository string            `json:"repository"`
	Digests    map[string]string `json:"digests"` // of the images, by Source.Hash
}

// Released returns the images of this program's release. Only a release that was published with images has any.
func Released() (r Releases, err error) {
	b, err := fs.ReadFile(binaries, "entrypoint/released.json")
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	if err != nil {
		return r, fmt.Errorf("read the list of released images: %w", err)
	}
	return r, nil
}

// Reference returns the reference by digest of the image with this hash; "" if there is none.
func (r Releases) Reference(hash string) string {
	if digest := r.Digests[hash]; digest != "" {
		return r.Repository + "@" + digest
	}
	return ""
}

// Adapter returns the source of an image that adds a host's certificates and registry to a released image, its build argument BASE.
func Adapter() (*Source, error) {
	files, err := fs.Sub(adapterFiles, "adapter")
	if err != nil {
		return nil, fmt.Errorf("read the adapter's files: %w", err)
	}
	return From(files, nil), nil
}
