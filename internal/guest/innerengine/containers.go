package innerengine

import (
	"context"
	"errors"
	"sync"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/dockerd"
)

// Containers are the inner engine's, apart from those that the project declares. The agent and the repository's code start them;
// they outlive the processes that did, and may bind folders of the user's.
type Containers struct {
	engine *dockerd.Engine

	mu   sync.Mutex
	keep map[string]bool // nil means not marked yet
}

// Mark notes the containers that are there now, before any code of the repository ran: they stay.
func (c *Containers) Mark(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.keep != nil {
		return nil
	}
	ids, err := c.engine.Containers(ctx)
	if err != nil {
		return err
	}
	c.keep = map[string]bool{}
	for _, id := range ids {
		c.keep[id] = true
	}
	return nil
}

// remark is Mark once more, for an engine that was renewed.
func (c *Containers) remark(ctx context.Context) error {
	c.mu.Lock()
	c.keep = nil
	c.mu.Unlock()
	return c.Mark(ctx)
}

// errUnmarked keeps the project's own services from being taken for somebody else's containers.
var errUnmarked = errors.New("nobody knows which containers are the project's own: the engine did not say when setup began")

// Extra is how many others there are.
func (c *Containers) Extra(ctx context.Context) (int, error) {
	keep, err := c.marked()
	if err != nil {
		return 0, err
	}
	ids, err := c.engine.Containers(ctx)
	n := 0
	for _, id := range ids {
		if !keep[id] {
			n++
		}
	}
	return n, err
}

// Binding is how many of the others run and have folders of the user's.
func (c *Containers) Binding(ctx context.Context) (n int, err error) {
	keep, err := c.marked()
	if err != nil {
		return 0, err
	}
	ids, err := c.engine.Binders(ctx)
	for _, id := range ids {
		if !keep[id] {
			n++
		}
	}
	return n, err
}

// Remove removes all others.
func (c *Containers) Remove(ctx context.Context) error {
	keep, err := c.marked()
	if err != nil {
		return err
	}
	return c.engine.RemoveContainers(ctx, keep)
}

func (c *Containers) marked() (map[string]bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.keep == nil {
		return nil, errUnmarked
	}
	return c.keep, nil
}
