// Package services starts the containers that a task needs, waits for their health and watches them during the attempt.
package services

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/client"

	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// apiTimeout bounds calls that the service's own time limit does not cover.
const apiTimeout = 30 * time.Second

// States of a service, as in workorder.ServiceEnd.
const (
	stateReady     = "ready"
	stateExited    = "exited"
	stateUnhealthy = "unhealthy"
	stateFailed    = "failed"
)

// Config lists the services and the receivers of their reports.
type Config struct {
	Client   *client.Client
	Services []workorder.Service
	TaskID   string
	MTU      int
	Emit     func(workorder.Event)
	// Lost is called with one sentence for a service that is no longer ready. It must be safe for concurrent use.
	Lost func(text string)
	// LogDir receives service-<name>.log; LogRel is the same directory relative to the result directory.
	LogDir, LogRel string
	// Clean masks secrets in a log; nil if there are none.
	Clean func(io.Writer) io.WriteCloser
	// Inbox is where the host stores image archives.
	Inbox string
	// HostImages are the images that the host can provide, with its ids ("" if unknown); another id is requested again.
	HostImages map[string]string
	// Again means that the services may exist from before the box was stopped, with their data.
	Again bool
	Log   *slog.Logger
}

// Stack is the set of running services.
type Stack struct {
	cfg   Config
	units []*unit
	ports *publish

	stopWatch context.CancelFunc
}

type unit struct {
	spec      workorder.Service
	name      string // of the container
	id        string
	ip        netip.Addr
	started   time.Time
	logCancel context.CancelFunc

	mu      sync.Mutex
	state   string
	readyMS int64
	tail    string
	told    string // state that was reported to Config.Lost
}

// containerName returns the service's name if the engine accepts it; the engine requires two characters.
func containerName(service string) string {
	if len(service) < 2 {
		return ""
	}
	return service
}

// NetworkName returns the network of a task's services; containers that the agent starts can join it by this name.
func NetworkName(taskID string) string { return "sandbox-agent-" + taskID }

// Up starts every service and returns when all are ready or have failed. It returns the stack in both cases; the error
// names every failed service.
func Up(ctx context.Context, cfg Config) (*Stack, error) {
	s := &Stack{cfg: cfg, stopWatch: func() {}}
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.ports = &publish{ctx: life, stop: stop, ended: s.ended, all: map[int]*forward{}}
	for _, spec := range cfg.Services {
		s.units = append(s.units, &unit{spec: spec, name: containerName(spec.Name), state: stateFailed})
	}
	if len(s.units) == 0 {
		return s, nil
	}
	img := newImages(cfg)
	// The images do not need the network, and vice versa.
	netErr := make(chan error, 1)
	go func() { netErr <- s.makeNetwork(ctx) }()
	ready := sync.OnceValue(func() error { return <-netErr })

	errs := make([]error, len(s.units))
	var wg sync.WaitGroup
	for i, u := range s.units {
		wg.Go(func() {
			if err := s.up(ctx, u, img, ready); err != nil {
				errs[i] = fmt.Errorf("service %s: %w", u.spec.Name, err)
				s.emit(u, "failed", err.Error())
			}
		})
	}
	wg.Wait()
	if err := errors.Join(append(errs, ready())...); err != nil {
		return s, err
	}
	s.watch(ctx)
	return s, nil
}

func (s *Stack) makeNetwork(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	opts := network.CreateOptions{
		Driver: "bridge",
		Labels: map[string]string{workorder.LabelTask: s.cfg.TaskID},
	}
	if s.cfg.MTU > 0 {
		opts.Options = map[string]string{"com.docker.network.driver.mtu": strconv.Itoa(s.cfg.MTU)}
	}
	if s.cfg.Again {
		if _, err := s.cfg.Client.NetworkInspect(ctx, NetworkName(s.cfg.TaskID), network.InspectOptions{}); err == nil {
			return nil
		}
	}
	_, err := s.cfg.Client.NetworkCreate(ctx, NetworkName(s.cfg.TaskID), opts)
	if err != nil {
		return fmt.Errorf("create network of the services: %w", err)
	}
	return nil
}

func (s *Stack) up(ctx context.Context, u *unit, img *images, network func() error) error {
	u.started = time.Now()
	if err := img.ensure(ctx, u.spec.Image, func(state, text string) { s.emit(u, state, text) }); err != nil {
		return err
	}
	if err := network(); err != nil {
		return err
	}
	// Getting the image has its own limits; the service's clock starts now.
	limit := u.spec.StartTimeout()
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not ready after %s", limit))
	defer cancel()
	s.emit(u, "starting", "")
	u.started = time.Now()
	if err := s.create(ctx, u); err != nil {
		return err
	}
	s.follow(ctx, u)
	s.emit(u, "started", "")
	how, err := s.ready(ctx, u)
	if err != nil {
		return s.explain(ctx, u, err)
	}
	u.mu.Lock()
	u.state, u.readyMS = stateReady, time.Since(u.started).Milliseconds()
	u.mu.Unlock()
	s.emit(u, "ready", how)
	return nil
}

// GiveWay frees forwarded ports for a container that is about to publish them. Call started after the engine's answer.
func (s *Stack) GiveWay(id string, ports []string) (started func()) { return s.ports.give(id, ports) }

// ended reports whether a container does not exist, or has ended for good.
func (s *Stack) ended(ctx context.Context, id string) bool {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	in, err := s.cfg.Client.ContainerInspect(ctx, id)
	if err != nil {
		return cerrdefs.IsNotFound(err)
	}
	return in.State == nil || slices.Contains([]string{container.StateCreated, container.StateExited, container.StateDead}, in.State.Status)
}

func (s *Stack) emit(u *unit, status, said string) {
	s.cfg.Emit(workorder.Event{
		Type: workorder.EventService, Name: u.spec.Name, Status: status, Text: text.Prefix(said, workorder.MaxEventText),
		DurationMS: time.Since(u.started).Milliseconds(),
	})
}

// Hosts returns the addresses of the services by name.
func (s *Stack) Hosts() map[string]netip.Addr {
	hosts := map[string]netip.Addr{}
	for _, u := range s.units {
		if u.ip.IsValid() {
			hosts[u.spec.Name] = u.ip
		}
	}
	return hosts
}

// Failed returns the names of the services that are not ready.
func (s *Stack) Failed() (names []string) {
	for _, u := range s.units {
		u.mu.Lock()
		if u.state != stateReady {
			names = append(names, u.spec.Name)
		}
		u.mu.Unlock()
	}
	return names
}

// Ends returns the last known states of the services.
func (s *Stack) Ends() []workorder.ServiceEnd {
	var ends []workorder.ServiceEnd
	for _, u := range s.units {
		u.mu.Lock()
		ends = append(ends, workorder.ServiceEnd{
			Name: u.spec.Name, Image: u.spec.Image, State: u.state, ReadyMS: u.readyMS,
			Log: filepath.Join(s.cfg.LogRel, s.logName(u)), Tail: u.tail,
		})
		u.mu.Unlock()
	}
	return ends
}

func env(m map[string]string) []string {
	var e []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		e = append(e, k+"="+m[k])
	}
	return e
}

// hostsMark ends the lines of this package, so that writing again replaces them.
const hostsMark = "# sandbox-agent service"

// WriteHosts adds names to a hosts file and keeps every other line. It writes in place, because the engine mounts the
// file into the box; it extends first and cuts last, so that readers see complete lines.
func WriteHosts(path string, names map[string]netip.Addr) error {
	old, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("write service names: %w", err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("write service names: %w", err)
	}
	defer f.Close()
	text := hostsText(old, names)
	if _, err := f.WriteAt(text, 0); err != nil {
		return fmt.Errorf("write service names: %w", err)
	}
	if err := f.Truncate(int64(len(text))); err != nil {
		return fmt.Errorf("write service names: %w", err)
	}
	return nil
}

func hostsText(old []byte, names map[string]netip.Addr) []byte {
	var b bytes.Buffer
	for line := range strings.Lines(string(old)) {
		if !strings.HasSuffix(strings.TrimSpace(line), hostsMark) {
			b.WriteString(strings.TrimSuffix(line, "\n") + "\n")
		}
	}
	for _, n := range slices.Sorted(maps.Keys(names)) {
		fmt.Fprintf(&b, "%s\t%s %s\n", names[n], n, hostsMark)
	}
	return b.Bytes()
}
