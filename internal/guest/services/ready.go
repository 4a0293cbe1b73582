package services

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/events"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/pkg/stdcopy"
	"github.com/docker/go-connections/nat"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const (
	// portPause is the interval of connection attempts: short, because the run waits for it.
	portPause = 15 * time.Millisecond
	// dialTimeout bounds one attempt: the address is on a bridge of this box.
	dialTimeout = time.Second
	// healthPause is the interval of checks of a container's own health.
	healthPause = 50 * time.Millisecond
	// probeTimeout bounds one run of the healthcheck's command by this package.
	probeTimeout = 10 * time.Second
	// statePause is the interval of checks for a container that ended while its port is tried.
	statePause = 100 * time.Millisecond
	// settled is how long a service without port and healthcheck must run to count as started.
	settled = time.Second
)

// endedError reports a container that ended before or after it was ready.
type endedError struct {
	code int
	oom  bool
	why  string
}

func (e *endedError) Error() string {
	switch {
	case e.oom:
		return "its container was killed: out of memory"
	case e.why != "":
		return fmt.Sprintf("its container exited with code %d: %s", e.code, e.why)
	}
	return fmt.Sprintf("its container exited with code %d", e.code)
}

// unhealthyError reports a healthcheck that gave up.
type unhealthyError struct{ output string }

func (e *unhealthyError) Error() string {
	if e.output == "" {
		return "its healthcheck reports unhealthy"
	}
	return "its healthcheck reports unhealthy: " + e.output
}

// ready waits for the service and returns the criterion of its readiness.
func (s *Stack) ready(ctx context.Context, u *unit) (string, error) {
	in, err := s.look(ctx, u)
	if err != nil {
		return "", err
	}
	if in.State.Health != nil && in.State.Health.Status != container.NoHealthcheck {
		return "healthcheck", s.healthy(ctx, u)
	}
	if port, ok := firstTCP(u, in); ok {
		return "port " + port, s.accepts(ctx, u, port)
	}
	return "running", s.settles(ctx, u)
}

func (s *Stack) look(ctx context.Context, u *unit) (container.InspectResponse, error) {
	in, err := s.cfg.Client.ContainerInspect(ctx, u.id)
	if err != nil {
		return in, cause(ctx, fmt.Errorf("inspect container: %w", err))
	}
	if st := in.State; !st.Running && st.Status != container.StateCreated {
		return in, &endedError{code: st.ExitCode, oom: st.OOMKilled, why: st.Error}
	}
	return in, nil
}

// healthy waits until the healthcheck passes. The engine first runs it after a whole interval, so this package also
// runs it until it passes once. Only the engine decides that it has failed.
func (s *Stack) healthy(ctx context.Context, u *unit) error {
	last := ""
	for {
		in, err := s.look(ctx, u)
		if err != nil && ctx.Err() != nil {
			return fmt.Errorf("%w: last output of its healthcheck: %s", err, last)
		}
		if err != nil {
			return err
		}
		if h := in.State.Health; h != nil {
			if n := len(h.Log); n > 0 {
				last = h.Log[n-1].Output
			}
			switch h.Status {
			case container.Healthy:
				return nil
			case container.Unhealthy:
				return &unhealthyError{output: last}
			}
		}
		ok, out := s.probe(ctx, u, in)
		if ok {
			return nil
		}
		// A check that our own deadline cut off says nothing about the service.
		if out != "" && ctx.Err() == nil {
			last = out
		}
		if err := pause(ctx, healthPause); err != nil {
			return fmt.Errorf("%w: last output of its healthcheck: %s", err, last)
		}
	}
}

func (s *Stack) probe(ctx context.Context, u *unit, in container.InspectResponse) (ok bool, output string) {
	argv := healthArgv(in.Config)
	if argv == nil {
		return false, ""
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	x, err := s.cfg.Client.ContainerExecCreate(ctx, u.id, container.ExecOptions{Cmd: argv, AttachStdout: true, AttachStderr: true})
	if err != nil {
		return false, err.Error()
	}
	at, err := s.cfg.Client.ContainerExecAttach(ctx, x.ID, container.ExecAttachOptions{})
	if err != nil {
		return false, err.Error()
	}
	stop := context.AfterFunc(ctx, at.Close) // a hanging command holds the stream
	defer stop()
	defer at.Close()
	var b strings.Builder
	w := proc.NewHead(&b, maxTail)
	_, _ = stdcopy.StdCopy(w, w, at.Reader) // only the exit code counts
	st, err := s.cfg.Client.ContainerExecInspect(ctx, x.ID)
	if err != nil {
		return false, err.Error()
	}
	if output = strings.TrimSpace(b.String()); output == "" && !st.Running {
		output = fmt.Sprintf("(exit code %d, no output)", st.ExitCode)
	}
	return !st.Running && st.ExitCode == 0, output
}

// healthArgv returns the healthcheck as a command line; nil if there is none.
func healthArgv(c *container.Config) []string {
	if c == nil || c.Healthcheck == nil || len(c.Healthcheck.Test) < 2 {
		return nil
	}
	test := c.Healthcheck.Test
	switch test[0] {
	case "CMD":
		return test[1:]
	case "CMD-SHELL":
		shell := []string{"/bin/sh", "-c"}
		if len(c.Shell) > 0 {
			shell = c.Shell
		}
		return append(slices.Clone(shell), test[1])
	}
	return nil
}

// firstTCP returns the port to check: the first declared one, else the lowest that the image exposes.
func firstTCP(u *unit, in container.InspectResponse) (string, bool) {
	for _, p := range u.spec.Ports {
		if _, port, err := parsePort(p); err == nil && port.Proto() == "tcp" {
			return port.Port(), true
		}
	}
	if len(u.spec.Ports) > 0 || in.Config == nil {
		return "", false
	}
	var exposed []int
	for p := range in.Config.ExposedPorts {
		if port := nat.Port(p); port.Proto() == "tcp" {
			exposed = append(exposed, port.Int())
		}
	}
	if len(exposed) == 0 {
		return "", false
	}
	return strconv.Itoa(slices.Min(exposed)), true
}

// accepts waits until the port accepts a connection. On timeout the error names the port, whatever operation timed out.
func (s *Stack) accepts(ctx context.Context, u *unit, port string) error {
	d := net.Dialer{Timeout: dialTimeout}
	looked := time.Now()
	for {
		if u.ip.IsValid() {
			c, err := d.DialContext(ctx, "tcp", net.JoinHostPort(u.ip.String(), port))
			if err == nil {
				return c.Close()
			}
		}
		if time.Since(looked) >= statePause || !u.ip.IsValid() {
			if _, err := s.look(ctx, u); err != nil && ctx.Err() == nil {
				return err
			}
			looked = time.Now()
		}
		if err := pause(ctx, portPause); err != nil {
			return fmt.Errorf("%w: port %s does not accept connections", err, port)
		}
	}
}

func (s *Stack) settles(ctx context.Context, u *unit) error {
	for until := time.Now().Add(settled); time.Now().Before(until); {
		if err := pause(ctx, statePause); err != nil {
			return err
		}
		if _, err := s.look(ctx, u); err != nil {
			return err
		}
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

func (s *Stack) explain(ctx context.Context, u *unit, err error) error {
	state := stateFailed
	switch {
	case errorsAs[*endedError](err):
		state = stateExited
	case errorsAs[*unhealthyError](err):
		state = stateUnhealthy
	}
	tail := s.logTail(ctx, u)
	u.mu.Lock()
	u.state, u.tail = state, tail
	u.mu.Unlock()
	if tail == "" {
		return fmt.Errorf("%w; it wrote no log", err)
	}
	return fmt.Errorf("%w; end of its log:\n%s", err, tail)
}

func errorsAs[T error](err error) bool {
	var t T
	return errors.As(err, &t)
}

// eventsPause is the pause before the event stream is reopened after a restart of the engine.
const eventsPause = 200 * time.Millisecond

func (s *Stack) watch(ctx context.Context) {
	ctx, s.stopWatch = context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		for ctx.Err() == nil {
			s.followEvents(ctx)
			if pause(ctx, eventsPause) != nil {
				return
			}
		}
	}()
}

// followEvents reads the engine's events until the stream breaks, and first checks every service.
func (s *Stack) followEvents(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	msgs, errs := s.cfg.Client.Events(ctx, events.ListOptions{Filters: filters.NewArgs(
		filters.Arg("type", string(events.ContainerEventType)),
		filters.Arg("label", workorder.LabelTask+"="+s.cfg.TaskID),
		filters.Arg("event", string(events.ActionDie)),
		filters.Arg("event", string(events.ActionHealthStatus)),
	)})
	for _, u := range s.units {
		s.recheck(ctx, u)
	}
	for {
		select {
		case err := <-errs:
			if ctx.Err() == nil {
				s.cfg.Log.Warn("services are no longer watched", "error", err)
			}
			return
		case m := <-msgs:
			for _, u := range s.units {
				if u.id == m.Actor.ID {
					s.recheck(ctx, u)
				}
			}
		}
	}
}

// recheck records a service that was ready and no longer is.
func (s *Stack) recheck(ctx context.Context, u *unit) {
	in, err := s.look(ctx, u)
	if ctx.Err() != nil {
		return
	}
	state := stateReady
	switch {
	case errorsAs[*endedError](err), errdefs.IsNotFound(err):
		state = stateExited
	case err != nil:
		return // the engine is unavailable: this says nothing about the service
	case in.State.Health != nil && in.State.Health.Status == container.Unhealthy:
		state, err = stateUnhealthy, errors.New("its healthcheck reports unhealthy")
	}
	u.mu.Lock()
	was := u.state
	u.state = state
	u.mu.Unlock()
	if state == was {
		return
	}
	if state == stateReady {
		s.emit(u, "ready", "healthy again")
		return
	}
	tail := s.logTail(ctx, u)
	u.mu.Lock()
	u.tail = tail
	news := u.told != state && u.told != stateExited
	if news {
		u.told = state
	}
	u.mu.Unlock()
	s.emit(u, "failed", fmt.Sprintf("%v; end of its log:\n%s", err, tail))
	if news {
		s.cfg.Lost(fmt.Sprintf("service %s failed during the run: %v", u.spec.Name, err))
	}
}

// Unwatch stops following events and logs; Ends does not change from here on. Call it before the engine is stopped:
// otherwise the services' end looks like a failure.
func (s *Stack) Unwatch() {
	s.stopWatch()
	s.ports.close()
	for _, u := range s.units {
		if u.logCancel != nil {
			u.logCancel()
		}
	}
}
