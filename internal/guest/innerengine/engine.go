// Package innerengine combines the inner engine, its layer cache, the guard and the project's services for boot.
package innerengine

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/client"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/cgroups"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/connowner"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/dockerd"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/egress"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/guard"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/layercache"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/services"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/internal/redact"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Group is the primary group of the inner engine's daemon, by which the network policy recognises its sockets.
const Group = 61990

// bindMounts is the root-only directory with the bind sources of inner containers.
const bindMounts = "/run/sandbox-agent-binds"

// Engine is dockerd with the layer cache behind the guard. It implements boot.Engine.
type Engine struct {
	*dockerd.Engine
	*Containers
	cache *layercache.Cache
	// Guard is in front of the engine's socket.
	Guard *guard.Guard
	log   *slog.Logger
	mask  func() *redact.Set
	logs  string                         // log directory that is copied out of the box
	stack atomic.Pointer[services.Stack] // nil before it is created
}

// Config is the environment of the inner engine.
type Config struct {
	User   *proc.Credential // user of the guarded socket
	Groups *cgroups.Groups  // nil if not divided
	Warn   func(string)
	Emit   func(workorder.Event)
	Mask   func() *redact.Set // the secrets that are known by now
	Logs   string             // directory that is copied out of the box
	Egress *egress.Egress
	Origin *connowner.Finder
	// Avoid returns addresses that no inner network may cover.
	Avoid func() []netip.Prefix
}

// New prepares the engine of an order; nothing runs yet.
func New(log *slog.Logger, o *workorder.Order, n Config) (*Engine, error) {
	var images []string
	for _, s := range o.Services {
		images = append(images, s.Image)
	}
	lazy := len(o.Services) == 0 && !o.Supabase
	volume := workorder.CacheDir
	if o.Mode == workorder.ModeStandalone {
		volume = "" // a data root on it lasts only as long as the box runs, but images, containers and their data must outlive a stop
	}
	cache := layercache.New(layercache.Config{
		Dir: volume, DataRoot: workorder.DataRoot, ID: o.TaskID, Images: images,
		// Without declared services the required images are unknown.
		All: lazy,
		// Untrusted code starts an engine by connecting to it.
		ReadOnly: lazy, Log: log,
	})
	parent, sweep := "", (func() error)(nil)
	if n.Groups != nil {
		parent, sweep = "/"+cgroups.Containers, func() error { return n.Groups.Kill(cgroups.Containers) }
	}
	eng, err := dockerd.New(dockerd.Config{
		Cgroup: n.Groups.Of(cgroups.Engine), CgroupParent: parent, Sweep: sweep, DataRoot: workorder.DataRoot, Group: Group,
		RemapUser: workorder.SandboxUser, MTU: o.MTU, ReservedPrefixes: n.Avoid, Resolver: n.Egress.ServeDNS, Outbound: n.Egress.Inner,
		DataRootProvider: cache,
		KeepData:         o.Mode == workorder.ModeStandalone, Warn: n.Warn, Log: log,
	})
	if err != nil {
		return nil, err
	}
	e := &Engine{Engine: eng, Containers: &Containers{engine: eng}, cache: cache, log: log, mask: n.Mask, logs: n.Logs}
	e.Guard = guard.New(guard.Config{
		Socket: workorder.DockerSocket, GID: int(n.User.GID), Upstream: dockerd.DefaultSocket,
		Binds:    []string{workorder.Workspace, workorder.SandboxHome, "/tmp"},
		Mounts:   bindMounts,
		Reserved: n.Avoid,
		Starting: e.starting,
		By:       n.Origin.Process, Log: log,
		Refused: func(rule, text, by string) {
			n.Emit(workorder.Event{Type: workorder.EventGuard, Name: rule, Text: text, By: by})
		},
	})
	return e, nil
}

// starting frees ports of services for a container of the user.
func (e *Engine) starting(id string, ports []string) (started func()) {
	if s := e.stack.Load(); s != nil {
		return s.GiveWay(id, ports)
	}
	return func() {}
}

// Listen creates the engine's own socket and the guarded one in front of it.
func (e *Engine) Listen(ctx context.Context) error {
	if err := e.Engine.Listen(ctx); err != nil {
		return err
	}
	return e.Guard.Listen(context.WithoutCancel(ctx))
}

// running returns the engine's client if the engine runs: looking up a name must not start it.
func (e *Engine) running() *client.Client {
	if e.Info().Version == "" {
		return nil
	}
	return e.Client()
}

// ContainerName returns the name of an inner container, "" if unknown.
func (e *Engine) ContainerName(ctx context.Context, id string) string {
	c := e.running()
	if c == nil {
		return ""
	}
	in, err := c.ContainerInspect(ctx, id)
	if err != nil || in.ContainerJSONBase == nil {
		return ""
	}
	return strings.TrimPrefix(in.Name, "/")
}

// ContainerByIP returns the name of the inner container with that address.
func (e *Engine) ContainerByIP(ctx context.Context, ip netip.Addr) string {
	c := e.running()
	if c == nil {
		return ""
	}
	all, err := c.ContainerList(ctx, container.ListOptions{})
	if err != nil {
		return ""
	}
	for _, one := range all {
		if one.NetworkSettings == nil {
			continue
		}
		for _, n := range one.NetworkSettings.Networks {
			if n != nil && n.IPAddress == ip.String() && len(one.Names) > 0 {
				return strings.TrimPrefix(one.Names[0], "/")
			}
		}
	}
	return ""
}

// Stop also copies the engine's logs to those of the run.
func (e *Engine) Stop(ctx context.Context) {
	e.Engine.Stop(ctx)
	if err := KeepLogs(dockerd.DefaultLogDir, e.logs, e.mask()); err != nil {
		e.log.Warn("copy logs of the inner engine", "error", err)
	}
}

// Describe writes the engine's details into the result.
func (e *Engine) Describe(h *workorder.Platform) {
	i := e.Info()
	h.StorageDriver, h.InnerVersion, h.CgroupVersion = i.Driver, i.Version, i.CgroupVersion
	h.InnerReadyMS = i.Ready.Milliseconds()
}

// Containers controls the containers that the project does not declare. They outlive the processes that started them,
// and may bind directories of the user.
type Containers struct {
	engine *dockerd.Engine

	mu   sync.Mutex
	keep map[string]bool // nil if not marked yet
}

// Mark records the containers that exist now, before any code of the repository ran: they stay.
func (c *Containers) Mark(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.keep != nil {
		return nil
	}
	ids, err := c.engine.Containers(ctx)
	if err != nil {
		return err
	}
	c.keep = map[string]bool{}
	for _, id := range ids {
		c.keep[id] = true
	}
	return nil
}

// remark repeats Mark for an engine that was renewed.
func (c *Containers) remark(ctx context.Context) error {
	c.mu.Lock()
	c.keep = nil
	c.mu.Unlock()
	return c.Mark(ctx)
}

// errUnmarked prevents the project's own services from being treated as other containers.
var errUnmarked = errors.New("the project's own containers are unknown: the engine did not list them when setup began")

// Extra returns the number of other containers.
func (c *Containers) Extra(ctx context.Context) (int, error) {
	keep, err := c.marked()
	if err != nil {
		return 0, err
	}
	ids, err := c.engine.Containers(ctx)
	n := 0
	for _, id := range ids {
		if !keep[id] {
			n++
		}
	}
	return n, err
}

// Binding returns how many of the others run and bind directories of the user.
func (c *Containers) Binding(ctx context.Context) (n int, err error) {
	keep, err := c.marked()
	if err != nil {
		return 0, err
	}
	ids, err := c.engine.Binders(ctx)
	for _, id := range ids {
		if !keep[id] {
			n++
		}
	}
	return n, err
}

// Remove removes all other containers.
func (c *Containers) Remove(ctx context.Context) error {
	keep, err := c.marked()
	if err != nil {
		return err
	}
	return c.engine.RemoveContainers(ctx, keep)
}

func (c *Containers) marked() (map[string]bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.keep == nil {
		return nil, errUnmarked
	}
	return c.keep, nil
}

// KeepLogs copies the logs of the engine's programs, with secrets redacted. Missing logs are not an error.
func KeepLogs(from, to string, mask *redact.Set) error {
	var errs []error
	for _, name := range []string{"dockerd.log", "containerd.log"} {
		if err := keepLog(filepath.Join(from, name), filepath.Join(to, name), mask); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func keepLog(from, to string, mask *redact.Set) error {
	r, err := os.Open(from)
	if err != nil {
		return err
	}
	defer r.Close()
	w, err := os.Create(to)
	if err != nil {
		return err
	}
	clean := mask.Writer(w)
	_, err = io.Copy(clean, r)
	return errors.Join(err, clean.Close(), w.Close())
}
