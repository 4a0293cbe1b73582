package mcpserver

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
)

// Rebuild recreates the sandbox and keeps the work.
func (e *branchSandbox) Rebuild(ctx context.Context, c SandboxConfig) (SandboxInfo, error) {
	none := SandboxInfo{}
	if err := e.wake(ctx); err != nil {
		return none, err
	}
	s, ports, err := changedSpec(e.sb.Spec(), c)
	if err != nil {
		return none, err
	}
	again, err := e.sb.Rebuild(ctx, s)
	if err != nil {
		return none, WrongCall(app.SandboxError(err))
	}
	e.sb = again
	e.log.Info("environment recreated", "id", e.sb.Name())
	if _, err := e.exposed(ctx, ports); err != nil {
		fmt.Fprintln(e.said, err)
	}
	i, err := e.Info(ctx)
	i.Notes = append([]string{"the environment was recreated: what is committed is there; files outside of " + sandbox.CloneDir +
		", files that git ignores, the clone's own git state, and background commands are gone"}, i.Notes...)
	return i, err
}

// changedSpec returns a spec with another configuration, and its ports to serve on this machine. An agent may narrow the network, and
// never widen it.
func changedSpec(s sandbox.Spec, c SandboxConfig) (sandbox.Spec, []int, error) {
	if c.BaseImage != "" {
		if s.Network != sandbox.NetworkFull {
			return s, nil, Wrongf("base_image: with network %s an image is the user's to choose", s.Network)
		}
		if s.Box != nil && len(s.Box.SecretNames) > 0 { // the image's root has them
			return s, nil, Wrongf("base_image: the environment gets secrets of the project %s, so its image is the user's to choose", s.Project)
		}
	}
	change := app.SandboxChange{Image: c.BaseImage, Env: c.Env, Setup: c.SetupCommands}
	service, ports, err := newService(s, c.Service)
	if err != nil {
		return s, nil, err
	}
	if service != nil {
		change.Services = []sandbox.Service{*service}
	}
	next, err := change.Apply(s)
	if err != nil {
		return s, nil, WrongCall(err)
	}
	return next, ports, narrowed(&next, next.Box, c)
}

// narrowed changes what is reached.
func narrowed(s *sandbox.Spec, box *sandbox.BoxSpec, c SandboxConfig) error {
	order := []sandbox.NetworkMode{sandbox.NetworkNone, sandbox.NetworkRestricted, sandbox.NetworkFull}
	next := cmp.Or(sandbox.NetworkMode(c.Network), s.Network)
	switch at, to := slices.Index(order, s.Network), slices.Index(order, next); {
	case to < 0:
		return Wrongf("network %.40q: use full, restricted or none", c.Network)
	case to > at:
		return Wrongf("network %s: the environment has %s, and only the user may widen it, by `sandbox-agent network`", next, s.Network)
	case len(c.Allow) > 0 && next != sandbox.NetworkRestricted:
		return Wrongf("allow is for network restricted")
	}
	has := s.Allow
	if box != nil {
		has = slices.Concat(has, box.Network.Allow)
	}
	if s.Network == sandbox.NetworkRestricted {
		for _, rule := range c.Allow {
			if !slices.Contains(has, rule) {
				return Wrongf("allow %.80q: the environment reaches %s, and only the user may add to it", rule, strings.Join(has, ", "))
			}
		}
	}
	switch {
	case next != sandbox.NetworkRestricted:
		s.Allow = nil
	case len(c.Allow) > 0:
		s.Allow = c.Allow
		if box != nil {
			box.Network.Allow = nil
		}
	}
	s.Network = next
	return nil
}

// newService returns the service to add. The box publishes those of its ports that are free, which served has.
func newService(s sandbox.Spec, add *SandboxService) (n *sandbox.Service, served []int, err error) {
	switch {
	case add == nil:
		return nil, nil, nil
	case s.Network != sandbox.NetworkFull:
		return nil, nil, Wrongf("with network %s services are the user's to choose", s.Network)
	case add.Image == "":
		return nil, nil, Wrongf("service %.80s: image is needed", add.Name)
	}
	var has []sandbox.Service
	if s.Box != nil {
		has = s.Box.Services
	}
	if slices.ContainsFunc(has, func(o sandbox.Service) bool { return o.Name == add.Name }) {
		return nil, nil, Wrongf("service %.80s already exists", add.Name)
	}
	n = &sandbox.Service{Name: add.Name, Image: add.Image, Command: add.Command, Env: add.Env}
	for _, p := range add.Ports {
		port := strconv.Itoa(p)
		if !slices.ContainsFunc(has, func(o sandbox.Service) bool {
			return slices.ContainsFunc(o.Ports, func(has string) bool { return strings.HasPrefix(has, port+":") })
		}) {
			served, port = append(served, p), port+":"+port
		}
		n.Ports = append(n.Ports, port)
	}
	return n, served, nil
}
