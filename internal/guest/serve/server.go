// Package serve is the guest's side of the wire protocol: it runs commands in the sandbox and sends their
// output, connects clients to its ports, and ends the sandbox when it is no longer needed.
package serve

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/files"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/reap"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/reply"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/session"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/wire"
)

// errQuiet means that a command has printed nothing for a while.
var errQuiet = errors.New("no output")

// Config configures a guest's server.
type Config struct {
	// User runs commands; nil means the guest's own.
	User *reap.User
	Dir  string   // initial directory of commands
	Home string   // home directory of the user
	Env  []string // NAME=value, for each command
	// Self is this program; Reap are its arguments for reap.Main, Files those for files.Main.
	Self        string
	Reap, Files []string
	// FilesAs starts files.Main as that user at once; if nil, it starts as this program and becomes User. See
	// files.Config.
	FilesAs *proc.Credential
	// Idle ends the sandbox when no command has run and no request has arrived for that long; 0 disables it.
	Idle time.Duration
	// Life ends the sandbox after that time; 0 disables it.
	Life time.Duration
	// Silence ends the sandbox when its owner has given no sign of life for that long; 0 disables it.
	Silence time.Duration
	// DataBytes bounds the private memory of one process of a command; 0 means no limit.
	DataBytes uint64
	// Network controls the sandbox's network; nil if the guest does not.
	Network Network
	// Lease creates a lease; nil if the guest creates none. ctx bounds the creation.
	Lease func(ctx context.Context) (Lease, error)
	// Crowd detects and kills abandoned processes that fill the sandbox.
	Crowd reap.Crowd
	// SharedNetwork means that other processes than the sandbox's listen on its loopback, which are not listed.
	SharedNetwork bool
	// OOMKills returns how many processes the kernel has killed in the sandbox for lack of memory.
	OOMKills func() int
}

// Network controls a sandbox's network.
type Network interface {
	InForce() wire.NetworkPolicy
	// Set replaces the policy; on error the previous one stays in force. An error that is a *wire.Error is sent
	// as the answer.
	Set(ctx context.Context, n wire.NetworkPolicy) error
}

// Lease is one clean use of the sandbox, with a nested guest.
type Lease interface {
	// Conn returns the connection to its guest.
	Conn() net.Conn
	// End kills everything in it, and returns when it has ended without remains, or else an error.
	End() error
}

// Server serves a sandbox.
type Server struct {
	config   Config
	commands *commands
	began    time.Time
	life     *life
	files    *files.Files
	sessions *session.Sessions
	mux      *http.ServeMux
}

// New returns a server.
func New(c Config) *Server {
	s := &Server{
		config: c, commands: newCommands(c), began: time.Now(), life: newLife(), files: files.New(filesConfig(c)),
		sessions: session.New(sessionConfig(c)), mux: http.NewServeMux(),
	}
	for pattern, h := range map[string]func(http.ResponseWriter, *http.Request) error{
		"GET " + wire.PathHello:       s.hello,
		"POST " + wire.PathExec:       s.exec,
		"GET " + wire.PathExec:        s.list,
		"GET " + wire.PathExecOf:      s.attach,
		"DELETE " + wire.PathExecOf:   s.end,
		"POST " + wire.PathExecSignal: s.signal,
		"POST " + wire.PathExecResize: s.resize,
		"POST " + wire.PathExecInput:  s.input,
		"POST " + wire.PathDial:       s.dial,
		"GET " + wire.PathPorts:       s.ports,
		"GET " + wire.PathStats:       s.stats,
		"GET " + wire.PathNetwork:     s.network,
		"PUT " + wire.PathNetwork:     s.setNetwork,
		"POST " + wire.PathNested:     s.lease,
		"POST " + wire.PathAlive:      s.alive,
		"POST " + wire.PathStop:       s.stop,
	} {
		s.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			s.life.busy(1)
			defer s.life.busy(-1)
			if err := h(w, r); err != nil {
				reply.Error(w, err)
			}
		})
	}
	s.handle(files.Patterns(), s.files)
	s.handle(session.Patterns(), s.sessions)
	return s
}

// handle registers a handler and counts its requests as use.
func (s *Server) handle(patterns []string, h http.Handler) {
	for _, pattern := range patterns {
		s.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			s.life.busy(1)
			defer s.life.busy(-1)
			h.ServeHTTP(w, r)
		})
	}
}

func sessionConfig(c Config) session.Config {
	return session.Config{Self: c.Self, Reap: c.Reap, User: c.User, Dir: c.Dir, Env: c.Env, DataBytes: c.DataBytes, OOMKills: c.OOMKills}
}

func filesConfig(c Config) files.Config {
	f := files.Config{Self: c.Self, Role: c.Files, Dir: c.Dir, As: c.FilesAs}
	if c.User != nil && f.As == nil {
		f.User = &proc.Credential{UID: c.User.UID, GID: c.User.GID, Groups: c.User.Groups}
	}
	return f
}

// Serve serves until ctx or the sandbox ends, whichever comes first. It returns the reason, nil for ctx. All
// commands have ended when it returns.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	over := make(chan error, 1)
	go func() { over <- s.life.wait(ctx, s.config, s.commands.running) }()
	protocols := &http.Protocols{}
	protocols.SetUnencryptedHTTP2(true)
	h := &http.Server{
		Handler: s.mux, Protocols: protocols, ReadHeaderTimeout: headerTime, BaseContext: func(net.Listener) context.Context { return ctx },
		HTTP2: &http.HTTP2Config{
			MaxReceiveBufferPerConnection: connBuffer, MaxReceiveBufferPerStream: streamBuffer, MaxConcurrentStreams: maxStreams,
			MaxReadFrameSize: frameSize,
		},
	}
	served := make(chan error, 1)
	go func() { served <- h.Serve(l) }()
	var err error
	select {
	case err = <-over:
	case err = <-served:
	}
	cancel()
	_ = h.Close()
	s.commands.endAll()
	s.sessions.Close()
	s.files.Close()
	return err
}

const (
	headerTime = 10 * time.Second
	// Receive windows in bytes: for one stream, the data in flight of a fast sender; for a connection, that of
	// several streams.
	streamBuffer = 1 << 20
	connBuffer   = 4 << 20
	maxStreams   = 1024
	frameSize    = 1 << 20 // of HTTP/2
)

func (s *Server) hello(w http.ResponseWriter, _ *http.Request) error {
	uid := os.Getuid()
	if s.config.User != nil {
		uid = int(s.config.User.UID)
	}
	return reply.Document(w, wire.Hello{Version: wire.Version, UID: uid, Dir: s.config.Dir, Home: s.config.Home, Since: s.began})
}

func (s *Server) network(w http.ResponseWriter, _ *http.Request) error {
	if s.config.Network == nil {
		return errNoNetwork
	}
	return reply.Document(w, s.config.Network.InForce())
}

func (s *Server) setNetwork(_ http.ResponseWriter, r *http.Request) error {
	if s.config.Network == nil {
		return errNoNetwork
	}
	var n wire.NetworkPolicy
	if err := decode(r, &n); err != nil {
		return err
	}
	return s.config.Network.Set(r.Context(), n)
}

var errNoNetwork = &wire.Error{Code: wire.CodeUnsupported, Text: "the guest does not control this sandbox's network"}

func (s *Server) lease(w http.ResponseWriter, r *http.Request) error {
	if s.config.Lease == nil {
		return &wire.Error{Code: wire.CodeUnsupported, Text: "this sandbox does not support leases"}
	}
	l, err := s.config.Lease(r.Context())
	if err != nil {
		return reply.Failed("create a lease", err)
	}
	join(w, r, l.Conn())
	if err := l.End(); err != nil {
		w.Header().Set(http.TrailerPrefix+wire.TrailerError, url.QueryEscape(err.Error()))
	}
	return nil
}

func (s *Server) alive(http.ResponseWriter, *http.Request) error {
	s.life.sign()
	return nil
}

func (s *Server) stop(http.ResponseWriter, *http.Request) error {
	s.life.end(ErrStopped)
	return nil
}

func decode(r *http.Request, document any) error {
	if err := json.NewDecoder(http.MaxBytesReader(nil, r.Body, wire.MaxDocument)).Decode(document); err != nil {
		return &wire.Error{Code: wire.CodeBadRequest, Text: "the request's document: " + err.Error()}
	}
	return nil
}

func number(r *http.Request, name string) (int64, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, &wire.Error{Code: wire.CodeBadRequest, Text: name + " is not a number: " + strconv.Quote(text)}
	}
	return n, nil
}

// Reasons for the end of a sandbox.
var (
	ErrStopped = errors.New("it was stopped")
	ErrIdle    = errors.New("it was not used")
	ErrLife    = errors.New("its time to live has expired")
	ErrSilence = errors.New("its owner gave no sign of life")
)

// life tracks when the sandbox was used and when its owner last gave a sign of life.
type life struct {
	mu    sync.Mutex
	users int       // running requests
	used  time.Time // last use
	owner time.Time // last sign of life of the owner
	ended chan error
}

func newLife() *life {
	now := time.Now()
	return &life{used: now, owner: now, ended: make(chan error, 1)}
}

func (l *life) busy(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.users += n
	l.used = time.Now()
}

func (l *life) sign() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.owner = time.Now()
}

func (l *life) end(why error) {
	select {
	case l.ended <- why:
	default:
	}
}

// lifePoll is how often the limits are checked.
const lifePoll = time.Second

// wait returns when the sandbox is to end, with the reason; nil when ctx ends.
func (l *life) wait(ctx context.Context, c Config, running func() int) error {
	began := time.Now()
	tick := time.NewTicker(lifePoll)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-l.ended:
			return err
		case <-tick.C:
		}
		if c.Crowd.Full() {
			c.Crowd.Disperse()
		}
		l.mu.Lock()
		if l.users > 0 || running() > 0 {
			l.used = time.Now()
		}
		idle, silent := time.Since(l.used), time.Since(l.owner)
		l.mu.Unlock()
		switch {
		case c.Life > 0 && time.Since(began) > c.Life:
			return ErrLife
		case c.Silence > 0 && silent > c.Silence:
			return ErrSilence
		case c.Idle > 0 && idle > c.Idle:
			return ErrIdle
		}
	}
}
