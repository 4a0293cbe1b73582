package guard

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
)

// maxInspect bounds what is read of the engine's answer about a container.
const maxInspect = 16 << 20

// archive judges docker cp. For it the engine mounts the container's binds once more,
// as root and by their paths, and reads and writes with root's rights. A bind of a
// path that the client can replace by a link would give it every file of the box.
// A container's binds never change, and it is named by its id from here on.
func (g *Guard) archive(ctx context.Context, req *request) error {
	at := len(req.path) - 2 // containers/NAME/archive
	c, err := g.inspect(ctx, req.path[at])
	if err != nil || c == nil {
		return err // what is not there is the engine's to say
	}
	for _, m := range c.Mounts {
		if m.Type != "volume" && m.Type != "tmpfs" && m.Type != "image" && !g.keeps(m.Source) {
			return refuse(ruleArchive, "the container %s binds %s", req.path[at], m.Source)
		}
	}
	req.path[at] = c.ID
	return nil
}

type inspected struct {
	ID     string `json:"Id"`
	Mounts []struct{ Type, Source string }
}

func (g *Guard) inspect(ctx context.Context, name string) (*inspected, error) {
	u := url.URL{Scheme: "http", Host: "docker", Path: "/containers/" + name + "/json"}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("ask for the binds of %s: %w", name, err)
	}
	resp, err := g.proxy.Transport.RoundTrip(r)
	if err != nil {
		return nil, fmt.Errorf("ask for the binds of %s: %w", name, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusNotFound {
		return nil, nil
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxInspect))
	if err != nil {
		return nil, fmt.Errorf("ask for the binds of %s: %w", name, err)
	}
	c := &inspected{}
	if err := json.Unmarshal(b, c); err != nil || resp.StatusCode != http.StatusOK || c.ID == "" {
		return nil, fmt.Errorf("ask for the binds of %s: status %s, %w", name, resp.Status, err)
	}
	return c, nil
}
