package services

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/events"
	"github.com/docker/docker/api/types/filters"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// eventsPause is the pause before the event stream is reopened: it breaks when the engine is restarted, which
// takes a tenth of a second.
const eventsPause = 200 * time.Millisecond

// watch follows the services until Unwatch.
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

// followEvents reads the engine's events until the stream breaks. It checks every service once the stream is
// open, so that no death is missed.
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

// Unwatch stops following events and logs; Ends does not change from here on. It must be called before the
// engine is stopped: otherwise the services' end looks like a failure, and the engine waits for the streams
// to be closed.
func (s *Stack) Unwatch() {
	s.stopWatch()
	s.ports.close()
	for _, u := range s.units {
		if u.logCancel != nil {
			u.logCancel()
		}
	}
}
