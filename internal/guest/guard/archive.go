package guard

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"
)

// maxInspect bounds the engine's answer about containers.
const maxInspect = 16 << 20

// archive decides on docker cp. For it the engine mounts the container's binds again, and reads and writes below them
// as root: a bind of root's directory would let the agent read files that it cannot read itself. The engine also
// resolves mount paths as root from outside the container (GHSA-vp62-88p7-qqf5, GHSA-rg2x-37c3-w2rh).
func (g *Guard) archive(ctx context.Context, req *request) error {
	at := len(req.path) - 2 // containers/NAME/archive
	c, err := g.inspect(ctx, req.path[at])
	if err != nil || c == nil {
		return err // the engine reports missing containers
	}
	for _, m := range c.Mounts {
		if m.Type == "volume" || m.Type == "tmpfs" || m.Type == "image" || g.isSocket(m.Source) {
			continue
		}
		if !g.clients(m.Source) {
			return refuse(ruleArchive, "the container %s binds %s, which the client does not own", req.path[at], g.said(m.Source))
		}
		for _, n := range c.Mounts {
			if n.Destination != m.Destination && within(m.Destination, n.Destination) {
				return refuse(ruleArchive, "the container %s has a mount at %s inside of the bind of %s", req.path[at], n.Destination, g.said(m.Source))
			}
		}
	}
	req.path[at] = c.ID
	return nil
}

// clients reports whether a source is a mount point of files that root does not own.
func (g *Guard) clients(source string) bool {
	if _, ok := g.binds.name(source); !ok {
		return false
	}
	fi, err := os.Lstat(source)
	if err != nil {
		return false
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	return ok && st.Uid != 0
}

// said is a source as the client gave it.
func (g *Guard) said(source string) string {
	if name, ok := g.binds.name(source); ok {
		if b, ok := g.binds.request(name); ok {
			return b.source
		}
	}
	return source
}

// renew reopens a container's binds before it is started, so that it sees a replaced file, as with Docker.
func (g *Guard) renew(ctx context.Context, req *request, who peer) error {
	if !g.binds.any() && g.cfg.Starting == nil {
		return nil
	}
	c, err := g.inspect(ctx, req.path[len(req.path)-2]) // containers/NAME/start
	if err != nil || c == nil {
		return err // the engine reports missing containers
	}
	for _, m := range c.Mounts {
		name, ok := g.binds.name(m.Source)
		if !ok {
			continue
		}
		b, ok := g.binds.request(name)
		if !ok {
			continue
		}
		if err := g.bindTo(name, b, who); err != nil {
			if c.HostConfig.AutoRemove && req.path[len(req.path)-1] == "start" {
				g.removeUnstarted(ctx, c.ID)
			}
			return err
		}
	}
	if ports := c.ports(); len(ports) > 0 && g.cfg.Starting != nil {
		req.started = g.cfg.Starting(c.ID, ports)
	}
	return nil
}

// ports returns the ports of the box that the container publishes, except those that the engine chooses.
func (c *inspected) ports() (all []string) {
	for _, list := range c.HostConfig.PortBindings {
		for _, b := range list {
			if b.HostPort != "" && b.HostPort != "0" {
				all = append(all, b.HostPort)
			}
		}
	}
	return all
}

// removeUnstarted removes a container with automatic removal that did not start: `docker run --rm` waits for that.
func (g *Guard) removeUnstarted(ctx context.Context, id string) {
	u := url.URL{Scheme: "http", Host: "docker", Path: "/containers/" + id, RawQuery: "v=1"}
	r, err := http.NewRequestWithContext(ctx, http.MethodDelete, u.String(), nil)
	if err == nil {
		var resp *http.Response
		if resp, err = g.proxy.Transport.RoundTrip(r); err == nil {
			err = resp.Body.Close()
		}
	}
	if err != nil {
		g.cfg.Log.Debug("remove a container whose start was refused", "error", err)
	}
	g.sweeps.later()
}

type inspected struct {
	ID     string `json:"Id"`
	Mounts []struct{ Type, Source, Destination string }

	HostConfig struct {
		AutoRemove   bool
		PortBindings map[string][]struct{ HostPort string }
	}
}

// inspect returns nil if there is no such container.
func (g *Guard) inspect(ctx context.Context, name string) (*inspected, error) {
	c := &inspected{}
	err := g.ask(ctx, "/containers/"+name+"/json", "", func(b []byte) error {
		if b == nil {
			c = nil
			return nil
		}
		if err := json.Unmarshal(b, c); err != nil {
			return err
		}
		if c.ID == "" {
			return fmt.Errorf("it has no id: %.100s", b)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("inspect %s: %w", strings.TrimPrefix(name, "/"), err)
	}
	return c, nil
}

func (g *Guard) ask(ctx context.Context, path, query string, read func([]byte) error) error {
	u := url.URL{Scheme: "http", Host: "docker", Path: path, RawQuery: query}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return err
	}
	resp, err := g.proxy.Transport.RoundTrip(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusNotFound {
		return read(nil)
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxInspect))
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the engine answers %s", resp.Status)
	}
	return read(b)
}
