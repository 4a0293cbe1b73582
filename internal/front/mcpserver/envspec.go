package mcpserver

import (
	"cmp"
	"context"
	"fmt"
	"maps"
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
	s.Env, s.ImageEnv = slices.Clone(s.Env), maps.Clone(s.ImageEnv)
	var box *sandbox.BoxSpec
	if s.Box != nil {
		copied := *s.Box
		copied.Env, copied.ImageEnv, copied.Services = maps.Clone(copied.Env), maps.Clone(copied.ImageEnv), slices.Clone(copied.Services)
		box, s.Box = &copied, &copied
	}
	if err := narrowed(&s, box, c); err != nil {
		return s, nil, err
	}
	if c.BaseImage != "" {
		if s.Runtime == sandbox.RuntimeJail {
			return s, nil, Wrongf("base_image: a jail has this machine's programs; ask the user to start the server with --runtime box or container")
		}
		if s.Network != sandbox.NetworkFull {
			return s, nil, Wrongf("base_image: with network %s an image is the user's to choose", s.Network)
		}
		if box != nil && len(box.SecretNames) > 0 { // the image's root has them
			return s, nil, Wrongf("base_image: the environment gets secrets of the project %s, so its image is the user's to choose", s.Project)
		}
		s.Image = c.BaseImage
	}
	for _, name := range slices.Sorted(maps.Keys(c.Env)) {
		if name == "" || strings.Contains(name, "=") {
			return s, nil, Wrongf("env: %.80q is no name of a variable", name)
		}
		s.Env = slices.DeleteFunc(s.Env, func(kv string) bool { return strings.HasPrefix(kv, name+"=") })
		delete(s.ImageEnv, name)
		if box != nil {
			delete(box.Env, name)
			delete(box.ImageEnv, name)
		}
		if v := c.Env[name]; v != nil {
			s.Env = append(s.Env, name+"="+*v)
		}
	}
	if c.SetupCommands != nil {
		if box == nil {
			return s, nil, Wrongf("setup_commands: runtime %s has none; run the commands by environment_run_cmd", s.Runtime)
		}
		box.Setup, box.SetupAsked = *c.SetupCommands, true
	}
	ports, err := withService(s, box, c.Service)
	return s, ports, err
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

// withService adds a service. The box publishes those of its ports that are free.
func withService(s sandbox.Spec, box *sandbox.BoxSpec, add *SandboxService) (served []int, err error) {
	switch {
	case add == nil:
		return nil, nil
	case box == nil:
		return nil, Wrongf("runtime %s has no services: ask the user to start the server with --runtime box", s.Runtime)
	case s.Network != sandbox.NetworkFull:
		return nil, Wrongf("with network %s services are the user's to choose", s.Network)
	case slices.ContainsFunc(box.Services, func(o sandbox.Service) bool { return o.Name == add.Name }):
		return nil, Wrongf("service %.80s already exists", add.Name)
	}
	n := sandbox.Service{Name: add.Name, Image: add.Image, Command: add.Command, Env: add.Env, Asked: true}
	for _, p := range add.Ports {
		port := strconv.Itoa(p)
		if !slices.ContainsFunc(box.Services, func(o sandbox.Service) bool {
			return slices.ContainsFunc(o.Ports, func(has string) bool { return strings.HasPrefix(has, port+":") })
		}) {
			served, port = append(served, p), port+":"+port
		}
		n.Ports = append(n.Ports, port)
	}
	box.Services = append(box.Services, n)
	return served, nil
}
