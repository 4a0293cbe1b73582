package guard

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// maxPoints bounds the mount points at one time: each is in the mount table that the kernel copies.
	maxPoints = 1024
	// nameBytes is the length of a mount point's random name, so that no client's text contains it by chance.
	nameBytes = 16
	// sweepTime bounds the query of the engine for the mount points in use.
	sweepTime = 30 * time.Second
)

// bindMounts are the mount points of binds. The engine resolves a bind's source as root at each start, long after the
// guard has checked it. So the engine gets a path that only root can change, on which the opened source is mounted.
type bindMounts struct {
	dir string // root only
	// system has the operations that need a box; tests replace it.
	system mounter

	mu    sync.Mutex
	ready bool
	all   map[string]*bindMount
}

type bindMount struct {
	bindRequest
	pending bool // its container is being created: the engine may not have it yet
}

type bindRequest struct {
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

func newName() string {
	b := make([]byte, nameBytes)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

func (m *bindMounts) path(name string) string { return path.Join(m.dir, name) }

func (m *bindMounts) name(source string) (string, bool) {
	name, ok := strings.CutPrefix(source, m.dir+"/")
	return name, ok && len(name) == 2*nameBytes
}

// add records a bind without mounting it; it reports whether there is room.
func (m *bindMounts) add(name string, b bindRequest) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.all) >= maxPoints {
		return false
	}
	m.all[name] = &bindMount{bindRequest: b, pending: true}
	return true
}

func (m *bindMounts) request(name string) (bindRequest, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	one, ok := m.all[name]
	if !ok {
		return bindRequest{}, false
	}
	return one.bindRequest, true
}

func (m *bindMounts) any() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.all) > 0
}

// put mounts the descriptor's file at the point. Without a descriptor (-1) it leaves nothing there, which the
// engine then reports as a missing source. A point that was dropped meanwhile stays dropped.
func (m *bindMounts) put(name string, fd int, slave bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.all[name] == nil {
		return nil
	}
	if !m.ready {
		if err := m.system.prepare(m.dir); err != nil {
			return err
		}
		m.ready = true
	}
	if fd < 0 {
		return m.system.clear(m.path(name))
	}
	return m.system.put(fd, m.path(name), slave)
}

// settle records that the engine has the containers of these points, or will never have them.
func (m *bindMounts) settle(names []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range names {
		if one := m.all[name]; one != nil {
			one.pending = false
		}
	}
}

func (m *bindMounts) settled() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var names []string
	for name, one := range m.all {
		if !one.pending {
			names = append(names, name)
		}
	}
	return names
}

// drop removes points. Running containers keep their binds. A point that cannot be removed stays for the next try.
func (m *bindMounts) drop(names []string) (failed error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range names {
		if m.all[name] == nil {
			continue
		}
		if m.ready {
			if err := m.system.clear(m.path(name)); err != nil {
				failed = err
				continue
			}
		}
		delete(m.all, name)
	}
	return failed
}

type sweeper struct {
	points *bindMounts
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
			s.log.Warn("remove unused mount points of binds; retrying later", "error", err)
		}
	}
}

// sweep removes the points that no container has, by the engine's list: containers can share points (--volumes-from),
// and the engine removes some by itself. The list is requested after the points are read.
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
	return s.points.drop(slices.Collect(maps.Keys(unused)))
}
