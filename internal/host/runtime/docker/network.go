package docker

import (
	"context"
	"errors"
	"fmt"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"

	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// noNetwork is the engine's network with only the loopback. A container cannot have it together with another one.
const noNetwork = "none"

// fullNetworks are the engine's default networks, by Docker's name and by podman's.
var fullNetworks = []string{"bridge", "podman"}

var _ runtime.PolicySetter = (*Sandboxes)(nil)

// networkOf returns the network mode of a container's networks.
func networkOf(s *container.NetworkSettingsSummary) workorder.NetworkMode {
	if s == nil {
		return ""
	}
	for name := range s.Networks {
		if name != noNetwork {
			return workorder.NetworkFull
		}
	}
	return workorder.NetworkNone
}

// SetNetwork implements runtime.PolicySetter. The engine keeps a container's networks over its stop.
func (e *Sandboxes) SetNetwork(ctx context.Context, id string, n workorder.NetworkPolicy) error {
	doing := fmt.Sprintf("set the sandbox's network to %s", n.Mode)
	if n.Mode != workorder.NetworkFull && n.Mode != workorder.NetworkNone {
		return fmt.Errorf("%s: %w", doing, runtime.ErrUnsupported)
	}
	ctx, cancel := e.answered(ctx)
	defer cancel()
	c, err := e.c.ContainerInspect(ctx, id)
	if err != nil {
		return e.wrap(doing, err)
	}
	on := &container.NetworkSettingsSummary{}
	if c.NetworkSettings != nil {
		on.Networks = c.NetworkSettings.Networks
	}
	if len(on.Networks) > 0 && networkOf(on) == n.Mode {
		return nil
	}
	for name := range on.Networks {
		if err := e.c.NetworkDisconnect(ctx, name, id, true); err != nil && !cerrdefs.IsNotFound(err) {
			return e.wrap(doing, err)
		}
	}
	if n.Mode == workorder.NetworkNone {
		// A container without networks would get the default one at its restart.
		return e.wrap(doing, e.c.NetworkConnect(ctx, noNetwork, id, nil))
	}
	for _, name := range fullNetworks {
		if err = e.c.NetworkConnect(ctx, name, id, nil); !cerrdefs.IsNotFound(err) {
			break
		}
	}
	if err != nil { // restore none
		undo, cancel := cleanup(ctx)
		defer cancel()
		err = errors.Join(err, e.c.NetworkConnect(undo, noNetwork, id, nil))
	}
	return e.wrap(doing, err)
}
