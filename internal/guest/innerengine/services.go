package innerengine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/egress"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/services"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Services controls the project's services in the inner engine. It implements boot.Services.
type Services struct {
	Engine *Engine
	Egress *egress.Egress
	Order  *workorder.Order
	// Workspace, Home and User are those of the task's commands; Env is the current environment of all of them.
	Workspace, Home string
	User            *proc.Credential
	Env             func() []string
	// Lost is called for a service that failed during the run.
	Lost  func(text string)
	Emit  func(workorder.Event)
	Clean func(io.Writer) io.WriteCloser
	Log   *slog.Logger
	Logs  string // directory that is copied out of the box
	// Again means that the box was stopped, and is started again with its previous state.
	Again bool

	stack    *services.Stack
	missing  []string               // detected services that failed at the start: a proof does without them, as the task did
	ended    []workorder.ServiceEnd // state on the agent's side, once a proof has recreated them
	supabase *services.Supabase
}

// Up starts the services and revokes the access that only their images may use.
func (s *Services) Up(ctx context.Context) (down, err error) {
	down, err = s.start(ctx, s.Logs)
	if err != nil {
		return down, err
	}
	if down != nil && !forgiven(s.Order, s.stack.Failed()) {
		return nil, down
	}
	s.missing = s.stack.Failed()
	if err := s.Engine.RecordImages(); err != nil {
		return down, err
	}
	return down, s.seal(ctx)
}

// forgiven reports whether a box runs without the failed services: nothing requires them.
func forgiven(o *workorder.Order, down []string) bool {
	return o.Found && !slices.ContainsFunc(o.Services, func(s workorder.Service) bool { return s.Asked && slices.Contains(down, s.Name) })
}

// ResetForProof is Reset for a proof: the reported states and logs of the services stay those of the agent's side.
func (s *Services) ResetForProof(ctx context.Context) error {
	if s.ended == nil {
		s.ended = s.Ends()
	}
	return s.reset(ctx, "proof")
}

// Reset resets the engine and the services to their state before code of the repository used them.
func (s *Services) Reset(ctx context.Context) error { return s.reset(ctx, "") }

// reset writes the logs of the services to a directory below the logs.
func (s *Services) reset(ctx context.Context, subdir string) error {
	s.Unwatch()
	renewed, err := s.Engine.Reset(ctx)
	if err != nil || !renewed {
		return err
	}
	if len(s.Order.Services) > 0 {
		logs := filepath.Join(s.Logs, subdir)
		if err := os.MkdirAll(logs, 0o755); err != nil {
			return err
		}
		if err := errors.Join(s.start(ctx, logs)); err != nil { // those that started before must start again
			return err
		}
	}
	return s.Engine.remark(ctx)
}

// start starts the services and registers the names of those that have an address.
func (s *Services) start(ctx context.Context, logs string) (down, err error) {
	info := s.Engine.Info()
	rel, err := filepath.Rel(filepath.Dir(s.Logs), logs)
	if err != nil {
		return nil, err
	}
	wanted := slices.DeleteFunc(slices.Clone(s.Order.Services), func(w workorder.Service) bool { return slices.Contains(s.missing, w.Name) })
	stack, down := services.Up(ctx, services.Config{
		Client: s.Engine.Client(), Services: wanted, TaskID: s.Order.TaskID, MTU: info.MTU, Emit: s.Emit,
		Lost:   s.Lost,
		LogDir: logs, LogRel: rel, Clean: s.Clean, Inbox: workorder.ImageInbox, HostImages: s.Order.HostImages, Log: s.Log, Again: s.Again,
	})
	s.stack = stack
	s.Engine.stack.Store(stack)
	if down != nil && !s.Order.Found {
		return down, nil
	}
	// The agent resolves services by the hosts file, inner containers by the box's resolver.
	names := s.stack.Hosts()
	s.Egress.Names(names)
	return down, services.WriteHosts("/etc/hosts", names)
}

// seal revokes the access of the images of declared services, before untrusted code runs: it closes the layer cache and
// applies the network policy to the engine, once.
func (s *Services) seal(ctx context.Context) error {
	_, err := s.Engine.cache.Publish(ctx)
	if err := errors.Join(err, s.Engine.cache.Seal()); err != nil {
		s.Log.Warn("layer cache", "error", err)
	}
	return s.Egress.Seal(ctx)
}

// Supabase starts the stack, whose CLI is untrusted: its images are not cached, and the network policy applies.
func (s *Services) Supabase(ctx context.Context) (map[string]string, error) {
	if err := s.seal(ctx); err != nil {
		return nil, err
	}
	// No untrusted code has run yet, so only the stack itself can be there.
	scratch := filepath.Join(s.Home, ".supabase-stack")
	err := errors.Join(os.MkdirAll(scratch, 0o700), os.Chown(scratch, int(s.User.UID), int(s.User.GID)))
	if err != nil {
		return nil, fmt.Errorf("start supabase: %w", err)
	}
	s.supabase, err = services.UpSupabase(ctx, services.SupabaseConfig{
		Dir: s.Workspace, Scratch: scratch, User: s.User, Env: s.Env(),
		LogDir: s.Logs, LogRel: workorder.LogsDir, Clean: s.Clean, Emit: s.Emit,
	})
	return s.supabase.Env, err
}

// Unwatch stops watching the services, before they are stopped on purpose.
func (s *Services) Unwatch() {
	if s.stack != nil {
		s.stack.Unwatch()
	}
}

// Ends returns the state of the services, or their last state before a proof recreated them.
func (s *Services) Ends() []workorder.ServiceEnd {
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
