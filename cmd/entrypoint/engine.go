package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/client"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/cgroups"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/dockerd"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/egress"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/guard"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/layercache"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/origin"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/services"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/internal/redact"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// engineGroup is the primary group of the inner engine's daemon, by which the network
// policy knows its sockets. No distribution gives the number away.
const engineGroup = 61990

// bindMounts is the folder with what inner containers bind, root's alone.
const bindMounts = "/run/sandbox-agent-binds"

// innerEngine is dockerd with the layer cache behind the guard, as boot sees it.
type innerEngine struct {
	*dockerd.Engine
	*containers
	cache *layercache.Cache
	guard *guard.Guard
	log   *slog.Logger
	mask  *redact.Set
	logs  string // folder that leaves the box
}

// engineNeeds is what the inner engine has of others.
type engineNeeds struct {
	cred   *proc.Credential
	groups *cgroups.Groups // nil: not divided
	warn   func(string)
	emit   func(workorder.Event)
	mask   *redact.Set
	logs   string
	egress *egress.Egress
	origin *origin.Finder
	hosts  *trustedHosts
}

func newEngine(log *slog.Logger, o *workorder.Order, n engineNeeds) (*innerEngine, error) {
	var images []string
	for _, s := range o.Services {
		images = append(images, s.Image)
	}
	lazy := len(o.Services) == 0 && !o.Supabase
	cache := layercache.New(layercache.Config{
		Dir: workorder.CacheDir, DataRoot: workorder.DataRoot, ID: o.TaskID, Images: images,
		// Without declared services nobody knows which images will be wanted.
		All: lazy,
		// Whoever starts an engine by connecting to it is untrusted code.
		ReadOnly: lazy, Log: log,
	})
	parent, sweep := "", (func() error)(nil)
	if n.groups != nil {
		parent, sweep = "/"+cgroups.Containers, func() error { return n.groups.Kill(cgroups.Containers) }
	}
	eng, err := dockerd.New(dockerd.Config{
		Cgroup: n.groups.Of(cgroups.Engine), CgroupParent: parent, Sweep: sweep,
		DataRoot: workorder.DataRoot, Group: engineGroup, RemapUser: workorder.SandboxUser,
		MTU: o.MTU, Avoid: n.hosts.prefixes, Resolver: n.egress.ServeDNS, Outbound: n.egress.Inner, Home: cache, Warn: n.warn, Log: log,
	})
	if err != nil {
		return nil, err
	}
	e := &innerEngine{Engine: eng, containers: &containers{engine: eng}, cache: cache, log: log, mask: n.mask, logs: n.logs}
	e.guard = guard.New(guard.Config{
		Socket: workorder.DockerSocket, GID: int(n.cred.GID), Upstream: dockerd.DefaultSocket,
		Binds:    []string{workorder.Workspace, workorder.SandboxHome, "/tmp"},
		Mounts:   bindMounts,
		Reserved: n.hosts.prefixes,
		By:       n.origin.Process, Log: log,
		Refused: func(rule, text, by string) {
			n.emit(workorder.Event{Type: workorder.EventGuard, Name: rule, Text: text, By: by})
		},
	})
	return e, nil
}

// Listen makes the engine's own socket and the guarded one before it.
func (e *innerEngine) Listen(ctx context.Context) error {
	if err := e.Engine.Listen(ctx); err != nil {
		return err
	}
	return e.guard.Listen(context.WithoutCancel(ctx))
}

// running is the engine's client once the engine runs: a question about a name is no
// reason to start it.
func (e *innerEngine) running() *client.Client {
	if e.Info().Version == "" {
		return nil
	}
	return e.Client()
}

// containerName is the name of an inner container, "" when it is not known.
func (e *innerEngine) containerName(ctx context.Context, id string) string {
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

// containerByIP is the name of the inner container that has the address.
func (e *innerEngine) containerByIP(ctx context.Context, ip netip.Addr) string {
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

// Stop also puts the engine's logs to the run's.
func (e *innerEngine) Stop(ctx context.Context) {
	e.Engine.Stop(ctx)
	if err := keepEngineLogs(dockerd.DefaultLogDir, e.logs, e.mask); err != nil {
		e.log.Warn("keep logs of the inner engine", "error", err)
	}
}

// keepEngineLogs copies the logs that the engine's programs write themselves,
// without secrets. Those that there are none of yet are no error.
func keepEngineLogs(from, to string, mask *redact.Set) error {
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

func (e *innerEngine) Describe(h *workorder.Host) {
	i := e.Info()
	h.StorageDriver, h.InnerVersion, h.CgroupVersion = i.Driver, i.Version, i.CgroupVersion
	h.InnerReadyMS = i.Ready.Milliseconds()
}

// serviceStack is services as boot sees it.
type serviceStack struct {
	engine *innerEngine
	egress *egress.Egress
	order  *workorder.Order
	task   *task
	emit   func(workorder.Event)
	warn   func(string)
	clean  func(io.Writer) io.WriteCloser
	log    *slog.Logger
	logs   string

	stack    *services.Stack
	ended    []workorder.ServiceEnd // as the agent's side left them, when a proof has made them anew
	supabase *services.Supabase
}

func (s *serviceStack) Up(ctx context.Context) error {
	if err := s.start(ctx, s.logs); err != nil {
		return err
	}
	if err := s.engine.Remember(); err != nil {
		return err
	}
	return s.seal(ctx)
}

// renew makes the engine and the services what they were before code of the task used them.
func (s *serviceStack) renew(ctx context.Context) error {
	if s.ended == nil {
		s.ended = s.Ends()
	}
	s.Unwatch()
	renewed, err := s.engine.Renew(ctx)
	if err != nil || !renewed {
		return err
	}
	if len(s.order.Services) > 0 {
		logs := filepath.Join(s.logs, "proof")
		if err := os.MkdirAll(logs, 0o755); err != nil {
			return err
		}
		if err := s.start(ctx, logs); err != nil {
			return err
		}
	}
	return s.engine.remark(ctx)
}

// start brings the services up and makes their names known.
func (s *serviceStack) start(ctx context.Context, logs string) error {
	info := s.engine.Info()
	rel, err := filepath.Rel(filepath.Dir(s.logs), logs)
	if err != nil {
		return err
	}
	s.stack, err = services.Up(ctx, services.Config{
		Client: s.engine.Client(), Services: s.order.Services, TaskID: s.order.TaskID, MTU: info.MTU, Emit: s.emit,
		Lost: func(text string) {
			s.warn(text)
			s.task.lose(text)
		},
		LogDir: logs, LogRel: rel, Clean: s.clean, Inbox: workorder.ImageInbox, HostImages: s.order.HostImages, Log: s.log,
	})
	if err != nil {
		return err
	}
	// The agent is not on the services' network, so it resolves them by the
	// hosts file; inner containers ask the box's resolver.
	names := s.stack.Hosts()
	s.egress.Names(names)
	return services.WriteHosts("/etc/hosts", names)
}

// seal ends what only the images of declared services may do, before untrusted code
// runs: the layer cache keeps what was pulled or loaded and is closed, and the engine is held to the
// network policy. It does nothing the second time. The cache is a saving, not a need: the run goes on without.
func (s *serviceStack) seal(ctx context.Context) error {
	_, err := s.engine.cache.Publish(ctx)
	if err := errors.Join(err, s.engine.cache.Seal()); err != nil {
		s.log.Warn("layer cache", "error", err)
	}
	return s.egress.Seal(ctx)
}

// Supabase starts the stack. Its CLI acts on the repository's configuration, so
// it is untrusted: the stack's images are not kept for other boxes, and obey the network policy.
func (s *serviceStack) Supabase(ctx context.Context) (map[string]string, error) {
	if err := s.seal(ctx); err != nil {
		return nil, err
	}
	cfg := s.task.cfg
	// No untrusted code has run yet, so nobody can have put anything else there.
	scratch := filepath.Join(cfg.Home, ".supabase-stack")
	err := errors.Join(os.MkdirAll(scratch, 0o700), os.Chown(scratch, int(cfg.User.UID), int(cfg.User.GID)))
	if err != nil {
		return nil, fmt.Errorf("start supabase: %w", err)
	}
	s.supabase, err = services.UpSupabase(ctx, services.SupabaseConfig{
		Dir: cfg.Workspace, Scratch: scratch, User: cfg.User, Env: cfg.Env,
		LogDir: s.logs, LogRel: workorder.LogsDir, Clean: s.clean, Emit: s.emit,
	})
	return s.supabase.Env, err
}

func (s *serviceStack) Unwatch() {
	if s.stack != nil {
		s.stack.Unwatch()
	}
}

func (s *serviceStack) Ends() []workorder.ServiceEnd {
	if s.ended != nil {
		return s.ended
	}
	var ends []workorder.ServiceEnd
	if s.stack != nil {
		ends = s.stack.Ends()
	}
	if s.supabase != nil {
		ends = append(ends, s.supabase.End)
	}
	return ends
}
