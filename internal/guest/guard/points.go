package guard

import (
	"crypto/rand"
	"encoding/hex"
	"path"
	"strings"
	"sync"
	"time"
)

const (
	// maxPoints bounds the mount points at one time: each is in the mount table that the kernel copies for
	// every new container. Large compose projects have some tens of binds.
	maxPoints = 1024
	// nameBytes is the length of a mount point's random name: no text of a client's has it by chance.
	nameBytes = 16
	// sweepTime bounds the question to the engine which mount points are in use.
	sweepTime = 30 * time.Second
)

// points are the mount points of binds. The engine resolves the source of a bind as root each time when it starts
// the container, long after the guard has judged it. So it is given a path that only root can
// change, on which is mounted what the guard has opened. The records are no more than the
// box's mounts: both end with the box.
type points struct {
	dir string // root's alone
	// system does what needs a box; tests replace it.
	system mounter

	mu    sync.Mutex
	ready bool
	all   map[string]*point
}

// point is a mount point by its name in the folder.
type point struct {
	bound
	pending bool // its container is being made: the engine may not know it yet
}

// bound is a bind as the client wants it.
type bound struct {
	source string // clean and absolute, its links not followed
	create bool   // a missing source is made
	slave  bool   // mounts of the box that come later appear in it
}

// mounter is what happens in the kernel.
type mounter struct {
	// prepare makes the folder.
	prepare func(dir string) error
	// put mounts what a descriptor of O_PATH is about; what was mounted there before goes.
	put func(fd int, at string, slave bool) error
	// clear unmounts and removes a mount point; one that is not there is no error.
	clear func(at string) error
}

func newPoints(dir string) *points {
	return &points{dir: dir, system: realMounter(), all: map[string]*point{}}
}

// newName is the name of a mount point that is still to be made.
func newName() string {
	b := make([]byte, nameBytes)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

func (p *points) path(name string) string { return path.Join(p.dir, name) }

// name is of which mount point a path is.
func (p *points) name(source string) (string, bool) {
	name, ok := strings.CutPrefix(source, p.dir+"/")
	return name, ok && len(name) == 2*nameBytes
}

// add takes a bind up, without anything mounted yet; it reports whether there is room.
func (p *points) add(name string, b bound) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.all) >= maxPoints {
		return false
	}
	p.all[name] = &point{bound: b, pending: true}
	return true
}

// bound is the bind behind a name.
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

// put mounts what the descriptor is about at the point; without a descriptor (-1) nothing is left there, which the
// engine then calls a missing source. One that was dropped meanwhile stays so.
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

// settle says that the engine knows by now of the containers with these points, or will never.
func (p *points) settle(names []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, name := range names {
		if one := p.all[name]; one != nil {
			one.pending = false
		}
	}
}

// settled are the points whose containers are made.
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

// drop removes points. Containers that run keep what they have: it is mounted once more in them.
// A point that cannot be removed stays on record for the next time.
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
