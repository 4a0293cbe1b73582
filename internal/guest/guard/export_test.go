package guard

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// Rules has the alternative to each rule.
var Rules = instead

// Unprivileged replaces what needs a box: making folders as the client, the kernel's routes, and mounts, in place of
// which links to what would be mounted are put.
func (g *Guard) Unprivileged(taken []netip.Prefix) *Guard {
	g.taken = func() ([]netip.Prefix, error) { return taken, nil }
	g.makeDir = func(string, string, peer) error { return nil }
	g.binds.system = mounter{
		prepare: func(dir string) error { return os.MkdirAll(dir, 0o700) },
		put: func(fd int, at string, _ bool) error {
			target, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
			return errors.Join(os.RemoveAll(at), err, os.Symlink(target, at))
		},
		clear: os.RemoveAll,
	}
	return g
}

// Shown is a JSON text with the client's sources in the place of mount points.
func (g *Guard) Shown(r io.Reader) io.Reader { return g.binds.rewrite(r) }

// NoSweeps keeps the guard from asking the engine what is in use. It is for before Listen.
func (g *Guard) NoSweeps() { g.sweeps.asked = nil }

// Points counts mount points.
func (g *Guard) Points() int {
	g.binds.mu.Lock()
	defer g.binds.mu.Unlock()
	return len(g.binds.all)
}

// Mounts lists what is in the folder of mount points.
func (g *Guard) Mounts() []string {
	all, _ := filepath.Glob(g.cfg.Mounts + "/*") // the pattern is good
	return all
}

// OpenBelow opens a source and says what it opened.
func OpenBelow(root, target string, gid int) (string, error) {
	fd, err := openBelow(root, target, gid)
	if err != nil {
		return "", err
	}
	defer func() { _ = unix.Close(fd) }()
	return os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
}

// RealDirs makes missing sources as in a box.
func (g *Guard) RealDirs() { g.makeDir = makeDirAs }

// Fold is how names of fields are compared.
func Fold(s string) string { return fold(s) }

// Create judges a body of containers/create.
func (g *Guard) Create(b []byte) ([]byte, error) {
	return (&judge{g: g, peer: noPeer}).json(context.Background(), b, createBody)
}

// Forget removes all mount points.
func (g *Guard) Forget() error { return g.binds.remove() }

// Locate finds what a path is forwarded as.
func Locate(method, p string) (pattern, canonical string, err error) {
	e, parts, err := locate(method, p)
	if err != nil {
		return "", "", err
	}
	return e.path, encodePath(parts), nil
}

// ParseRoutes reads tables of routes.
func ParseRoutes(v4, v6 string, skip func(string) bool) ([]netip.Prefix, error) {
	a, err := routes(v4, skip, routeV4)
	if err != nil {
		return nil, err
	}
	b, err := routes(v6, skip, routeV6)
	return append(a, b...), err
}

// TakenByBox asks this machine.
func TakenByBox() ([]netip.Prefix, error) { return takenByBox() }

// MakeDirAs makes a folder with the rights of a user.
func MakeDirAs(root, dir string, uid, gid uint32) error {
	return makeDirAs(root, dir, peer{uid: uid, gid: gid})
}

// Judge judges a JSON body of an endpoint.
func (g *Guard) Judge(what, body string) ([]byte, error) {
	return (&judge{g: g, peer: noPeer}).json(context.Background(), []byte(body), map[string]check{
		"create": createBody, "exec": execBody, "exec start": execStart, "update": updateBody, "volume": volumeBody,
		"network": networkBody, "connect": connectBody,
	}[what])
}
