package sandbox

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	goruntime "runtime"
	"sync"
	"time"

	"github.com/sandbox-agent/sandbox-agent/image"
	"github.com/sandbox-agent/sandbox-agent/internal/host/programs"
	"github.com/sandbox-agent/sandbox-agent/internal/host/registry"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime/docker"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime/jail"
	"github.com/sandbox-agent/sandbox-agent/internal/host/settings"
	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
	"github.com/sandbox-agent/sandbox-agent/wire"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Labels of a sandbox. They are the truth about it.
const (
	labelName = runtime.LabelSandbox
	labelSpec = "sandbox-agent.sandbox.spec"
	// labelOwner names the state folder that it was made with.
	labelOwner = "sandbox-agent.sandbox.owner"
	// labelImage is the snapshot that it was made of; empty for one that was made of its spec's image.
	labelImage = "sandbox-agent.sandbox.image"
	// namePrefix of a container sets sandboxes apart from the boxes of tasks.
	namePrefix = "sandbox-agent-sandbox-"
)

// stopGrace is what a guest has to end its commands: it kills them at once.
const stopGrace = 10 * time.Second

// cleanup returns a context for undoing what was begun. It is short after ctx has ended: a user waits for the program's end, and gc finds the rest.
func cleanup(ctx context.Context) (context.Context, context.CancelFunc) {
	limit := stopGrace
	if ctx.Err() != nil {
		limit /= 2
	}
	return context.WithTimeout(context.WithoutCancel(ctx), limit)
}

// boxStopGrace is what a box has, whose services end by their own signals (keptGrace of internal/guest/dockerd) on what may be a busy machine.
const boxStopGrace = 25 * time.Second

// grace is what a sandbox of the kind has to end.
func (k Kind) grace() time.Duration {
	if k == KindBox {
		return boxStopGrace
	}
	return stopGrace
}

// Options are how a Manager works. The zero value is what a command line uses.
type Options struct {
	// Getenv reads the environment that names the engine (DOCKER_HOST and its like) and the folders of state and configuration; nil is os.Getenv.
	Getenv func(string) string
	// StateDir is where jails and their files are, and what is kept of named sandboxes beside their runtime; "" means the command line's. Sessions in containers need
	// none.
	StateDir string
	// AllUsers also finds and lists sandboxes of other state directories. They can be looked at and discarded, and not used.
	AllUsers bool
	// AllowHost allows sandboxes that nothing isolates (KindHost), whatever the configuration says.
	AllowHost bool
	// Secrets is asked for the secrets of a box each time that it is started; nil: there are none.
	Secrets func(ctx context.Context, s Spec) (Secrets, error)
	// Programs, if non-nil, has the programs that run inside sandboxes, as files guest-linux-ARCH and entrypoint-linux-ARCH. If nil, they are those that this
	// program carries, or they are built once with the Go toolchain on PATH, from the version of this module that this program was built with.
	Programs fs.FS
	// Progress is told what is done until a sandbox is ready, a line each; nil tells nobody.
	Progress func(text string)
	// Log is for whoever looks for a fault; nil drops it.
	Log *slog.Logger
}

// Manager makes, finds and lists sandboxes.
type Manager struct {
	all     []*place // in the order in which Auto tries them
	state   string   // folder; "" where there can be none
	kept    *registry.Registry
	secrets func(context.Context, Spec) (Secrets, error)
	// programs finds the programs that run inside, and progress receives a line before one is built.
	programs *programs.Finder
	progress func(string)
	close    func() error
	// allUsers is Options.AllUsers.
	allUsers bool
}

// Open returns a Manager. It contacts nothing.
func Open(o Options) (*Manager, error) {
	if o.Getenv == nil {
		o.Getenv = os.Getenv
	}
	if o.StateDir == "" {
		dir, err := store.DefaultDir(o.Getenv)
		if err == nil {
			o.StateDir = dir
		}
	}
	var used []func() error
	engine := sync.OnceValues(func() (*docker.Engine, error) {
		e, err := docker.New(o.Getenv)
		if err == nil {
			used = append(used, e.Close)
		}
		return e, err
	})
	state, err := o.stateDir()
	if err != nil {
		state = "" // who needs one is told
	}
	finder := programs.New(o.Programs, o.Getenv, state)
	local := func(of func(jail.Options) runtime.Stander) func() (runtime.Stander, error) {
		return sync.OnceValues(func() (runtime.Stander, error) {
			dir, err := o.stateDir()
			if err != nil {
				return nil, err
			}
			return of(jail.Options{State: dir, Getenv: o.Getenv, Guest: func(ctx context.Context, arch string) (image.PackedGuest, error) {
				return finder.PackedGuest(ctx, arch, o.Progress)
			}, Allowed: o.allowsHost}), nil
		})
	}
	m := &Manager{state: state, kept: registry.New(state), secrets: o.Secrets, programs: finder, progress: o.Progress, allUsers: o.AllUsers, close: func() error {
		var errs []error
		for _, c := range used {
			errs = append(errs, c())
		}
		return errors.Join(errs...)
	}}
	m.all = []*place{
		{KindJail, "", local(jail.New)},
		{KindContainer, namePrefix, func() (runtime.Stander, error) { return engine() }},
		{KindBox, namePrefix, sync.OnceValues(func() (runtime.Stander, error) {
			e, err := engine()
			if err != nil {
				return nil, err
			}
			return m.boxes(e, o), nil
		})},
		{KindHost, "", local(jail.NewMachine)},
	}
	return m, nil
}

func (o Options) stateDir() (string, error) {
	if o.StateDir != "" {
		return filepath.Abs(o.StateDir)
	}
	return store.DefaultDir(o.Getenv)
}

// allowsHost says why there must be no sandbox that nothing isolates.
func (o Options) allowsHost() error {
	if o.AllowHost {
		return nil
	}
	s, err := settings.Load(o.Getenv)
	if err == nil && s.Security.RequireSandbox {
		err = &kindError{ErrUnsupported, fmt.Errorf("it isolates nothing: to allow it, write `security: {require_sandbox: false}` into %s", s.File)}
	}
	return err
}

// Close drops idle connections to the engine. Sandboxes stay; the caller closes those of sessions first.
func (m *Manager) Close() error { return m.close() }

// Healthy reports what keeps sandboxes from being made; nil if there can be any of some kind. It builds the guest program where it is missing (see Options.Programs),
// so that the first Create need not.
func (m *Manager) Healthy(ctx context.Context) error {
	var errs []error
	for _, p := range m.all {
		_, err := p.capabilities(ctx)
		if err == nil {
			_, err := m.programs.PackedGuest(ctx, goruntime.GOARCH, m.progress)
			return err
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// ImageID is the id of an image of the engine, by a name that may be another's later.
func (m *Manager) ImageID(ctx context.Context, image string) (string, error) {
	r, err := m.place(KindContainer).open()
	if err != nil {
		return "", err
	}
	id := ""
	if store, ok := r.(runtime.ImageStore); ok {
		if id, err = store.ImageID(ctx, image); err != nil {
			return "", public(err)
		}
	}
	if id == "" {
		return "", fmt.Errorf("image %s: %w", image, ErrNotFound)
	}
	return id, nil
}

// Create makes a sandbox and waits until it answers. After an error there is none.
func (m *Manager) Create(ctx context.Context, s Spec) (*Sandbox, error) {
	asked := s
	s, err := s.complete()
	if err != nil {
		return nil, err
	}
	p, has, err := m.choose(ctx, asked)
	if err != nil {
		return nil, fmt.Errorf("sandbox %s: %w", s.Name, err)
	}
	r, err := p.open()
	if err != nil {
		return nil, err
	}
	s.Runtime = p.kind
	s.Limits.hold(has)
	if s.Lifetime != Named {
		sb, err := m.make(ctx, r, s, "")
		if err != nil {
			return nil, err
		}
		if s.Silence != NoLimit {
			sb.own = true
			sb.live(context.WithoutCancel(ctx))
		}
		return sb, nil
	}
	unlock, err := m.lock(ctx, s.Name)
	if err != nil {
		return nil, err
	}
	defer unlock()
	return m.createNamed(ctx, p, r, s, registry.Creation{Event: registry.Created, Detail: s.Image})
}

// make makes a sandbox of a complete spec, of a snapshot if one is named, and waits until it answers. With an error it returns the sandbox only if that could not be removed.
func (m *Manager) make(ctx context.Context, r runtime.Stander, s Spec, snapshot string) (*Sandbox, error) {
	if err := sameMounts(s.Mounts); err != nil {
		return nil, fmt.Errorf("sandbox %s: %w", s.Name, err)
	}
	if err := s.guard(ctx); err != nil {
		return nil, err
	}
	file, base, remove, err := s.bundle(ctx)
	if err != nil {
		return nil, fmt.Errorf("sandbox %s: %w", s.Name, err)
	}
	defer remove()
	if base != "" && snapshot == "" { // a snapshot has its clone
		if err := m.cloned(ctx, s, base); err != nil {
			return nil, fmt.Errorf("sandbox %s: %w", s.Name, err)
		}
	}
	spec, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	owner, err := m.owner(s.Lifetime == Named)
	if err != nil {
		return nil, err
	}
	stand := m.guestOf(s)
	stand.Bundle = file
	stand.Name, stand.Image = m.place(s.Runtime).prefix+s.Name, cmp.Or(snapshot, s.Image)
	stand.Labels = map[string]string{labelName: s.Name, labelSpec: string(spec), labelOwner: owner, labelImage: snapshot}
	stand.Root, stand.NetworkNone, stand.OCIRuntime, stand.Throwaway = s.Root, s.Network == NetworkNone, s.OCIRuntime, s.Lifetime == Session
	stand.MemoryBytes, stand.CPUs, stand.PIDs = limit(s.Limits.MemoryBytes), float64(limit(int64(s.Limits.CPUs*1000)))/1000, limit(s.Limits.PIDs)
	if s.Runtime == KindBox {
		stand.Labels[labelTask] = workorder.NewTaskID()
		if stand.Box, err = m.envelope(ctx, s, stand.Labels[labelTask]); err != nil {
			return nil, fmt.Errorf("sandbox %s: %w", s.Name, err)
		}
	}
	id, err := r.Stand(ctx, stand)
	if err != nil {
		return nil, m.clash(ctx, s.Name, public(fmt.Errorf("sandbox %s: %w", s.Name, err)))
	}
	sb := &Sandbox{m: m, r: r, id: id, spec: s, running: true, from: snapshot, owner: owner, making: true} // the caller has the lock that recreating it would wait for
	if _, err = sb.client(ctx, false); err == nil {
		err = sb.clone(ctx, file)
	}
	if err != nil {
		clean, cancel := cleanup(ctx)
		defer cancel()
		err = sb.explain(clean, err)
		if rerr := r.Remove(clean, id); rerr != nil {
			return sb, errors.Join(err, public(rerr))
		}
		return nil, err
	}
	sb.making = s.Lifetime == Named // until the caller has kept it
	return sb, nil
}

// guestOf is the part of a complete spec that the guest is told.
func (m *Manager) guestOf(s Spec) runtime.StandSpec {
	stand := runtime.StandSpec{
		Guest: func(ctx context.Context, arch string) ([]byte, error) { return m.programs.Guest(ctx, arch, m.progress) },
		Config: wire.Config{
			User: s.User, Dir: s.Dir, OwnDir: s.OwnDir, Env: s.Env, ImageEnv: s.ImageEnv, IdleMS: s.Idle.Milliseconds(), LifeMS: s.Life.Milliseconds(),
		},
	}
	for _, b := range s.Mounts {
		stand.Mounts = append(stand.Mounts, runtime.Mount(b))
	}
	if s.Lifetime == Session {
		stand.Config.SilenceMS = max(s.Silence, 0).Milliseconds()
	}
	if s.Leases {
		stand.Config.User = "" // who makes leases is root
		l := &wire.Leases{User: s.User, Dir: s.Dir, Bytes: limit(s.Limits.MemoryBytes), Network: s.Network != NetworkNone}
		for _, b := range s.Mounts {
			l.Mounts = append(l.Mounts, b.Inside)
		}
		stand.Config.Dir, stand.Config.Leases = "", l
	}
	return stand
}
