// Package sandbox makes sandboxes without a task and runs commands in them.
//
// A Manager makes, finds and lists sandboxes; a Sandbox runs commands, has files and brings connections to its ports. The engine is the one that
// the docker command would use. Nothing is contacted before a method that needs it, and every method takes a context that bounds it.
// Methods may be called concurrently.
//
// A sandbox is named and stays until Remove (Named), or it belongs to the program that made it and ends with it (Session): also where that is killed, since
// its guest ends it after a minute without a sign of life (Spec.Silence).
package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sandbox-agent/sandbox-agent/image"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime/docker"
	"github.com/sandbox-agent/sandbox-agent/internal/host/wireclient"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/wire"
)

// Errors on which a caller branches.
var (
	// ErrNotFound means that there is no such sandbox, image, command or file.
	ErrNotFound = errors.New("not found")
	// ErrExists means that there is a sandbox, or a file, of that name already.
	ErrExists = errors.New("there is one of that name already")
	// ErrUnavailable means that what runs sandboxes does not answer.
	ErrUnavailable = errors.New("the engine does not answer")
	// ErrUnsupported means that the runtime cannot give what a Spec asks for.
	ErrUnsupported = errors.New("the runtime cannot give that")
	// ErrSpec means that a Spec or Command is wrong.
	ErrSpec = errors.New("not valid")
	// ErrLost means that the connection to the sandbox has ended. What runs in it may run on.
	ErrLost = errors.New("the connection to the sandbox was lost")
	// ErrRefused means that nothing listens at an address in the sandbox.
	ErrRefused = errors.New("nothing listens there")
)

// Labels of a sandbox's container. They are the truth about it: there is no other record.
const (
	labelName = "sandbox-agent.sandbox"
	labelSpec = "sandbox-agent.sandbox.spec"
	// namePrefix of a container sets sandboxes apart from the boxes of tasks.
	namePrefix = "sandbox-agent-sandbox-"
)

// stopGrace is what a guest has to end its commands: it kills them at once.
const stopGrace = 10 * time.Second

// Options are how a Manager works. The zero value is what a command line uses.
type Options struct {
	// Getenv reads the environment that names the engine (DOCKER_HOST and its like); nil is os.Getenv.
	Getenv func(string) string
}

// Manager makes, finds and lists sandboxes.
type Manager struct{ engine engine }

// engine is what a Manager needs of one.
type engine interface {
	runtime.Runtime
	runtime.Stander
	Close() error
}

// Open returns a Manager. It contacts nothing.
func Open(o Options) (*Manager, error) {
	if o.Getenv == nil {
		o.Getenv = os.Getenv
	}
	e, err := docker.New(o.Getenv)
	if err != nil {
		return nil, err
	}
	return &Manager{e}, nil
}

// Close drops idle connections to the engine. Sandboxes stay; the caller closes those of sessions first.
func (m *Manager) Close() error { return m.engine.Close() }

// Healthy reports what keeps sandboxes from being made; nil if nothing does. The error holds ErrUnavailable.
func (m *Manager) Healthy(ctx context.Context) error {
	_, err := m.engine.Info(ctx)
	return public(err)
}

// Create makes a sandbox and waits until it answers. After an error there is none.
func (m *Manager) Create(ctx context.Context, s Spec) (*Sandbox, error) {
	s, err := s.complete()
	if err != nil {
		return nil, err
	}
	if s.OCIRuntime != "" {
		info, err := m.engine.Info(ctx)
		if err != nil {
			return nil, public(err)
		}
		if !slices.Contains(info.Runtimes, s.OCIRuntime) {
			return nil, fmt.Errorf("%w: the engine has no OCI runtime %q, only %s", ErrUnsupported, s.OCIRuntime, strings.Join(info.Runtimes, ", "))
		}
	}
	spec, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	stand := runtime.StandSpec{
		Name: namePrefix + s.Name, Image: s.Image, Labels: map[string]string{labelName: s.Name, labelSpec: string(spec)}, Guest: image.Guest,
		Config: wire.Config{
			User: s.User, Dir: s.Dir, Env: s.Env, IdleMS: s.Idle.Milliseconds(), LifeMS: s.Life.Milliseconds(),
		},
		NetworkNone: s.Network == NetworkNone, OCIRuntime: s.OCIRuntime, Throwaway: s.Lifetime == Session,
		MemoryBytes: limit(s.Limits.MemoryBytes), CPUs: float64(limit(int64(s.Limits.CPUs*1000))) / 1000, PIDs: limit(s.Limits.PIDs),
	}
	if s.Lifetime == Session {
		stand.Config.SilenceMS = s.Silence.Milliseconds()
	}
	id, err := m.engine.Stand(ctx, stand)
	if err != nil {
		return nil, public(fmt.Errorf("sandbox %s: %w", s.Name, err))
	}
	sb := &Sandbox{m: m, id: id, spec: s, own: s.Lifetime == Session, running: true}
	if _, err := sb.client(ctx); err != nil {
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopGrace)
		defer cancel()
		return nil, errors.Join(sb.explain(clean, err), m.engine.Remove(clean, id))
	}
	if s.Lifetime == Session {
		sb.live(context.WithoutCancel(ctx))
	}
	return sb, nil
}

// Get finds a sandbox by its name.
func (m *Manager) Get(ctx context.Context, name string) (*Sandbox, error) {
	boxes, err := m.engine.Boxes(ctx, map[string]string{labelName: name})
	if err != nil {
		return nil, public(err)
	}
	if len(boxes) == 0 {
		return nil, fmt.Errorf("sandbox %s: %w", name, ErrNotFound)
	}
	return m.known(boxes[0]), nil
}

// List is all sandboxes of the engine, by name.
func (m *Manager) List(ctx context.Context) ([]Info, error) {
	boxes, err := m.engine.Boxes(ctx, map[string]string{labelName: ""})
	if err != nil {
		return nil, public(err)
	}
	all := make([]Info, 0, len(boxes))
	for _, b := range boxes {
		sb := m.known(b)
		all = append(all, Info{Name: sb.spec.Name, Image: sb.spec.Image, Running: b.Live(), Created: b.Created, Spec: sb.spec})
	}
	slices.SortFunc(all, func(a, b Info) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// Info is a row of List.
type Info struct {
	Name    string    `json:"name"`
	Image   string    `json:"image"`
	Running bool      `json:"running"` // otherwise it has ended, and the next use starts it again
	Created time.Time `json:"created"`
	Spec    Spec      `json:"spec"`
}

// known makes a sandbox of a container. A spec that does not decode is of another version: its name is all that is needed.
func (m *Manager) known(b runtime.Box) *Sandbox {
	sb := &Sandbox{m: m, id: b.ID, running: b.Live()}
	if err := json.Unmarshal([]byte(b.Labels[labelSpec]), &sb.spec); err != nil {
		sb.spec = Spec{}
	}
	sb.spec.Name = b.Labels[labelName]
	return sb
}

// Sandbox is one sandbox. It connects when it is used first, starts again where it had ended, and connects anew where the connection was lost.
type Sandbox struct {
	m    *Manager
	id   string
	spec Spec
	own  bool // of a session that this program has made

	mu      sync.Mutex
	running bool // when it was seen last
	c       *wireclient.Client
	stop    context.CancelFunc // of the signs of life
}

// Name is the sandbox's name.
func (sb *Sandbox) Name() string { return sb.spec.Name }

// Spec is what the sandbox was made of, with defaults filled in.
func (sb *Sandbox) Spec() Spec { return sb.spec }

// Stop ends everything in the sandbox and keeps its files; the next use starts it again. To stop a stopped one is not an error.
func (sb *Sandbox) Stop(ctx context.Context) error {
	sb.drop()
	return public(sb.m.engine.Stop(ctx, sb.id, stopGrace))
}

// Remove ends the sandbox and removes it with its files. To remove one that is gone is not an error.
func (sb *Sandbox) Remove(ctx context.Context) error {
	sb.drop()
	return public(sb.m.engine.Remove(ctx, sb.id))
}

// Reset removes the sandbox and makes it anew of the same Spec, with nothing of before in it. The one that it returns takes this one's place; after an error
// there may be none.
func (sb *Sandbox) Reset(ctx context.Context) (*Sandbox, error) {
	if err := sb.Remove(ctx); err != nil {
		return nil, err
	}
	return sb.m.Create(ctx, sb.spec)
}

// Close removes the sandbox of a Session that Create has returned. Of any other it drops the connection: one that Get has found is somebody else's.
func (sb *Sandbox) Close(ctx context.Context) error {
	if sb.own {
		return sb.Remove(ctx)
	}
	sb.drop()
	return nil
}

// drop forgets the connection.
func (sb *Sandbox) drop() {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	if sb.stop != nil {
		sb.stop()
		sb.stop = nil
	}
	if sb.c != nil {
		_ = sb.c.Close() // it is not used any more
		sb.c = nil
	}
}

// client is the connection, made where there is none.
func (sb *Sandbox) client(ctx context.Context) (*wireclient.Client, error) {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	if sb.c != nil {
		return sb.c, nil
	}
	c, err := sb.connect(ctx)
	if err != nil && sb.running && sb.spec.Lifetime != Session { // it has ended since it was seen
		sb.running = false
		c, err = sb.connect(ctx)
	}
	if err != nil {
		return nil, public(fmt.Errorf("sandbox %s: %w", sb.spec.Name, err))
	}
	sb.c, sb.running = c, false
	return c, nil
}

// connect starts a sandbox that is not known to run, and makes a connection.
func (sb *Sandbox) connect(ctx context.Context) (*wireclient.Client, error) {
	if !sb.running && sb.spec.Lifetime != Session {
		if err := sb.m.engine.StartAgain(ctx, sb.id); err != nil {
			return nil, err
		}
	}
	stream, err := sb.m.engine.Stream(ctx, sb.id)
	if err != nil {
		return nil, err
	}
	return wireclient.New(ctx, stream)
}

// use calls f with the connection, and again with a new one where that had ended before f's request was sent.
func (sb *Sandbox) use(ctx context.Context, f func(*wireclient.Client) error) error {
	c, err := sb.client(ctx)
	if err != nil {
		return err
	}
	if err = f(c); !errors.Is(err, wireclient.ErrUnsent) {
		return public(err)
	}
	sb.mu.Lock()
	if sb.c == c { // nobody else has made a new one
		_ = c.Close()
		sb.c = nil
	}
	sb.mu.Unlock()
	if c, err = sb.client(ctx); err != nil {
		return err
	}
	return public(f(c))
}

// live gives signs of life until drop.
func (sb *Sandbox) live(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	sb.mu.Lock()
	sb.stop = cancel
	sb.mu.Unlock()
	go func() {
		signEvery := sb.spec.Silence / 4 // one that is lost is made good by the next
		tick := time.NewTicker(signEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			one, cancel := context.WithTimeout(ctx, signEvery)
			_ = sb.use(one, func(c *wireclient.Client) error { return c.Alive(one) })
			cancel()
		}
	}()
}

// maxSaid bounds what is shown of a sandbox that ended at once, in characters: what runs there is not trusted to be brief.
const maxSaid = 500

// explain is the error of a sandbox that did not answer: what it said itself, if it has ended.
func (sb *Sandbox) explain(ctx context.Context, err error) error {
	var said strings.Builder
	const lines = 5
	lerr := sb.m.engine.Logs(ctx, sb.id, runtime.LogOptions{Tail: lines, Stderr: &said})
	if why := text.Runes(text.Clean(strings.TrimSpace(said.String())), maxSaid); lerr == nil && why != "" {
		return fmt.Errorf("sandbox %s did not start: %w", sb.spec.Name, errors.New(why))
	}
	return err
}

// public makes an error of ours one of this package's.
func public(err error) error {
	if err == nil {
		return nil
	}
	for from, to := range map[error]error{
		runtime.ErrNotFound: ErrNotFound, runtime.ErrConflict: ErrExists, runtime.ErrUnavailable: ErrUnavailable, runtime.ErrIsolation: ErrUnsupported,
		wireclient.ErrLost: ErrLost, wireclient.ErrMany: ErrTooMuch,
	} {
		if errors.Is(err, from) {
			return &kindError{to, err}
		}
	}
	if e, ok := errors.AsType[*wire.Error](err); ok {
		switch e.Code {
		case wire.CodeNotFound:
			return &kindError{ErrNotFound, err}
		case wire.CodeRefused:
			return &kindError{ErrRefused, err}
		case wire.CodeBadRequest:
			return &kindError{ErrSpec, err}
		case wire.CodeDenied:
			return &kindError{ErrPermission, err}
		case wire.CodeExists:
			return &kindError{ErrExists, err}
		case wire.CodeKind:
			return &kindError{ErrFileKind, err}
		case wire.CodeExhausted:
			return &kindError{ErrFull, err}
		}
	}
	return err
}

// kindError is an error of a kind, which its text says already.
type kindError struct{ kind, err error }

func (e *kindError) Error() string   { return e.err.Error() }
func (e *kindError) Unwrap() []error { return []error{e.kind, e.err} }

var validName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)

// ValidName reports whether a sandbox can have the name.
func ValidName(name string) bool { return validName.MatchString(name) }
