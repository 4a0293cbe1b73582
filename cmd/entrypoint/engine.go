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

	"github.com/sandbox-agent/sandbox-agent/internal/guest/dockerd"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/layercache"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/services"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/internal/redact"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// innerEngine is dockerd with the layer cache, as boot sees it.
type innerEngine struct {
	*dockerd.Engine
	cache *layercache.Cache
	log   *slog.Logger
	mask  *redact.Set
	logs  string // folder that leaves the box
}

func newEngine(log *slog.Logger, o *workorder.Order, cred *proc.Credential, warn func(string), mask *redact.Set, logs string) (*innerEngine, error) {
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
	eng, err := dockerd.New(dockerd.Config{
		DataRoot: workorder.DataRoot, RemapUser: workorder.SandboxUser, Group: engineGroup, Socket: "/var/run/docker.sock",
		MTU: o.MTU, Home: cache, Warn: warn, Log: log,
		Outbound: func(ctx context.Context, inner netip.Prefix) error {
			_, err := proc.Output(ctx, proc.Spec{Argv: []string{"iptables", "-t", "nat", "-A", "POSTROUTING", "-s", inner.String(), "!", "-d", inner.String(), "-j", "MASQUERADE"}})
			return err
		},
	})
	if err != nil {
		return nil, err
	}
	return &innerEngine{Engine: eng, cache: cache, log: log, mask: mask, logs: logs}, nil
}

// engineGroup marks the sockets of the inner engine: a number that no distribution gives away.
const engineGroup = 61990

// INTERIM until the guard is wired.
func (e *innerEngine) Listen(ctx context.Context) error {
	if err := e.Engine.Listen(ctx); err != nil {
		return err
	}
	return errors.Join(os.Chown("/var/run/docker.sock", 0, 1000), os.Chmod("/var/run/docker.sock", 0o660))
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
	order  *workorder.Order
	task   *task
	emit   func(workorder.Event)
	warn   func(string)
	clean  func(io.Writer) io.WriteCloser
	log    *slog.Logger
	logs   string

	stack    *services.Stack
	supabase *services.Supabase
}

func (s *serviceStack) Up(ctx context.Context) error {
	info := s.engine.Info()
	var err error
	s.stack, err = services.Up(ctx, services.Config{
		Client: s.engine.Client(), Services: s.order.Services, TaskID: s.order.TaskID, MTU: info.MTU, Emit: s.emit,
		Lost: func(text string) {
			s.warn(text)
			s.task.lose(text)
		},
		LogDir: s.logs, LogRel: workorder.LogsDir, Clean: s.clean, Inbox: workorder.ImageInbox, HostImages: s.order.HostImages, Log: s.log,
	})
	if err != nil {
		return err
	}
	// The agent is not on the services' network, so it resolves them by the
	// hosts file; inner containers ask the box's resolver.
	names := s.stack.Hosts()
	s.engine.Resolve(names)
	if err := services.WriteHosts("/etc/hosts", names); err != nil {
		return err
	}
	s.keepLayers(ctx)
	return nil
}

// keepLayers publishes what was pulled or loaded, and closes the cache before
// untrusted code runs. The cache is a saving, not a need: the run goes on without.
// It does nothing when the cache is closed already.
func (s *serviceStack) keepLayers(ctx context.Context) {
	_, err := s.engine.cache.Publish(ctx)
	if err := errors.Join(err, s.engine.cache.Seal()); err != nil {
		s.log.Warn("layer cache", "error", err)
	}
}

// Supabase starts the stack. Its CLI acts on the repository's configuration, so
// the cache is closed first: the stack's images are not kept for other boxes.
func (s *serviceStack) Supabase(ctx context.Context) (map[string]string, error) {
	s.keepLayers(ctx)
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
	var ends []workorder.ServiceEnd
	if s.stack != nil {
		ends = s.stack.Ends()
	}
	if s.supabase != nil {
		ends = append(ends, s.supabase.End)
	}
	return ends
}
