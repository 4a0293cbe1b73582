package dockerd

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"github.com/gofrs/flock"
)

// prerequisites are an engine's control groups, mounts, data root, addresses and OCI runtime.
type prerequisites struct {
	cfg  *Config
	sys  system
	note func(format string, a ...any)
}

// prepare sets up cgroups, mounts and directories for an engine, and returns the version of the cgroups.
func (pr *prerequisites) prepare(ctx context.Context) (cgroupVersion int, err error) {
	notes, err := pr.sys.prepareMounts()
	for _, n := range notes {
		pr.note("%s", n)
	}
	if err != nil {
		return 0, err
	}
	cg, err := pr.sys.prepareCgroups(ctx)
	if err != nil {
		return 0, err
	}
	pr.note("%s", cg.note)
	// Inner root must be able to traverse to its own directories.
	if err := pr.sys.freshDir(pr.cfg.RunDir, 0o711); err != nil {
		return 0, err
	}
	return cg.version, os.MkdirAll(pr.cfg.LogDir, 0o755)
}

// dataRoot chooses the driver, places the data root, locks it and scrubs it. The caller closes the lock, also after an error.
func (pr *prerequisites) dataRoot(ctx context.Context) (driver string, lock *flock.Flock, err error) {
	root := pr.cfg.DataRoot
	if err := os.MkdirAll(root, 0o711); err != nil {
		return "", nil, fmt.Errorf("create data root: %w", err)
	}
	trial := root
	if pr.cfg.DataRootProvider != nil {
		trial = pr.cfg.DataRootProvider.Trial()
	}
	if driver, err = pr.driver(ctx, trial); err != nil {
		return "", nil, err
	}
	if pr.cfg.DataRootProvider != nil {
		uid, gid, err := pr.sys.remapIDs(pr.cfg.RemapUser)
		if err != nil {
			return "", nil, err
		}
		placed, note, err := pr.cfg.DataRootProvider.Prepare(ctx, driver, uid, gid)
		if err != nil {
			return "", nil, fmt.Errorf("place data root: %w", err)
		}
		pr.note("%s", note)
		if !placed && trial != root {
			// On another file system the choice may differ.
			if driver, err = pr.driver(ctx, root); err != nil {
				return "", nil, err
			}
		}
	}
	if lock, err = lockRoot(root); err != nil {
		return "", nil, err
	}
	// Inner root is not root here and has to traverse it; packages create the directory with mode 0710.
	if err := os.Chmod(root, 0o711); err != nil {
		return "", lock, fmt.Errorf("open data root to inner root: %w", err)
	}
	empty, err := scrub(root, pr.cfg.KeepData)
	go func() {
		if err := empty(); err != nil {
			pr.cfg.Log.Warn("delete stale engine state", "error", err)
		}
	}()
	if err != nil {
		return "", lock, err
	}
	note, err := checkSpace(root)
	if note != "" {
		pr.note("%s", note)
	}
	return driver, lock, err
}

func (pr *prerequisites) driver(ctx context.Context, dir string) (string, error) {
	driver, reasons, err := ChooseDriver(ctx, dir, pr.cfg.Trials)
	for _, r := range reasons {
		pr.note("%s", r)
	}
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, strings.Join(reasons, "; "))
	}
	return driver, nil
}

// network chooses addresses, opens the resolver and creates the outbound route, whose error is sent on the channel.
func (pr *prerequisites) network(ctx context.Context, p *plan) (<-chan error, error) {
	routes, err := pr.sys.routes()
	if err != nil {
		return nil, err
	}
	var taken []netip.Prefix
	for _, r := range routes {
		taken = append(taken, r.prefix)
	}
	if pr.cfg.ReservedPrefixes != nil {
		taken = append(taken, pr.cfg.ReservedPrefixes()...)
	}
	if p.addr, err = chooseAddresses(taken); err != nil {
		return nil, err
	}
	if p.mtu = pr.cfg.MTU; p.mtu == 0 {
		p.mtu = pr.sys.mtu(routes)
	}
	if err := pr.sys.forward(); err != nil {
		return nil, err
	}
	if pr.cfg.Resolver != nil {
		if err := pr.cfg.Resolver(ctx, netip.AddrPortFrom(p.addr.bridge.Addr(), 53)); err != nil {
			return nil, fmt.Errorf("open the resolver for inner containers: %w", err)
		}
		p.dns = []string{p.addr.bridge.Addr().String()}
	}
	outbound := make(chan error, 1)
	go func() {
		if pr.cfg.Outbound == nil {
			outbound <- nil
			return
		}
		outbound <- pr.cfg.Outbound(ctx, p.addr.all)
	}()
	return outbound, nil
}

// remapIDs returns the ids of inner root in the box: the first of the user's subordinate ids.
func (s system) remapIDs(user string) (uid, gid int, err error) {
	if user == "" {
		return 0, 0, nil
	}
	for file, id := range map[string]*int{"/etc/subuid": &uid, "/etc/subgid": &gid} {
		b, err := os.ReadFile(s.path(file))
		if err != nil {
			return 0, 0, fmt.Errorf("read subordinate ids: %w", err)
		}
		found := false
		for line := range strings.Lines(string(b)) {
			f := strings.Split(strings.TrimSpace(line), ":")
			if len(f) == 3 && f[0] == user && !found {
				*id, err = strconv.Atoi(f[1])
				found = err == nil
			}
		}
		if !found {
			return 0, 0, fmt.Errorf("%s has no line for %s: the image must give root of inner containers an identity", file, user)
		}
	}
	return uid, gid, nil
}
