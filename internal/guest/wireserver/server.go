// Package wireserver serves the wire protocol in the guest: commands, ports and the end of the sandbox.
package wireserver

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/files"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/session"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/supervise"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/wirehttp"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/wire"
)

// errQuiet means that a command has printed nothing for a while.
var errQuiet = errors.New("no output")

// Config configures a guest's server.
type Config struct {
	// User runs commands; nil means the guest's own.
	User *supervise.User
	Dir  string   // initial directory of commands
	Home string   // home directory of the user
	Env  []string // NAME=value, for each command
	// Mask replaces secrets in what it writes to w, up to a Close; nil if there are none.
	Mask func(w io.Writer) io.WriteCloser
	// Self is this program; Reap are its arguments for supervise.Main, Files those for files.Main.
	Self        string
	Reap, Files []string
	// FilesAs starts files.Main as that user at once; if nil, it starts as this program. See files.Config.
	FilesAs *proc.Credential
	// IdleTimeout ends the sandbox when no command has run and no request has arrived for that long; 0 disables it.
	IdleTimeout time.Duration
	// TTL ends the sandbox after that time; 0 disables it.
	TTL time.Duration
	// OwnerTimeout ends the sandbox when its owner has given no sign of life for that long; 0 disables it.
	OwnerTimeout time.Duration
	// DataBytes bounds the private memory of one process of a command; 0 means no limit.
	DataBytes uint64
	// Network controls the sandbox's network; nil if the guest does not.
	Network PolicyControl
	// Proxy accepts connections that the host serves by PathProxied; nil if the sandbox has no proxy.
	Proxy net.Listener
	// SetKeys replaces values of keys of models by their names; nil without a gateway to models.
	SetKeys func(values map[string]string) error
	// StartNested starts a nested sandbox; nil if the guest does not support it. ctx bounds the creation.
	StartNested func(ctx context.Context) (Nested, error)
	// OrphanGuard detects and kills abandoned processes that fill the sandbox.
	OrphanGuard supervise.OrphanGuard
	// SharedNetwork means that other processes than the sandbox's listen on its loopback, which are not listed.
	SharedNetwork bool
	// OOMKills returns how many processes the kernel has killed in the sandbox for lack of memory.
	OOMKills func() int
}

// PolicyControl controls a sandbox's network.
type PolicyControl interface {
	Current() wire.NetworkPolicy
	// Set replaces the policy; on error the previous one stays. A *wire.Error is sent as the answer.
	Set(ctx context.Context, n wire.NetworkPolicy) error
}

// Nested is one clean use of the sandbox, with a nested guest.
type Nested interface {
	// Conn returns the connection to its guest.
	Conn() net.Conn
	// End kills everything in it, and returns when it has ended without remains, or else an error.
	End() error
}

// Server serves a sandbox.
type Server struct {
	config    Config
	commands  *commands
	began     time.Time
	lifecycle *lifecycle
	files     *files.Files
	sessions  *session.Server
	mux       *http.ServeMux
	proxied   chan net.Conn // of the proxy, for PathProxied
}

// New returns a server.
func New(c Config) *Server {
	s := &Server{
		config: c, commands: newCommands(c), began: time.Now(), lifecycle: newLifecycle(), files: files.New(filesConfig(c)),
		sessions: session.New(session.Config{
			Self: c.Self, Reap: c.Reap, User: c.User, Dir: c.Dir, Env: c.Env, DataBytes: c.DataBytes,
			OOMKills: c.OOMKills,
		}), mux: http.NewServeMux(), proxied: make(chan net.Conn),
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
		"PUT " + wire.PathKeys:        s.setKeys,
		"POST " + wire.PathNested:     s.nested,
		"POST " + wire.PathAlive:      s.alive,
		"POST " + wire.PathStop:       s.stop,
	} {
		s.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			s.lifecycle.busy(1)
			defer s.lifecycle.busy(-1)
			if err := h(w, r); err != nil {
				wirehttp.Error(w, err)
			}
		})
	}
	s.mux.HandleFunc("POST "+wire.PathProxied, s.proxy) // waiting for a connection is no use of the sandbox
	s.handle(files.Patterns(), s.files)
	s.handle(session.Patterns(), s.sessions)
	return s
}

// handle registers a handler and counts its requests as use.
func (s *Server) handle(patterns []string, h http.Handler) {
	for _, pattern := range patterns {
		s.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			s.lifecycle.busy(1)
			defer s.lifecycle.busy(-1)
			h.ServeHTTP(w, r)
		})
	}
}

func filesConfig(c Config) files.Config {
	f := files.Config{Self: c.Self, Role: c.Files, Dir: c.Dir, As: c.FilesAs}
	if c.User != nil && f.As == nil {
		f.User = &proc.Credential{UID: c.User.UID, GID: c.User.GID, Groups: c.User.Groups}
	}
	return f
}

// Serve serves until ctx or the sandbox ends, and returns the reason, nil for ctx. Then all commands have ended.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	over := make(chan error, 1)
	go func() { over <- s.lifecycle.wait(ctx, s.config, s.commands.running) }()
	if s.config.Proxy != nil {
		go s.acceptProxied(ctx)
	}
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
	// Receive windows in bytes, of one stream and of a connection.
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
	return wirehttp.Document(w, wire.Hello{Version: wire.Version, UID: uid, Dir: s.config.Dir, Home: s.config.Home, Since: s.began})
}

func (s *Server) network(w http.ResponseWriter, _ *http.Request) error {
	if s.config.Network == nil {
		return errNoNetwork
	}
	return wirehttp.Document(w, s.config.Network.Current())
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

func (s *Server) setKeys(_ http.ResponseWriter, r *http.Request) error {
	if s.config.SetKeys == nil {
		return &wire.Error{Code: wire.CodeUnsupported, Text: "this sandbox has no gateway to models"}
	}
	var k wire.Keys
	if err := decode(r, &k); err != nil {
		return err
	}
	if err := s.config.SetKeys(k.Values); err != nil {
		return &wire.Error{Code: wire.CodeBadRequest, Text: err.Error()}
	}
	return nil
}

func (s *Server) nested(w http.ResponseWriter, r *http.Request) error {
	if s.config.StartNested == nil {
		return &wire.Error{Code: wire.CodeUnsupported, Text: "this sandbox does not support nested sandboxes"}
	}
	l, err := s.config.StartNested(r.Context())
	if err != nil {
		return wirehttp.Failed("create a nested sandbox", err)
	}
	join(w, r, l.Conn())
	if err := l.End(); err != nil {
		w.Header().Set(http.TrailerPrefix+wire.TrailerError, url.QueryEscape(err.Error()))
	}
	return nil
}

func (s *Server) alive(http.ResponseWriter, *http.Request) error {
	s.lifecycle.sign()
	return nil
}

func (s *Server) stop(http.ResponseWriter, *http.Request) error {
	s.lifecycle.end(ErrStopped)
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
	ErrStopped      = errors.New("it was stopped")
	ErrIdleTimeout  = errors.New("it was not used")
	ErrTTLExpired   = errors.New("its time to live has expired")
	ErrOwnerTimeout = errors.New("its owner gave no sign of life")
)

// lifecycle tracks when the sandbox was used and when its owner last gave a sign of life.
type lifecycle struct {
	mu    sync.Mutex
	users int       // running requests
	used  time.Time // last use
	owner time.Time // last sign of life of the owner
	ended chan error
}

func newLifecycle() *lifecycle {
	now := time.Now()
	return &lifecycle{used: now, owner: now, ended: make(chan error, 1)}
}

func (l *lifecycle) busy(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.users += n
	l.used = time.Now()
}

func (l *lifecycle) sign() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.owner = time.Now()
}

func (l *lifecycle) end(why error) {
	select {
	case l.ended <- why:
	default:
	}
}

// lifecyclePoll is how often the limits are checked.
const lifecyclePoll = time.Second

// wait returns when the sandbox is to end, with the reason; nil when ctx ends.
func (l *lifecycle) wait(ctx context.Context, c Config, running func() int) error {
	began := time.Now()
	tick := time.NewTicker(lifecyclePoll)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-l.ended:
			return err
		case <-tick.C:
		}
		if c.OrphanGuard.Exhausted() {
			c.OrphanGuard.KillOrphans()
		}
		l.mu.Lock()
		if l.users > 0 || running() > 0 {
			l.used = time.Now()
		}
		idle, silent := time.Since(l.used), time.Since(l.owner)
		l.mu.Unlock()
		switch {
		case c.TTL > 0 && time.Since(began) > c.TTL:
			return ErrTTLExpired
		case c.OwnerTimeout > 0 && silent > c.OwnerTimeout:
			return ErrOwnerTimeout
		case c.IdleTimeout > 0 && idle > c.IdleTimeout:
			return ErrIdleTimeout
		}
	}
}
