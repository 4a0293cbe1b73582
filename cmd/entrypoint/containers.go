package main

import (
	"context"
	"sync"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/dockerd"
)

// containers are the inner engine's, apart from those that the project declares. The agent and the repository's code start them;
// they outlive the processes that did, and may bind folders of the user's.
type containers struct {
	engine *dockerd.Engine

	mu   sync.Mutex
	keep map[string]bool // nil: not marked yet
}

// Mark notes the containers that are there now, before any code of the repository ran: they stay.
func (c *containers) Mark(ctx context.Context) error {
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

// Extra is how many others there are.
func (c *containers) Extra(ctx context.Context) (int, error) {
	ids, err := c.engine.Containers(ctx)
	n := 0
	for _, id := range ids {
		if !c.marked()[id] {
			n++
		}
	}
	return n, err
}

// Remove removes all others.
func (c *containers) Remove(ctx context.Context) error {
	return c.engine.RemoveContainers(ctx, c.marked())
}

func (c *containers) marked() map[string]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.keep
}
