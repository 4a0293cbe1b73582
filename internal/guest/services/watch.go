package services

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/events"
	"github.com/docker/docker/api/types/filters"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// eventsPause is before the event stream is opened again: it breaks when the
// engine is restarted, which takes a tenth of a second.
const eventsPause = 200 * time.Millisecond

// watch follows the services until Down.
func (s *Stack) watch(ctx context.Context) {
	ctx, s.stopWatch = context.WithCancel(context.WithoutCancel(ctx))
	s.watched.Go(func() {
		for ctx.Err() == nil {
			s.followEvents(ctx)
			if pause(ctx, eventsPause) != nil {
				return
			}
		}
	})
}

// followEvents reads the engine's events until the stream breaks. A look at every service
// comes after the stream is open, so that no death falls between.
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

// recheck notes a service that was ready and no longer is.
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
		return // the engine is not there: not a word about the service
	case in.State.Health != nil && in.State.Health.Status == container.Unhealthy:
		state, err = stateUnhealthy, errors.New("its healthcheck says unhealthy")
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
	u.mu.Unlock()
	s.emit(u, "failed", fmt.Sprintf("%v; end of its log:\n%s", err, tail))
	if state == stateExited {
		s.diedOnce.Do(func() { close(s.died) })
	}
}

// Unwatch stops following events and logs; Ends stays as it is from here on. It has to be
// called before the engine is stopped: else the services' end looks like a
// failure, and the engine waits for the streams to be closed.
func (s *Stack) Unwatch() {
	s.stopWatch()
	for _, u := range s.units {
		if u.logCancel != nil {
			u.logCancel()
		}
	}
}

// Down removes the services with their volumes, all at once, within ctx. It is
// tidying: what it leaves goes with the box.
func (s *Stack) Down(ctx context.Context) error {
	s.Unwatch()
	errs := make([]error, len(s.units))
	var wg sync.WaitGroup
	for i, u := range s.units {
		wg.Go(func() {
			if u.id == "" {
				return
			}
			err := s.cfg.Client.ContainerRemove(ctx, u.id, container.RemoveOptions{Force: true, RemoveVolumes: true})
			if err != nil && !errdefs.IsNotFound(err) {
				errs[i] = fmt.Errorf("remove service %s: %w", u.spec.Name, err)
			}
		})
	}
	wg.Wait()
	s.waitWatchers(ctx)
	var netErr error
	if s.network != "" {
		if err := s.cfg.Client.NetworkRemove(ctx, s.network); err != nil {
			netErr = fmt.Errorf("remove network of the services: %w", err)
		}
	}
	return errors.Join(append(errs, netErr)...)
}

// waitWatchers waits for the followers of logs and events; one may hang on an
// engine that does.
func (s *Stack) waitWatchers(ctx context.Context) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.watched.Wait()
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
}
