// Package dockerd prepares the box for an inner Docker engine, runs containerd and dockerd behind a socket of its own, and stops them in
// bounded time.
package dockerd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/docker/docker/client"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"

	"github.com/gofrs/flock"
)

// DataRootProvider decides the location of the data root. Without one the engine uses DataRoot itself.
type DataRootProvider interface {
	// Trial returns the directory on whose file system the layers would be.
	Trial() string
	// Prepare mounts the data root for driver onto Config.DataRoot, or returns why DataRoot itself is used. It is
	// called once, before the data root is touched. uid and gid own the files of inner root.
	Prepare(ctx context.Context, driver string, uid, gid int) (placed bool, note string, err error)
}

// Config describes the engine. Paths are those in the box.
type Config struct {
	// Root is a prefix of every path of the machine; empty in the box.
	Root string
	// DataRoot holds images and containers; it should be a volume.
	DataRoot string
	// RunDir is for pid files and sockets; it becomes a fresh memory-backed directory.
	RunDir string
	// LogDir receives dockerd.log and containerd.log.
	LogDir string
	// Socket is the daemon's own socket, in a directory for root only: its clients are root in the box.
	Socket string
	// Group is the primary group of the daemon and its children, which the network policy recognises; 0 means the caller's.
	Group uint32
	// Cgroup is the control group of the daemons, nil for the caller's; CgroupParent that of containers, empty for the default.
	Cgroup       *proc.Cgroup
	CgroupParent string
	// Sweep ends every remaining process of containers after the daemons have ended. It may be nil.
	Sweep func() error
	// RemapUser is the user that inner root is mapped to; empty means real root.
	RemapUser string
	// MTU is that of inner networks; 0 means that of the box's default route.
	MTU int
	// ReservedPrefixes returns further addresses that no inner network may have. It may be nil.
	ReservedPrefixes func() []netip.Prefix
	// Resolver opens a DNS server for inner containers at an address that need not exist yet. The owner closes it. If
	// nil, containers use the box's resolvers.
	Resolver func(ctx context.Context, at netip.AddrPort) error
	// Outbound gets the range of all inner containers before they exist, and routes them out of the box. If nil, they
	// have no route.
	Outbound func(ctx context.Context, inner netip.Prefix) error
	// KeepData preserves the content of the data root across a stop of the box. Containers are then stopped by their
	// own signal, within keptGrace, and none starts by itself.
	KeepData bool
	// DataRootProvider may place the data root; if nil, DataRoot itself is used.
	DataRootProvider DataRootProvider
	// Warn is called if the engine ends by itself. It must be safe for concurrent use; it may be nil.
	Warn func(text string)
	// Trials are the storage drivers to try; nil means RealTrials.
	Trials []Trial
	Log    *slog.Logger
}

// defaultRunDir and DefaultLogDir are where the image expects them.
const (
	defaultRunDir = "/run/sandbox-agent-engine"
	DefaultLogDir = "/var/log"
	DefaultSocket = "/run/sandbox-agent-docker/docker.sock"
)

// errHalted is the error of starts after Stop.
var errHalted = errors.New("the engine was stopped")

// Info describes the engine; Driver is empty until it was started.
type Info struct {
	Driver        string
	Version       string
	Runtime       string // default OCI runtime
	CgroupVersion int
	Pool          netip.Prefix // every address of inner containers
	MTU           int
	// Ready is the time from dockerd's fork to its first answer.
	Ready time.Duration
	// Notes list, in order, the preparations and those that were not possible.
	Notes []string
}

// Engine is the inner Docker engine. All methods are safe for concurrent use.
type Engine struct {
	cfg Config
	sys system
	cli *client.Client

	sock *socket

	startOnce sync.Once
	startErr  error
	halt      chan struct{} // closed by Stop

	mu       sync.Mutex
	info     Info
	plan     plan
	lock     *flock.Flock
	daemons  daemons
	stopOnce sync.Once
	// remembered are the images that Reset keeps.
	remembered *imageStore
	// renewing is held while the daemons are replaced on purpose.
	renewing sync.Mutex

	// done is closed when the engine has ended for good. doneErr is then the reason with the end of the log; nil after Stop.
	done     chan struct{}
	doneOnce sync.Once
	doneErr  error
}

// New returns an engine that is not started.
func New(cfg Config) (*Engine, error) {
	cfg.RunDir = cmp.Or(cfg.RunDir, defaultRunDir)
	cfg.LogDir = cmp.Or(cfg.LogDir, DefaultLogDir)
	cfg.Socket = cmp.Or(cfg.Socket, DefaultSocket)
	if cfg.Trials == nil {
		cfg.Trials = RealTrials()
	}
	if cfg.Warn == nil {
		cfg.Warn = func(string) {}
	}
	cli, err := client.NewClientWithOpts(client.WithHost("unix://"+cfg.Socket), client.WithAPIVersionNegotiation())
	if err != nil {
		return nil, fmt.Errorf("create client of the inner engine: %w", err)
	}
	return &Engine{
		cfg: cfg, sys: realSystem(cfg.Root), cli: cli,
		halt: make(chan struct{}), done: make(chan struct{}),
	}, nil
}

// Listen creates the socket. From then on clients can connect; they wait until the engine is up.
func (e *Engine) Listen(ctx context.Context) error {
	s, err := listen(ctx, e.cfg.Socket)
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.sock = s
	return nil
}

// StartOnDemand starts the engine when the first client has connected. It returns when the engine has started or
// stopped, or at ctx's end.
func (e *Engine) StartOnDemand(ctx context.Context) error {
	e.mu.Lock()
	s := e.sock
	e.mu.Unlock()
	if s == nil {
		return errors.New("start inner engine on demand: it is not listening")
	}
	wctx, cancel := e.untilHalt(ctx)
	defer cancel()
	if err := s.waitClient(wctx); err != nil {
		return cmp.Or(e.haltedErr(), err) // Stop closes the socket under the wait
	}
	return e.Start(ctx)
}

// Start starts the engine once and waits until it answers. A failed start closes the socket.
func (e *Engine) Start(ctx context.Context) error {
	e.startOnce.Do(func() {
		ctx, cancel := e.untilHalt(ctx)
		defer cancel()
		if e.startErr = e.start(ctx); e.startErr != nil {
			e.startErr = fmt.Errorf("start inner engine: %w", e.startErr)
			e.abort()
			e.finish(e.startErr)
		}
	})
	return e.startErr
}

// untilHalt is ctx that also ends with Stop.
func (e *Engine) untilHalt(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-e.halt:
			cancel(errHalted)
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}

// Client is a client of the engine; its calls wait while the engine is not up.
func (e *Engine) Client() *client.Client { return e.cli }

// Info returns a copy of the current state.
func (e *Engine) Info() Info {
	e.mu.Lock()
	defer e.mu.Unlock()
	i := e.info
	i.Notes = append([]string(nil), i.Notes...)
	return i
}

func (e *Engine) finish(err error) {
	e.doneOnce.Do(func() {
		e.doneErr = err
		e.mu.Lock()
		s := e.sock
		e.mu.Unlock()
		if s != nil {
			_ = s.l.Close() // removes the path, too
			_ = s.file.Close()
		}
		close(e.done)
	})
}

func (e *Engine) note(format string, a ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.info.Notes = append(e.info.Notes, fmt.Sprintf(format, a...))
}
