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
	"slices"
	"strings"
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
	m := &Manager{state: state, kept: registry.New(state), secrets: o.Secrets, programs: finder, progress: o.Progress, close: func() error {
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
		sb, err := m.make(ctx, r, s, "", "")
		if err == nil && s.Silence != NoLimit {
			sb.own = true
			sb.live(context.WithoutCancel(ctx))
		}
		return sb, err
	}
	unlock, err := m.lock(ctx, s.Name)
	if err != nil {
		return nil, err
	}
	defer unlock()
	return m.named(ctx, p, r, s, "", registry.Event{Event: registry.Created, Detail: s.Image})
}

// named makes a named sandbox of a complete spec, of a snapshot if one is named. After an error there is none. The caller has the lock of its name.
func (m *Manager) named(ctx context.Context, p *place, r runtime.Stander, s Spec, snapshot string, what registry.Event) (*Sandbox, error) {
	if err := m.free(ctx, p, s.Name); err != nil {
		return nil, err
	}
	undo, err := m.addWorktree(ctx, &s)
	if err != nil {
		return nil, err
	}
	sb, err := m.make(ctx, r, s, snapshot, "")
	if err != nil {
		return nil, errors.Join(err, undo(context.WithoutCancel(ctx)))
	}
	if err := m.made(ctx, sb, what.Event, what.Detail); err != nil {
		sb.drop()
		clean, cancel := cleanup(ctx)
		defer cancel()
		return nil, errors.Join(err, public(r.Remove(clean, sb.id)), undo(clean))
	}
	return sb, nil
}

// make makes a sandbox of a complete spec, of a snapshot if one is named, and waits until it answers. Without an owner it is this state folder's.
func (m *Manager) make(ctx context.Context, r runtime.Stander, s Spec, snapshot, owner string) (*Sandbox, error) {
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
	if owner == "" {
		if owner, err = m.owner(s.Lifetime == Named); err != nil {
			return nil, err
		}
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
		return nil, public(fmt.Errorf("sandbox %s: %w", s.Name, err))
	}
	sb := &Sandbox{m: m, r: r, id: id, spec: s, running: true, from: snapshot, owner: owner, asItIs: true} // the caller has the lock that recreating it would wait for
	if _, err = sb.client(ctx, false); err == nil {
		err = sb.clone(ctx, file)
	}
	sb.asItIs = false
	if err != nil {
		clean, cancel := cleanup(ctx)
		defer cancel()
		return nil, errors.Join(sb.explain(clean, err), r.Remove(clean, id))
	}
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

// free refuses a name that a sandbox of another kind has; one of the same kind is refused when it is made. A kind that does not answer has none that
// could be used now.
func (m *Manager) free(ctx context.Context, but *place, name string) error {
	for _, p := range m.all {
		r, err := p.open()
		if err != nil || p.sharesNames(but) {
			continue
		}
		if boxes, err := r.Boxes(ctx, map[string]string{labelName: name}); err == nil && len(boxes) > 0 {
			return fmt.Errorf("sandbox %s: %w, of runtime %s", name, ErrExists, p.kind)
		}
	}
	return nil
}

// Get finds a sandbox by its name. Of a named one whose container is gone, removed by somebody else than Remove, there is what is kept: its first use makes it
// anew, without the files that it had (see Sandbox.Renewed).
func (m *Manager) Get(ctx context.Context, name string) (*Sandbox, error) {
	sb, err := m.find(ctx, name)
	if errors.Is(err, ErrNotFound) {
		return m.remember(ctx, name)
	}
	return sb, err
}

// Peek finds a sandbox that runs, as Get does; what is done with it starts it in no case, also where it ends meanwhile.
func (m *Manager) Peek(ctx context.Context, name string) (*Sandbox, error) {
	sb, err := m.find(ctx, name)
	if err == nil {
		sb.asItIs = true
	}
	return sb, err
}

// find finds a sandbox where it is.
func (m *Manager) find(ctx context.Context, name string) (*Sandbox, error) {
	var found *Sandbox
	err := m.look(ctx, name, func(sb *Sandbox, _ runtime.Box) (more bool) {
		found = sb
		return false
	})
	switch {
	case found != nil:
		return found, nil
	case err != nil:
		return nil, fmt.Errorf("sandbox %s: %w", name, err)
	}
	return nil, fmt.Errorf("sandbox %s: %w", name, ErrNotFound)
}

// look shows sandboxes of a name, or with an empty one all, until there is to be no more. With the error of a kind that does not answer, or of a record that cannot be
// read, it has shown the others. An engine is asked once, for all kinds that are on it.
func (m *Manager) look(ctx context.Context, name string, show func(*Sandbox, runtime.Box) (more bool)) error {
	var errs []error
	var asked bool
	var onEngine []runtime.Box
	for _, p := range m.all {
		r, err := p.open()
		if err != nil {
			errs = append(errs, err)
			continue
		}
		boxes := onEngine
		if !p.onEngine() || !asked {
			if boxes, err = r.Boxes(ctx, map[string]string{labelName: name}); err != nil {
				errs = append(errs, public(err))
			}
		}
		if p.onEngine() {
			asked, onEngine = true, boxes
		}
		for _, b := range boxes {
			if known(b).Runtime != p.kind || b.Labels[labelName] == "" { // of another kind, or a container that somebody made of a snapshot
				continue
			}
			if !show(m.known(r, b), b) {
				return nil
			}
		}
	}
	return errors.Join(errs...)
}

// List is all sandboxes, by name. With the error of a kind that does not answer, or of a record that cannot be read, it has the others.
func (m *Manager) List(ctx context.Context) ([]Info, error) {
	all := []Info{}
	err := m.look(ctx, "", func(sb *Sandbox, _ runtime.Box) (more bool) {
		all = append(all, sb.Info())
		return true
	})
	if err == nil { // else those that cannot be seen are not gone
		var gone []Info
		gone, err = m.gone(ctx, all)
		all = append(all, gone...)
	}
	slices.SortFunc(all, func(a, b Info) int { return strings.Compare(a.Name, b.Name) })
	return all, err
}

// State is whether a sandbox can be used as it is.
type State string

// The states of sandboxes.
const (
	StateRunning State = "running"
	StateStopped State = "stopped" // the next use starts it again, with its files
	StateGone    State = "gone"    // somebody removed what it was: the next use makes it anew, without the files that it had
	// StateElsewhere is on another engine than this one: see Info.Engine.
	StateElsewhere State = "elsewhere"
)

// Info is a row of List.
type Info struct {
	Name    string    `json:"name"`
	State   State     `json:"state"`
	Runtime Kind      `json:"runtime"`
	Image   string    `json:"image,omitempty"`
	Created time.Time `json:"created"`
	// Own reports that it was made with this state folder.
	Own bool `json:"own"`
	// Snapshot is what it was made of, where that is not the image.
	Snapshot string `json:"snapshot,omitempty"`
	// Engine is where one is that is elsewhere.
	Engine string `json:"engine,omitempty"`
	Spec   Spec   `json:"spec"`
}

// known makes a sandbox of what a runtime has.
func (m *Manager) known(r runtime.Stander, b runtime.Box) *Sandbox {
	sb := &Sandbox{m: m, r: r, id: b.ID, running: b.Live(), ended: !b.Live(), created: b.Created, owner: b.Labels[labelOwner], from: b.Labels[labelImage], spec: known(b)}
	m.networkNow(sb, b)
	return sb
}

// known is the spec of a sandbox. One that does not decode is of another version: its name is all that is needed.
func known(b runtime.Box) Spec {
	var s Spec
	if err := json.Unmarshal([]byte(b.Labels[labelSpec]), &s); err != nil {
		s = Spec{}
	}
	s.Name = b.Labels[labelName]
	if s.Runtime == Auto {
		s.Runtime = KindContainer
	}
	return s
}
