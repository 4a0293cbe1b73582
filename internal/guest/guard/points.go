package guard

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"path"
	"strings"
	"sync"
	"time"
)

const (
	// maxPoints bounds the mount points at one time: each is in the mount table that the kernel copies for
	// every new container. Large compose projects have some tens of binds.
	maxPoints = 1024
	// nameBytes is the length of a mount point's random name, so that no client's text contains it by chance.
	nameBytes = 16
	// sweepTime bounds the query of the engine for the mount points in use.
	sweepTime = 30 * time.Second
)

// points are the mount points of binds. The engine resolves a bind's source as root at each start of the container,
// long after the guard has checked it. So the engine gets a path that only root can change; the source that the guard
// opened is mounted on it. The records have the same lifetime as the box's mounts: both end with the box.
type points struct {
	dir string // root only
	// system has the operations that need a box; tests replace it.
	system mounter

	mu    sync.Mutex
	ready bool
	all   map[string]*point
}

type point struct {
	bound
	pending bool // its container is being created: the engine may not have it yet
}

type bound struct {
	source string // clean and absolute, its links not followed
	create bool   // a missing source is created
	slave  bool   // later mounts of the box appear in it
}

type mounter struct {
	prepare func(dir string) error
	// put mounts the file of an O_PATH descriptor, in place of the point's earlier mount.
	put func(fd int, at string, slave bool) error
	// clear unmounts and removes a mount point; a missing one is not an error.
	clear func(at string) error
}

func newPoints(dir string) *points {
	return &points{dir: dir, system: realMounter(), all: map[string]*point{}}
}

func newName() string {
	b := make([]byte, nameBytes)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

func (p *points) path(name string) string { return path.Join(p.dir, name) }

func (p *points) name(source string) (string, bool) {
	name, ok := strings.CutPrefix(source, p.dir+"/")
	return name, ok && len(name) == 2*nameBytes
}

// add records a bind without mounting it; it reports whether there is room.
func (p *points) add(name string, b bound) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.all) >= maxPoints {
		return false
	}
	p.all[name] = &point{bound: b, pending: true}
	return true
}

func (p *points) bound(name string) (bound, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	one, ok := p.all[name]
	if !ok {
		return bound{}, false
	}
	return one.bound, true
}

func (p *points) any() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.all) > 0
}

// put mounts the descriptor's file at the point. Without a descriptor (-1) it leaves nothing there, which the
// engine then reports as a missing source. A point that was dropped meanwhile stays dropped.
func (p *points) put(name string, fd int, slave bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all[name] == nil {
		return nil
	}
	if !p.ready {
		if err := p.system.prepare(p.dir); err != nil {
			return err
		}
		p.ready = true
	}
	if fd < 0 {
		return p.system.clear(p.path(name))
	}
	return p.system.put(fd, p.path(name), slave)
}

// settle records that the engine has the containers of these points, or will never have them.
func (p *points) settle(names []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, name := range names {
		if one := p.all[name]; one != nil {
			one.pending = false
		}
	}
}

func (p *points) settled() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var names []string
	for name, one := range p.all {
		if !one.pending {
			names = append(names, name)
		}
	}
	return names
}

// drop removes points. Running containers keep their binds, because these are separate mounts. A point that
// cannot be removed stays recorded for the next try.
func (p *points) drop(names []string) (failed error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, name := range names {
		if p.all[name] == nil {
			continue
		}
		if p.ready {
			if err := p.system.clear(p.path(name)); err != nil {
				failed = err
				continue
			}
		}
		delete(p.all, name)
	}
	return failed
}

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
