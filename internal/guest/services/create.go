package services

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/go-connections/nat"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// create creates and starts the container and reads its address.
func (s *Stack) create(ctx context.Context, u *unit) error {
	conf, host, err := containerOf(u.spec, s.cfg.TaskID)
	if err != nil {
		return err
	}
	nets := &network.NetworkingConfig{EndpointsConfig: map[string]*network.EndpointSettings{
		NetworkName(s.cfg.TaskID): {Aliases: []string{u.spec.Name}},
	}}
	if u.id = s.stopped(ctx, u); u.id == "" {
		r, err := s.cfg.Client.ContainerCreate(ctx, conf, host, nets, nil, u.name)
		if err != nil {
			return fmt.Errorf("create container: %w", cause(ctx, err))
		}
		u.id = r.ID
	}
	if err := s.cfg.Client.ContainerStart(ctx, u.id, container.StartOptions{}); err != nil {
		return fmt.Errorf("start container: %w", cause(ctx, err))
	}
	in, err := s.cfg.Client.ContainerInspect(ctx, u.id)
	if err != nil {
		return fmt.Errorf("inspect container: %w", cause(ctx, err))
	}
	if e := in.NetworkSettings.Networks[NetworkName(s.cfg.TaskID)]; e != nil && e.IPAddress != "" {
		if u.ip, err = netip.ParseAddr(e.IPAddress); err != nil {
			return fmt.Errorf("read container's address: %w", err)
		}
		if err := s.serve(u); err != nil {
			return err
		}
	}
	// A container that has ended already has no address; ready reports how it ended.
	return nil
}

// serve forwards the service's ports of the sandbox to it.
func (s *Stack) serve(u *unit) error {
	for _, p := range u.spec.Ports {
		outer, port, err := parsePort(p)
		if err != nil || outer == "" || port.Proto() != "tcp" {
			continue // creating the container rejects invalid ports
		}
		own, err := strconv.Atoi(outer)
		if err == nil {
			err = s.ports.add(own, netip.AddrPortFrom(u.ip, uint16(port.Int())))
		}
		if err != nil {
			return fmt.Errorf("open port %s: %w", outer, err)
		}
	}
	return nil
}

// stopped returns the id of the service's container from before the box was stopped, with its data; "" if
// there is none.
func (s *Stack) stopped(ctx context.Context, u *unit) string {
	if !s.cfg.Again || u.name == "" {
		return ""
	}
	in, err := s.cfg.Client.ContainerInspect(ctx, u.name)
	if err != nil || in.Config == nil || in.Config.Labels[workorder.LabelTask] != s.cfg.TaskID {
		return ""
	}
	return in.ID
}

func containerOf(spec workorder.Service, taskID string) (*container.Config, *container.HostConfig, error) {
	ports, published := nat.PortSet{}, nat.PortMap{}
	for _, p := range spec.Ports {
		outer, port, err := parsePort(p)
		if err != nil {
			return nil, nil, err
		}
		ports[port] = struct{}{}
		if outer != "" && port.Proto() != "tcp" { // see publish
			published[port] = append(published[port], nat.PortBinding{HostIP: loopback, HostPort: outer})
		}
	}
	conf := &container.Config{
		Image: spec.Image, Env: env(spec.Env), Cmd: spec.Command, Hostname: hostname(spec.Name),
		ExposedPorts: ports, Healthcheck: healthcheck(spec.Healthcheck),
		Labels: map[string]string{workorder.LabelTask: taskID},
	}
	host := &container.HostConfig{
		PortBindings:  published,
		RestartPolicy: container.RestartPolicy{Name: container.RestartPolicyDisabled},
		LogConfig:     container.LogConfig{Type: "local", Config: map[string]string{"max-size": "10m", "max-file": "2"}},
	}
	for _, v := range spec.Volumes {
		name, target, ok := strings.Cut(v, ":")
		if !ok || strings.ContainsAny(name, `/\`) || name == "" {
			return nil, nil, fmt.Errorf("volume %q is not name:/path", v)
		}
		target, mode, _ := strings.Cut(target, ":")
		host.Mounts = append(host.Mounts, mount.Mount{
			Type: mount.TypeVolume, Source: name, Target: target, ReadOnly: mode == "ro",
		})
	}
	return conf, host, nil
}

// loopback is where ports are published: in the box, for the box only.
const loopback = "127.0.0.1"

// parsePort parses "6379" or "53/udp". The form "5433:5432" starts with the forwarded port of the box;
// otherwise outer is empty.
func parsePort(s string) (outer string, inner nat.Port, err error) {
	before, rest, two := strings.Cut(s, ":")
	if two {
		if !isPort(before) {
			return "", "", fmt.Errorf("port %q: %q is not a number from 1 to 65535", s, before)
		}
		outer, s = before, rest
	}
	number, proto, ok := strings.Cut(s, "/")
	if !ok {
		proto = "tcp"
	}
	if !isPort(number) {
		return "", "", fmt.Errorf("port %q is not a number from 1 to 65535", s)
	}
	if inner, err = nat.NewPort(proto, number); err != nil {
		return "", "", fmt.Errorf("port %q: %w", s, err)
	}
	return outer, inner, nil
}

func isPort(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && n > 0
}

// hostname returns a container host name without characters that the kernel rejects.
func hostname(name string) string {
	if len(name) > 63 {
		return name[:63]
	}
	return name
}

const (
	// A healthcheck without an interval runs often: the first success gates the run, and the engine's default of
	// 30 s would delay it by that time.
	defaultInterval = time.Second
	defaultTimeout  = 10 * time.Second
	defaultRetries  = 30
)

func healthcheck(h *workorder.Healthcheck) *container.HealthConfig {
	if h == nil || len(h.Test) == 0 {
		return nil
	}
	test := h.Test
	switch {
	case test[0] == "NONE" || test[0] == "CMD" || test[0] == "CMD-SHELL":
	case len(test) == 1:
		test = []string{"CMD-SHELL", test[0]}
	default:
		test = append([]string{"CMD"}, test...)
	}
	c := &container.HealthConfig{Test: test, Interval: defaultInterval, Timeout: defaultTimeout, Retries: defaultRetries}
	if h.IntervalSeconds > 0 {
		c.Interval = seconds(h.IntervalSeconds)
	}
	if h.TimeoutSeconds > 0 {
		c.Timeout = seconds(h.TimeoutSeconds)
	}
	if h.Retries > 0 {
		c.Retries = h.Retries
	}
	return c
}

// seconds returns at least the engine's smallest duration.
func seconds(s float64) time.Duration {
	return max(time.Millisecond, time.Duration(s*float64(time.Second)))
}

// cause replaces a bare context error with the reason for which ctx ended.
func cause(ctx context.Context, err error) error {
	// Our own deadline ended the call: the reason explains everything, the engine's message nothing.
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
