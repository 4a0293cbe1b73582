package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/dockerd"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/layercache"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/services"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// innerEngine is dockerd with the layer cache, as boot sees it.
type innerEngine struct {
	*dockerd.Engine
	cache *layercache.Cache
}

func newEngine(log *slog.Logger, o *workorder.Order, cred *proc.Credential) (*innerEngine, error) {
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
		DataRoot: workorder.DataRoot, SocketGID: int(cred.GID), RemapUser: workorder.SandboxUser,
		LogDir: filepath.Join(workorder.OutDir, workorder.LogsDir), MTU: o.MTU, DNS: true, Home: cache, Log: log,
	})
	if err != nil {
		return nil, err
	}
	return &innerEngine{Engine: eng, cache: cache}, nil
}

func (e *innerEngine) Describe(h *workorder.Host) {
	i := e.Info()
	h.StorageDriver, h.InnerVersion, h.CgroupVersion = i.Driver, i.Version, i.CgroupVersion
}

// serviceStack is services as boot sees it.
type serviceStack struct {
	engine *innerEngine
	order  *workorder.Order
	task   *task
	emit   func(workorder.Event)
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
		LogDir: s.logs, LogRel: workorder.LogsDir, Inbox: workorder.ImageInbox, HostImages: s.order.HostImages, Log: s.log,
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
		LogDir: s.logs, LogRel: workorder.LogsDir, Emit: s.emit,
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
