package dockerd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/docker/docker/client"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

// Home decides where the data root lies. The engine uses DataRoot as it is when
// Config has none.
type Home interface {
	// Trial is the folder on whose file system the layers would lie.
	Trial() string
	// Prepare mounts the data root for driver onto Config.DataRoot, or reports
	// that DataRoot has to be used as it is, and why. It is called once, before
	// anything of the data root is touched. uid and gid own the files of inner root.
	Prepare(ctx context.Context, driver string, uid, gid int) (placed bool, note string, err error)
}

// Config describes the engine. Paths are those in the box.
type Config struct {
	// Root is put before every path of the machine that is read or prepared;
	// empty in the box.
	Root string
	// DataRoot holds images and containers; it should be a volume.
	DataRoot string
	// RunDir is for pid files and sockets; it becomes a fresh memory-backed folder.
	RunDir string
	// LogDir receives dockerd.log and containerd.log.
	LogDir string
	// Socket is where the daemon answers. A process that can connect to it is root in the
	// box: its folder is for root only, and others come through the guard.
	Socket string
	// Group is the primary group of the daemon and of what it starts, by which the
	// network policy knows their sockets; 0: the caller's.
	Group uint32
	// Cgroup is the control group of the daemons, CgroupParent the one that containers are made in, as the daemon names it.
	// Nil and empty: the caller's, and the daemon's choice.
	Cgroup       *proc.Cgroup
	CgroupParent string
	// Sweep ends every process that is left of containers when the daemons have ended. Nil ends none.
	Sweep func() error
	// RemapUser is the user that root in inner containers is; empty: real root.
	RemapUser string
	// MTU of inner networks. 0: that of the box's default route.
	MTU int
	// Avoid are addresses that no inner network may have, besides those that the box has routes to:
	// its resolvers and other hosts that it talks to. Nil avoids none.
	Avoid func() []netip.Prefix
	// Resolver opens a DNS server for inner containers at an address that need not exist yet: the
	// bridge that will carry it is made by the daemon, which wants to know the server before. It is
	// closed by its owner. If nil, they ask the resolvers of the box, where they can reach them.
	Resolver func(ctx context.Context, at netip.AddrPort) error
	// Outbound is told every address that inner containers may have, before there is
	// one, and gives them a way out of the box. If nil, they have none.
	Outbound func(ctx context.Context, inner netip.Prefix) error
	// Home may place the data root; nil: DataRoot as it is.
	Home Home
	// Warn is told of an engine that ended by itself while the run goes on. It must
	// be safe for concurrent use; nil: nobody wants to know.
	Warn func(text string)
	// Trials are the storage drivers to try; nil: RealTrials.
	Trials []Trial
	Log    *slog.Logger
}

// defaultRunDir and DefaultLogDir are where the image expects them.
const (
	defaultRunDir = "/run/sandbox-agent-engine"
	DefaultLogDir = "/var/log"
	DefaultSocket = "/run/sandbox-agent-docker/docker.sock"
)

// errHalted is why nothing is started any more.
var errHalted = errors.New("the engine was told to stop")

// Info is what is known of the engine; Driver is empty until it was started.
type Info struct {
	Driver        string
	Version       string
	Runtime       string // default OCI runtime
	CgroupVersion int
	Pool          netip.Prefix // every address of inner containers
	MTU           int
	// Ready is what dockerd took from its fork to its first answer.
	Ready time.Duration
	// Notes say what was prepared and what was not possible, in order.
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
	lock     *os.File
	daemons  daemons
	stopOnce sync.Once
	// remembered is what Renew leaves of the images.
	remembered *imageStore
	// renewing is held while the daemons are replaced on purpose.
	renewing sync.Mutex

	// done is closed when the engine is over for good: stopped, not startable, or
	// crashed more often than it is restarted. doneErr then says which, with the end of
	// the log; it is nil after an orderly Stop.
	done     chan struct{}
	doneOnce sync.Once
	doneErr  error
}

// New returns an engine that does not exist yet.
func New(cfg Config) (*Engine, error) {
	if cfg.RunDir == "" {
		cfg.RunDir = defaultRunDir
	}
	if cfg.LogDir == "" {
		cfg.LogDir = DefaultLogDir
	}
	if cfg.Socket == "" {
		cfg.Socket = DefaultSocket
	}
	if cfg.Trials == nil {
		cfg.Trials = RealTrials()
	}
	if cfg.Warn == nil {
		cfg.Warn = func(string) {}
	}
	cli, err := client.NewClientWithOpts(client.WithHost("unix://"+cfg.Socket), client.WithAPIVersionNegotiation())
	if err != nil {
		return nil, fmt.Errorf("make client of the inner engine: %w", err)
	}
	return &Engine{
		cfg: cfg, sys: realSystem(cfg.Root), cli: cli,
		halt: make(chan struct{}), done: make(chan struct{}),
	}, nil
}

// Listen makes the socket. From here on clients can connect; they wait until
// the engine is up.
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

// StartOnDemand starts the engine when the first client has connected. It
// returns when it was started, ctx ended or the engine was stopped.
func (e *Engine) StartOnDemand(ctx context.Context) error {
	e.mu.Lock()
	s := e.sock
	e.mu.Unlock()
	if s == nil {
		return errors.New("start inner engine on demand: it does not listen")
	}
	wctx, cancel := e.untilHalt(ctx)
	defer cancel()
	if err := s.waitClient(wctx); err != nil {
		return cmp.Or(e.haltedErr(), err) // Stop closes the socket under the wait
	}
	return e.Start(ctx)
}

// Start starts the engine and waits until it answers. Every call returns the
// outcome of the first one. A failed start closes the socket, so that nobody waits for nothing.
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

// Client talks to the engine; its calls wait while the engine is not up.
func (e *Engine) Client() *client.Client { return e.cli }

// Info is a copy of what is known so far.
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
			s.close()
		}
		close(e.done)
	})
}

func (e *Engine) note(format string, a ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.info.Notes = append(e.info.Notes, fmt.Sprintf(format, a...))
}
