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
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime/docker"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime/jail"
	"github.com/sandbox-agent/sandbox-agent/internal/host/sandboxstore"
	"github.com/sandbox-agent/sandbox-agent/internal/host/statedir"
	"github.com/sandbox-agent/sandbox-agent/internal/host/wireclient"
	"github.com/sandbox-agent/sandbox-agent/wire"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Labels of a sandbox's container. They take precedence over its record.
const (
	labelName = runtime.LabelSandbox
	labelSpec = "sandbox-agent.sandbox.spec"
	// labelOwner names the owning state directory.
	labelOwner = "sandbox-agent.sandbox.owner"
	// labelImage is the snapshot it was made from; empty if it was made from its spec's image.
	labelImage = "sandbox-agent.sandbox.image"
	// namePrefix distinguishes containers of standalone sandboxes from boxes of tasks.
	namePrefix = "sandbox-agent-sandbox-"
)

const stopGrace = 10 * time.Second // the guest kills its commands at once

// cleanup returns a context for undoing a failed operation. It is short after ctx has ended, since a user waits for the
// program to exit; gc removes the rest.
func cleanup(ctx context.Context) (context.Context, context.CancelFunc) {
	limit := stopGrace
	if ctx.Err() != nil {
		limit /= 2
	}
	return context.WithTimeout(context.WithoutCancel(ctx), limit)
}

// boxStopGrace is longer: the services of a box stop by their own signals (keptGrace of internal/guest/dockerd).
const boxStopGrace = 25 * time.Second

func (k Runtime) grace() time.Duration {
	if k == RuntimeBox {
		return boxStopGrace
	}
	return stopGrace
}

// Options configure a Manager. The zero value behaves as the command line does.
type Options struct {
	// Getenv reads environment variables: DOCKER_HOST and its like, and those of the state and configuration
	// directories; nil means os.Getenv.
	Getenv func(string) string
	// StateDir holds jails with their files, and the records of named sandboxes; "" means the command line's. Sessions
	// in containers need none.
	StateDir string
	// AllUsers also finds and lists sandboxes of other state directories. They can be inspected and discarded, not used.
	AllUsers bool
	// AllowHost allows sandboxes without isolation (RuntimeHost), whatever the configuration says.
	AllowHost bool
	// Secrets returns the secrets of a box at each of its starts; nil means no secrets.
	Secrets func(ctx context.Context, s Spec) (Secrets, error)
	// Slot, if non-nil, is called with a sandbox's name before the sandbox is created or started. An error refuses that; release is
	// called when the sandbox runs or has failed to.
	Slot func(ctx context.Context, name string) (release func(), err error)
	// Programs, if non-nil, has the guest programs as files guest-linux-ARCH and entrypoint-linux-ARCH. If nil, they are embedded in this
	// program, or built once with the Go toolchain on PATH, from the version of this module that this program was built with.
	Programs fs.FS
	// Progress, if non-nil, receives one line per step of creation.
	Progress func(text string)
	// Log receives debug messages; nil discards them.
	Log *slog.Logger
}

// Manager creates, finds and lists sandboxes.
type Manager struct {
	creator *creator
	close   func() error
}

type creator struct {
	lookup
	secrets  func(context.Context, Spec) (Secrets, error)
	programs *programs.Finder
	progress func(string)
	slot     func(ctx context.Context, name string) (release func(), err error)
}

// NewManager returns a Manager. It contacts nothing.
func NewManager(o Options) (*Manager, error) {
	if o.Getenv == nil {
		o.Getenv = os.Getenv
	}
	if o.StateDir == "" {
		dir, err := statedir.DefaultDir(o.Getenv)
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
		state = "" // operations that need it return an error
	}
	finder := programs.New(o.Programs, o.Getenv, state)
	local := func(of func(jail.Options) runtime.SandboxRuntime) func() (runtime.SandboxRuntime, error) {
		return sync.OnceValues(func() (runtime.SandboxRuntime, error) {
			dir, err := o.stateDir()
			if err != nil {
				return nil, err
			}
			return of(jail.Options{State: dir, Getenv: o.Getenv, Guest: func(ctx context.Context, arch string) (image.Packed, error) {
				return finder.Guest(ctx, arch, o.Progress)
			}, Allowed: o.allowsHost}), nil
		})
	}
	cr := &creator{
		lookup:  lookup{records: records{state, sandboxstore.New(state)}, allUsers: o.AllUsers},
		secrets: o.Secrets, programs: finder, progress: o.Progress, slot: o.Slot,
	}
	cr.creator = cr
	closeAll := func() error {
		var errs []error
		for _, c := range used {
			errs = append(errs, c())
		}
		return errors.Join(errs...)
	}
	// A new runtime has a name in runtime.go, an entry here, and passes internal/test/runtimetest and internal/host/doctor.
	cr.all = backends{
		{RuntimeJail, "", local(jail.New)},
		{RuntimeContainer, namePrefix, func() (runtime.SandboxRuntime, error) {
			e, err := engine()
			if err != nil {
				return nil, err
			}
			return &docker.Sandboxes{Engine: e}, nil
		}},
		{RuntimeBox, namePrefix, sync.OnceValues(func() (runtime.SandboxRuntime, error) {
			e, err := engine()
			if err != nil {
				return nil, err
			}
			return cr.boxes(e, o), nil
		})},
		{RuntimeHost, "", local(jail.NewHost)},
	}
	return &Manager{cr, closeAll}, nil
}

func (o Options) stateDir() (string, error) {
	if o.StateDir != "" {
		return filepath.Abs(o.StateDir)
	}
	return statedir.DefaultDir(o.Getenv)
}

func (o Options) allowsHost() error {
	if o.AllowHost {
		return nil
	}
	s, err := statedir.LoadSettings(o.Getenv)
	if err == nil && s.Security.RequireSandbox {
		err = &kindError{ErrUnsupported, fmt.Errorf("no isolation: to allow it, write `security: {require_sandbox: false}` into %s", s.File)}
	}
	return err
}

// Close drops idle connections to the engine. Sandboxes stay; close those of sessions first.
func (m *Manager) Close() error { return m.close() }

// Healthy returns an error if no runtime can create sandboxes. It builds a missing guest program (see
// Options.Programs), so that the first Create does not have to.
func (m *Manager) Healthy(ctx context.Context) error {
	var errs []error
	for _, p := range m.creator.all {
		_, err := p.capabilities(ctx)
		if err == nil {
			_, err := m.creator.programs.Guest(ctx, goruntime.GOARCH, m.creator.progress)
			return err
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// ImageID returns the id of an image of the engine. The image's name may later refer to another image.
func (m *Manager) ImageID(ctx context.Context, image string) (string, error) {
	r, err := m.creator.all.find(RuntimeContainer).open()
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

// EnsureImage makes available what Create needs for a spec: it pulls the image of a container, without credentials; it builds
// the default image of a box; it builds a missing guest program (see Options.Programs). If all of it exists, it changes nothing.
// Options.Progress receives one line per step.
func (m *Manager) EnsureImage(ctx context.Context, s Spec) error {
	complete, err := s.complete()
	if err != nil {
		return err
	}
	p, _, err := m.creator.all.choose(ctx, s)
	if err != nil {
		return fmt.Errorf("sandbox %s: %w", complete.Name, err)
	}
	r, err := p.open()
	if err != nil {
		return err
	}
	progress := m.creator.progress
	if progress == nil {
		progress = func(string) {}
	}
	if e, ok := r.(runtime.ImageEnsurer); ok {
		box, err := complete.Box.order()
		if err == nil {
			err = e.EnsureImage(ctx, complete.Image, &box, progress)
		}
		if err != nil {
			return public(err)
		}
	}
	if p.kind == RuntimeBox { // its image has the program
		return nil
	}
	_, err = m.creator.programs.Guest(ctx, goruntime.GOARCH, progress)
	return err
}

// Create creates a sandbox and waits until it answers. It leaves none after an error.
func (m *Manager) Create(ctx context.Context, s Spec) (_ *Sandbox, err error) {
	cr := m.creator
	asked := s
	defer func() {
		if err != nil && asked.Lifetime != LifetimeEphemeral && ValidName(asked.Name) && !errors.Is(err, ErrExists) {
			cr.note(sandboxstore.Event{Sandbox: asked.Name, Event: sandboxstore.EventFailed, Detail: err.Error()})
		}
	}()
	if s, err = s.complete(); err != nil {
		return nil, err
	}
	p, has, err := cr.all.choose(ctx, asked)
	if err != nil {
		return nil, fmt.Errorf("sandbox %s: %w", s.Name, err)
	}
	r, err := p.open()
	if err != nil {
		return nil, err
	}
	s.Runtime = p.kind
	s.Limits.hold(has)
	if s.Lifetime != LifetimeNamed {
		in, err := cr.make(ctx, r, s, "")
		if err != nil {
			return nil, err
		}
		if s.OwnerTimeout != NoLimit {
			in.conn.keepAlive(context.WithoutCancel(ctx), s.OwnerTimeout/4, func(ctx context.Context) { // the next signal makes up for a lost one
				_ = in.use(ctx, func(c *wireclient.Client) error { return c.Alive(ctx) })
			})
		}
		return &Sandbox{in}, nil
	}
	unlock, err := cr.lock(ctx, s.Name)
	if err != nil {
		return nil, err
	}
	defer unlock()
	in, err := cr.createNamed(ctx, p, r, s, sandboxstore.Creation{Event: sandboxstore.EventCreated, Detail: s.Image})
	if err != nil {
		return nil, err
	}
	return &Sandbox{in}, nil
}

// reserve calls Options.Slot.
func (cr *creator) reserve(ctx context.Context, name string) (release func(), err error) {
	if cr.slot == nil {
		return func() {}, nil
	}
	return cr.slot(ctx, name)
}

// make creates a sandbox from a complete spec, or from a snapshot if one is named, and waits until it answers. With an
// error it returns the sandbox only if that could not be removed.
func (cr *creator) make(ctx context.Context, r runtime.SandboxRuntime, s Spec, snapshot string) (*instance, error) {
	if err := sameMounts(s.Mounts); err != nil {
		return nil, fmt.Errorf("sandbox %s: %w", s.Name, err)
	}
	if err := s.guard(ctx); err != nil {
		return nil, err
	}
	sources, remove, err := s.bundles(ctx)
	if err != nil {
		return nil, fmt.Errorf("sandbox %s: %w", s.Name, err)
	}
	defer remove()
	for _, src := range sources {
		if snapshot != "" { // it contains its clones
			break
		}
		if err := cr.cloned(ctx, s.Name, src.Repo, src.base); err != nil {
			return nil, fmt.Errorf("sandbox %s: %w", s.Name, err)
		}
	}
	spec, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	owner, err := cr.owner(s.Lifetime == LifetimeNamed)
	if err != nil {
		return nil, err
	}
	create := cr.guestOf(s)
	if s.Repo != "" && len(sources) > 0 {
		create.Bundle = sources[0].file
	}
	create.Name, create.Image = cr.all.find(s.Runtime).prefix+s.Name, cmp.Or(snapshot, s.Image)
	create.Labels = map[string]string{labelName: s.Name, labelSpec: string(spec), labelOwner: owner, labelImage: snapshot}
	create.Root, create.NetworkNone, create.OCIRuntime = s.Root, s.Network == NetworkNone || s.proxied(), s.OCIRuntime
	create.Throwaway = s.Lifetime == LifetimeEphemeral
	create.Limits = s.Limits.effective()
	if s.Runtime == RuntimeBox {
		create.Labels[labelTask] = workorder.NewTaskID()
		if create.Box, err = cr.envelope(ctx, s, create.Labels[labelTask]); err != nil {
			return nil, fmt.Errorf("sandbox %s: %w", s.Name, err)
		}
	}
	release, err := cr.reserve(ctx, s.Name)
	if err != nil {
		return nil, fmt.Errorf("sandbox %s: %w", s.Name, err)
	}
	defer release()
	id, err := r.Create(ctx, create)
	if err != nil {
		return nil, cr.clash(ctx, s.Name, public(fmt.Errorf("sandbox %s: %w", s.Name, err)))
	}
	// making is set because the caller holds the lock that recreating the sandbox would wait for.
	in := &instance{c: cr, r: r, id: id, spec: s, running: true, from: snapshot, owner: owner, making: true}
	dial := func() (*wireclient.Client, error) { return in.dial(ctx, false) }
	if _, err = in.conn.open(ctx, dial); err == nil {
		err = (&Branch{in: in}).cloneAll(ctx, sources)
	}
	if err != nil {
		clean, cancel := cleanup(ctx)
		defer cancel()
		err = in.explain(clean, err)
		if rerr := r.Remove(clean, id); rerr != nil {
			return in, errors.Join(err, public(rerr))
		}
		return nil, err
	}
	in.making = s.Lifetime == LifetimeNamed // until the caller has stored its record
	return in, nil
}

// guestOf returns the part of a complete spec that the guest receives.
func (cr *creator) guestOf(s Spec) runtime.SandboxSpec {
	create := runtime.SandboxSpec{
		Guest: func(ctx context.Context, arch string) ([]byte, error) {
			p, err := cr.programs.Guest(ctx, arch, cr.progress)
			if err != nil {
				return nil, err
			}
			return p.Unpack()
		},
		Config: wire.Config{
			User: s.User, Dir: s.Dir, OwnDir: s.CreateDir, Env: s.Env, ImageEnv: s.ImageEnv,
			IdleTimeoutMS: s.IdleTimeout.Milliseconds(), TTLMS: s.TTL.Milliseconds(), Proxy: s.proxied() && !s.Nested,
		},
	}
	for _, b := range s.Mounts {
		create.Mounts = append(create.Mounts, runtime.Mount(b))
	}
	if s.Lifetime == LifetimeEphemeral {
		create.Config.OwnerTimeoutMS = max(s.OwnerTimeout, 0).Milliseconds()
	}
	if s.Nested {
		create.Config.User = "" // the process that creates nested sandboxes is root
		l := &wire.NestedConfig{
			User: s.User, Dir: s.Dir, Bytes: s.Limits.effective().MemoryBytes, Network: s.Network != NetworkNone && !s.proxied(),
			Proxy: s.proxied(),
		}
		for _, b := range s.Mounts {
			l.Mounts = append(l.Mounts, b.Target)
		}
		create.Config.Dir, create.Config.Nested = "", l
	}
	return create
}
