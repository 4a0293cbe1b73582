package innerengine

import (
	"context"
	"errors"
	"sync"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/dockerd"
)

// Containers controls the containers of the inner engine except those that the project declares. The agent
// and the repository's code start them; they outlive the processes that started them, and may bind
// directories of the user.
type Containers struct {
	engine *dockerd.Engine

	mu   sync.Mutex
	keep map[string]bool // nil if not marked yet
}

// Mark records the containers that exist now, before any code of the repository ran: they stay.
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

// remark repeats Mark for an engine that was renewed.
func (c *Containers) remark(ctx context.Context) error {
	c.mu.Lock()
	c.keep = nil
	c.mu.Unlock()
	return c.Mark(ctx)
}

// errUnmarked prevents the project's own services from being treated as other containers.
var errUnmarked = errors.New("the project's own containers are unknown: the engine did not list them when setup began")

// Extra returns the number of other containers.
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

// Binding returns how many of the others run and bind directories of the user.
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

// Remove removes all other containers.
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
