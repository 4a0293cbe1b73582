package services

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/go-connections/nat"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

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

// stopped returns the id of the service's container from before the box was stopped; "" if there is none.
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
		Image: spec.Image, Env: env(spec.Env), Cmd: spec.Command, Hostname: spec.Name[:min(len(spec.Name), maxHostname)],
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

// parsePort parses "6379", "53/udp" or "5433:5432", where outer is the forwarded port of the box.
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

// maxHostname is the kernel's limit.
const maxHostname = 63

const (
	// A healthcheck without an interval runs often: its first success gates the run.
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

// publish forwards the sandbox's own TCP ports to services. It yields a port to a container that publishes it.
type publish struct {
	ctx  context.Context // ends with the services
	stop context.CancelFunc
	// ended reports whether a container no longer holds any port.
	ended func(ctx context.Context, id string) bool

	mu  sync.Mutex
	all map[int]*forward // by port
}

type forward struct {
	to       netip.AddrPort
	listener net.Listener // nil while a container holds the port
	holder   string       // that container, the last one to start
	starting int          // number of containers that the engine is starting on the port
}

const (
	dialTime = 10 * time.Second
	// retake is the interval of checks whether a port is free again.
	retake = time.Second
)

// add forwards a port. A port that another program uses is left to it.
func (p *publish) add(port int, to netip.AddrPort) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := &forward{to: to}
	if err := p.open(port, f); err != nil {
		return err
	}
	p.all[port] = f
	return nil
}

// open must be called with the lock held.
func (p *publish) open(port int, f *forward) error {
	l, err := (&net.ListenConfig{}).Listen(p.ctx, "tcp", net.JoinHostPort(loopback, strconv.Itoa(port)))
	if err != nil {
		return err
	}
	f.listener, f.holder = l, ""
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go carry(p.ctx, c, f.to)
		}
	}()
	return nil
}

func carry(ctx context.Context, client net.Conn, to netip.AddrPort) {
	defer client.Close()
	server, err := (&net.Dialer{Timeout: dialTime}).DialContext(ctx, "tcp", to.String())
	if err != nil {
		return
	}
	defer server.Close()
	defer context.AfterFunc(ctx, func() { _, _ = client.Close(), server.Close() })()
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{client, server}, {server, client}} {
		both.Go(func() {
			_, _ = io.Copy(way[1], way[0])
			if c, ok := way[1].(*net.TCPConn); ok {
				_ = c.CloseWrite()
			}
		})
	}
	both.Wait()
}

// give frees ports ("80", "8000-8010") for a container that is about to start. Call started after the engine's answer.
func (p *publish) give(id string, ports []string) (started func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var given []int
	var wanted []*forward
	for port, f := range p.all {
		if !wants(ports, port) {
			continue
		}
		if f.listener != nil {
			_ = f.listener.Close()
			given = append(given, port)
		}
		f.listener, f.holder = nil, id
		f.starting++
		wanted = append(wanted, f)
	}
	return func() {
		p.mu.Lock()
		for _, f := range wanted {
			f.starting--
		}
		p.mu.Unlock()
		if len(given) > 0 {
			go p.take(given)
		}
	}
}

func wants(ports []string, port int) bool {
	for _, p := range ports {
		first, last, span := strings.Cut(p, "-")
		from, err := strconv.Atoi(first)
		to := from
		if span && err == nil {
			to, err = strconv.Atoi(last)
		}
		if err == nil && from <= port && port <= to {
			return true
		}
	}
	return false
}

// take reopens the ports once their containers have ended.
func (p *publish) take(ports []int) {
	for range proc.Ticks(p.ctx.Done(), retake) {
		if ports = slices.DeleteFunc(ports, p.retaken); len(ports) == 0 {
			return
		}
	}
}

func (p *publish) retaken(port int) bool {
	p.mu.Lock()
	f, holder, starting := p.all[port], "", 0
	if f != nil {
		holder, starting = f.holder, f.starting
	}
	p.mu.Unlock()
	if starting > 0 || holder != "" && !p.ended(p.ctx, holder) {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if f == nil || p.all[port] != f || f.listener != nil {
		return true
	}
	return f.starting == 0 && f.holder == holder && p.open(port, f) == nil
}

func (p *publish) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.all {
		if f.listener != nil {
			_ = f.listener.Close()
		}
	}
	clear(p.all)
	p.stop()
}
