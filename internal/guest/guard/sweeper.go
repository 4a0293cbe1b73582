package guard

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
)

// sweeper removes mount points that no container uses.
type sweeper struct {
	points *points
	ask    func(ctx context.Context, path, query string, read func([]byte) error) error // the engine
	asked  chan struct{}                                                                // asks for a sweep, see later
	log    *slog.Logger
}

// later requests the removal of points whose containers are gone.
func (s *sweeper) later() {
	select {
	case s.asked <- struct{}{}:
	default: // a pending sweep covers this request
	}
}

func (s *sweeper) until(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.asked:
		}
		if err := s.sweep(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn("remove unused mount points of binds; retrying later", "err", err)
		}
	}
}

// sweep removes the points that no container has. Containers can share points (--volumes-from), and the engine
// removes some containers by itself (--rm), so the engine's list decides. It is requested after the points are
// read: a settled point whose container still exists is in it.
func (s *sweeper) sweep(ctx context.Context) error {
	unused := map[string]bool{}
	for _, name := range s.points.settled() {
		unused[name] = true
	}
	if len(unused) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, sweepTime)
	defer cancel()
	var list []struct{ Mounts []struct{ Source string } }
	if err := s.ask(ctx, "/containers/json", "all=1", func(b []byte) error { return json.Unmarshal(b, &list) }); err != nil {
		return fmt.Errorf("list the binds of all containers: %w", err)
	}
	for _, c := range list {
		for _, m := range c.Mounts {
			if name, ok := s.points.name(m.Source); ok {
				delete(unused, name)
			}
		}
	}
	names := make([]string, 0, len(unused))
	for name := range unused {
		names = append(names, name)
	}
	return s.points.drop(names)
}
