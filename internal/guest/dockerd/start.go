package dockerd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

const (
	// readyTimeout bounds fork to first answer: 0.1 s is usual, seconds with a cold disk.
	readyTimeout = 30 * time.Second
	// containerdTimeout bounds the time until containerd listens (13-30 ms is usual).
	containerdTimeout = 15 * time.Second
	dialPause         = 2 * time.Millisecond
	probeTimeout      = 10 * time.Second // a version query; bounded because a broken binary may hang
)

// start prepares and starts the engine and waits until it answers.
func (e *Engine) start(ctx context.Context) error {
	if err := e.sys.checkPrivileges(); err != nil {
		return err
	}
	pr := &prerequisites{cfg: &e.cfg, sys: e.sys, note: e.note}
	cgroups, err := pr.prepare(ctx)
	if err != nil {
		return err
	}
	e.mu.Lock()
	e.info.CgroupVersion = cgroups
	e.mu.Unlock()
	// Reading the version forks a large binary, so it runs while the data root is prepared.
	version := make(chan result[string], 1)
	go func() { version <- resultOf(dockerdVersion(ctx)) }()
	runtime := make(chan string, 1)
	go func() { runtime <- pr.runtime(ctx) }()
	p := plan{remap: e.cfg.RemapUser, cgroupParent: e.cfg.CgroupParent, dataRoot: e.cfg.DataRoot, runDir: e.cfg.RunDir}
	driver, lock, err := pr.dataRoot(ctx)
	if lock != nil {
		e.mu.Lock()
		e.lock = lock
		e.mu.Unlock()
	}
	if err != nil {
		return err
	}
	p.driver = driver
	outbound, err := pr.network(ctx, &p)
	if err != nil {
		return err
	}
	// containerd's socket exists before the version is known: both are awaited below.
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
	if err := e.RecordImages(); err != nil { // clients wait already
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

func dockerdVersion(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	out, err := proc.Output(ctx, proc.Spec{Argv: []string{"dockerd", "--version"}, Env: environment(os.Environ())})
	if err != nil {
		return "", fmt.Errorf("query the version of dockerd: %w", err)
	}
	return parseVersion(string(out))
}

// parseVersion reads "Docker version 26.1.5+dfsg1, build a72d7cd".
func parseVersion(s string) (string, error) {
	_, v, ok := strings.Cut(s, "version ")
	v, _, _ = strings.Cut(v, ",")
	v = strings.TrimSpace(v)
	if !ok || major(v) == 0 {
		return "", fmt.Errorf("dockerd reports no version: %q", s)
	}
	return v, nil
}

// startContainerd starts containerd and waits until it listens: dockerd backs off for a second after one refusal.
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

// startDockerd starts dockerd on the socket that is already listening and waits for its first answer.
func (e *Engine) startDockerd(ctx context.Context) error {
	e.mu.Lock()
	p, s := e.plan, e.sock
	e.mu.Unlock()
	if s == nil {
		return errors.New("the docker socket does not exist")
	}
	if err := p.withhold(); err != nil {
		return err
	}
	// A daemon inherits the socket if LISTEN_PID is its own pid, which only the process itself knows.
	argv := append([]string{"/bin/sh", "-c", `LISTEN_PID=$$ exec "$@"`, "sh"}, p.dockerd()...)
	if err := e.haltedErr(); err != nil {
		return err
	}
	begin := time.Now()
	d, err := spawn(ctx, "dockerd", e.cfg.LogDir, proc.Spec{
		Argv: argv, Env: append(environment(os.Environ(), p.tools()), "LISTEN_FDS=1"), ExtraFiles: []*os.File{s.file}, Group: e.cfg.Group,
		Cgroup: e.cfg.Cgroup,
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
