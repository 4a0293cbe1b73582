package dockerd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

const (
	// readyTimeout bounds fork to first answer: 0.1 s is usual, a cold disk with
	// a large image store has been seen to take seconds.
	readyTimeout = 30 * time.Second
	// containerdTimeout bounds containerd's way to its socket (13-30 ms is usual).
	containerdTimeout = 15 * time.Second
	dialPause         = 2 * time.Millisecond
	probeTimeout      = 10 * time.Second // a version query; bounded because a broken binary may hang
)

// start does everything between nothing and an engine that answers.
func (e *Engine) start(ctx context.Context) error {
	if err := e.sys.checkPrivileges(); err != nil {
		return err
	}
	if err := e.prepareGround(ctx); err != nil {
		return err
	}
	// The version takes a fork of a large binary: it is asked while the data root
	// is prepared.
	version := make(chan result[string], 1)
	go func() { version <- resultOf(dockerdVersion(ctx)) }()
	runtime := make(chan string, 1)
	go func() { runtime <- e.chooseRuntime(ctx) }()
	p := plan{remap: e.cfg.RemapUser, cgroupParent: e.cfg.CgroupParent, dataRoot: e.cfg.DataRoot, runDir: e.cfg.RunDir}
	var err error
	if p.driver, err = e.prepareDataRoot(ctx); err != nil {
		return err
	}
	outbound, err := e.prepareNetwork(ctx, &p)
	if err != nil {
		return err
	}
	// containerd's socket is there before the version is: both are waited for below.
	e.mu.Lock()
	e.plan = p
	e.mu.Unlock()
	if err := e.startContainerd(ctx); err != nil {
		return err
	}
	v := <-version
	if v.err != nil {
		return v.err
	}
	p.version, p.runtime = v.val, <-runtime
	e.mu.Lock()
	e.plan = p
	e.info.Driver, e.info.Version, e.info.Runtime = p.driver, p.version, p.runtime
	e.info.Pool, e.info.MTU = p.addr.all, p.mtu
	e.mu.Unlock()
	if err := os.WriteFile(p.configFile(), []byte(p.config()), 0o600); err != nil {
		return fmt.Errorf("configure dockerd: %w", err)
	}
	if err := e.Remember(); err != nil { // clients wait already
		return err
	}
	if err := e.startDockerd(ctx); err != nil {
		return err
	}
	if err := <-outbound; err != nil {
		return err
	}
	go e.watch(context.WithoutCancel(ctx))
	return nil
}

// prepareGround makes cgroups and mounts fit for an engine.
func (e *Engine) prepareGround(ctx context.Context) error {
	notes, err := e.sys.prepareMounts()
	for _, n := range notes {
		e.note("%s", n)
	}
	if err != nil {
		return err
	}
	cg, err := e.sys.prepareCgroups(ctx)
	if err != nil {
		return err
	}
	e.note("%s", cg.note)
	e.mu.Lock()
	e.info.CgroupVersion = cg.version
	e.mu.Unlock()
	// Inner root passes through on its way to its own folders.
	if err := e.sys.freshDir(e.cfg.RunDir, 0o711); err != nil {
		return err
	}
	return os.MkdirAll(e.cfg.LogDir, 0o755)
}

// prepareDataRoot chooses the driver, places the data root, locks it and scrubs it.
func (e *Engine) prepareDataRoot(ctx context.Context) (driver string, err error) {
	root := e.cfg.DataRoot
	if err := os.MkdirAll(root, 0o711); err != nil {
		return "", fmt.Errorf("make data root: %w", err)
	}
	trial := root
	if e.cfg.Home != nil {
		trial = e.cfg.Home.Trial()
	}
	if driver, err = e.chooseDriver(ctx, trial); err != nil {
		return "", err
	}
	if e.cfg.Home != nil {
		uid, gid, err := e.sys.remapIDs(e.cfg.RemapUser)
		if err != nil {
			return "", err
		}
		placed, note, err := e.cfg.Home.Prepare(ctx, driver, uid, gid)
		if err != nil {
			return "", fmt.Errorf("place data root: %w", err)
		}
		e.note("%s", note)
		if !placed && trial != root {
			// Another file system, another answer.
			if driver, err = e.chooseDriver(ctx, root); err != nil {
				return "", err
			}
		}
	}
	lock, err := lockRoot(root)
	if err != nil {
		return "", err
	}
	// Inner root is not root here and has to pass through; packages make the folder 0710.
	if err := os.Chmod(root, 0o711); err != nil {
		return "", fmt.Errorf("open data root to inner root: %w", err)
	}
	e.mu.Lock()
	e.lock = lock
	e.mu.Unlock()
	empty, err := scrub(root)
	go func() {
		if err := empty(); err != nil {
			e.cfg.Log.Warn("delete stale engine state", "err", err)
		}
	}()
	if err != nil {
		return "", err
	}
	note, err := checkSpace(root)
	if note != "" {
		e.note("%s", note)
	}
	return driver, err
}

func (e *Engine) chooseDriver(ctx context.Context, dir string) (string, error) {
	driver, reasons, err := ChooseDriver(ctx, dir, e.cfg.Trials)
	for _, r := range reasons {
		e.note("%s", r)
	}
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, strings.Join(reasons, "; "))
	}
	return driver, nil
}

// prepareNetwork chooses addresses and has the resolver opened; the way out is made
// meanwhile and its outcome comes on the channel.
func (e *Engine) prepareNetwork(ctx context.Context, p *plan) (<-chan error, error) {
	routes, err := e.sys.routes()
	if err != nil {
		return nil, err
	}
	var taken []netip.Prefix
	for _, r := range routes {
		taken = append(taken, r.prefix)
	}
	if e.cfg.Avoid != nil {
		taken = append(taken, e.cfg.Avoid()...)
	}
	if p.addr, err = chooseAddresses(taken); err != nil {
		return nil, err
	}
	if p.mtu = e.cfg.MTU; p.mtu == 0 {
		p.mtu = e.sys.mtu(routes)
	}
	if err := e.sys.forward(); err != nil {
		return nil, err
	}
	if e.cfg.Resolver != nil {
		if err := e.cfg.Resolver(ctx, netip.AddrPortFrom(p.addr.bridge.Addr(), 53)); err != nil {
			return nil, fmt.Errorf("open the resolver for inner containers: %w", err)
		}
		p.dns = []string{p.addr.bridge.Addr().String()}
	}
	outbound := make(chan error, 1)
	go func() {
		if e.cfg.Outbound == nil {
			outbound <- nil
			return
		}
		outbound <- e.cfg.Outbound(ctx, p.addr.all)
	}()
	return outbound, nil
}

// remapIDs are the ids that inner root has in the box: the first of the user's
// subordinate ids.
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

func dockerdVersion(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	out, err := proc.Output(ctx, proc.Spec{Argv: []string{"dockerd", "--version"}, Env: environment(os.Environ())})
	if err != nil {
		return "", fmt.Errorf("ask for the version of dockerd: %w", err)
	}
	return parseVersion(string(out))
}

// parseVersion reads "Docker version 26.1.5+dfsg1, build a72d7cd".
func parseVersion(s string) (string, error) {
	_, v, ok := strings.Cut(s, "version ")
	v, _, _ = strings.Cut(v, ",")
	v = strings.TrimSpace(v)
	if !ok || major(v) == 0 {
		return "", fmt.Errorf("dockerd names no version: %q", s)
	}
	return v, nil
}

// startContainerd starts containerd and waits until it listens. dockerd would
// back off for a whole second after one refused connection.
func (e *Engine) startContainerd(ctx context.Context) error {
	e.mu.Lock()
	p := e.plan
	e.mu.Unlock()
	conf := filepath.Join(p.runDir, "containerd.toml")
	if err := os.WriteFile(conf, []byte(p.containerdConfig()), 0o600); err != nil {
		return fmt.Errorf("configure containerd: %w", err)
	}
	if err := e.haltedErr(); err != nil {
		return err
	}
	d, err := spawn(ctx, "containerd", e.cfg.LogDir, proc.Spec{
		Argv: []string{"containerd", "--config", conf},
		Env:  environment(os.Environ()), Cgroup: e.cfg.Cgroup,
	})
	if err != nil {
		return err
	}
	e.mu.Lock()
	e.daemons.containerd = d
	e.mu.Unlock()
	return d.until(ctx, containerdTimeout, func(ctx context.Context) error {
		var nd net.Dialer
		for {
			c, err := nd.DialContext(ctx, "unix", p.containerdSocket())
			if err == nil {
				return c.Close()
			}
			select {
			case <-ctx.Done():
				return err
			case <-time.After(dialPause):
			}
		}
	})
}

// startDockerd starts dockerd on the socket that is already listening and waits
// for its first answer.
func (e *Engine) startDockerd(ctx context.Context) error {
	e.mu.Lock()
	p, s := e.plan, e.sock
	e.mu.Unlock()
	if s == nil {
		return errors.New("the docker socket was not made")
	}
	if err := p.withhold(); err != nil {
		return err
	}
	// A daemon takes the socket over when LISTEN_PID is its own pid, which only
	// the process itself knows.
	argv := append([]string{"/bin/sh", "-c", `LISTEN_PID=$$ exec "$@"`, "sh"}, p.dockerd()...)
	if err := e.haltedErr(); err != nil {
		return err
	}
	begin := time.Now()
	d, err := spawn(ctx, "dockerd", e.cfg.LogDir, proc.Spec{
		Argv: argv, Env: append(environment(os.Environ(), p.tools()), "LISTEN_FDS=1"), ExtraFiles: []*os.File{s.file}, Group: e.cfg.Group, Cgroup: e.cfg.Cgroup,
	})
	if err != nil {
		return err
	}
	e.mu.Lock()
	e.daemons.dockerd = d
	e.mu.Unlock()
	err = d.until(ctx, readyTimeout, func(ctx context.Context) error {
		_, err := e.cli.Ping(ctx) // blocks until the daemon accepts
		return err
	})
	e.mu.Lock()
	e.info.Ready = time.Since(begin)
	e.mu.Unlock()
	return err
}

type result[T any] struct {
	val T
	err error
}

func resultOf[T any](v T, err error) result[T] { return result[T]{v, err} }
