package guard

import "net/netip"

// Unprivileged replaces what needs a box: making folders as the client, the kernel's routes, and owners of folders.
func (g *Guard) Unprivileged(taken []netip.Prefix, keeps func(string) bool) *Guard {
	g.taken = func() ([]netip.Prefix, error) { return taken, nil }
	g.makeDir = func(string, string, peer) error { return nil }
	if keeps != nil {
		g.keeps = keeps
	}
	return g
}

// RealDirs makes missing sources as in a box.
func (g *Guard) RealDirs() { g.makeDir = makeDirAs }

// Fold is how names of fields are compared.
func Fold(s string) string { return fold(s) }

// Create judges a body of containers/create.
func (g *Guard) Create(b []byte) ([]byte, error) { return g.judgeJSON(b, createBody, nobody) }

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
	return g.judgeJSON([]byte(body), map[string]check{
		"create": createBody, "exec": execBody, "exec start": execStart, "update": updateBody, "volume": volumeBody,
		"network": networkBody, "connect": connectBody,
	}[what], nobody)
}
