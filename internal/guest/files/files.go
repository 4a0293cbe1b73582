// Package files reads, writes and watches files of a sandbox for whoever is outside, with the rights of the sandbox's user.
//
// The guest is often root, and the user another. That root looks at a path and then opens it for the user cannot be right: between the two, the path can become a
// link. So nothing here checks rights. All file system calls are made by a process of the user's own (Main), for which the kernel checks each of
// them, by whatever links and races a path leads. A thread with another user's rights in the guest would do for most paths, and not for /proc/self: what a thread opens there is its
// own process's, whoever it is.
//
// The process is started for the first request and serves all of them (New), since a start takes as long as a hundred small requests; it ends when
// nobody asks any more, so that a guest at rest has no memory for it.
package files

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/reply"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/wire"
)

const (
	// restTime is how long the process stays without a request: a program that asks for one file after the other has one.
	restTime = 5 * time.Second
	// Buffers of what is under way between guest and process, in bytes.
	streamBuffer = 1 << 20
	connBuffer   = 4 << 20
	frameSize    = 1 << 20
	copyBuffer   = 256 << 10
	maxStreams   = 1024
	// headerTime bounds the wait for a request's head, which the guest sends at once.
	headerTime = 10 * time.Second
)

// Config is whose files are served.
type Config struct {
	// Self is this program, and Role its arguments for Main.
	Self string
	Role []string
	// User is whose rights count; nil means the guest's own.
	User *proc.Credential
	// As starts the process as this user at once, in its place and control group; the user must have the right to run the program. nil: it starts as the guest,
	// and becomes User.
	As *proc.Credential
	// Dir is what relative paths are below.
	Dir string
}

// setup is what Main reads from its standard input.
type setup struct {
	User *proc.Credential `json:"user,omitempty"`
	Dir  string           `json:"dir"`
}

// Files hands requests on to a process of the user's. Its methods may be called concurrently.
type Files struct {
	config Config
	mu     sync.Mutex
	at     *helper // nil while none runs
	users  int
	rest   *time.Timer
	closed bool
}

// helper is the process, and the way to it.
type helper struct {
	p     *proc.Process
	conn  net.Conn
	proxy *httputil.ReverseProxy
}

// New starts nothing.
func New(c Config) *Files { return &Files{config: c} }

// ServeHTTP answers a request of one of Patterns.
func (f *Files) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h, err := f.enter(r.Context())
	if err != nil {
		reply.Error(w, err)
		return
	}
	defer f.leave()
	h.proxy.ServeHTTP(w, r)
}

// Close ends the process, and what it does.
func (f *Files) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	f.end()
}

func (f *Files) enter(ctx context.Context) (*helper, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil, &wire.Error{Code: wire.CodeFailed, Text: "the sandbox ends"}
	}
	if f.at != nil {
		select {
		case <-f.at.p.Done(): // somebody in the sandbox has killed it
			f.end()
		default:
		}
	}
	if f.at == nil {
		h, err := start(ctx, f.config)
		if errors.Is(err, syscall.EAGAIN) {
			return nil, &wire.Error{Code: wire.CodeExhausted, Text: "the sandbox has as many processes as it may have"}
		}
		if err != nil {
			return nil, reply.Failed("look at the sandbox's files", err)
		}
		f.at = h
	}
	f.users++
	if f.rest != nil {
		f.rest.Stop()
	}
	return f.at, nil
}

func (f *Files) leave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.users--; f.users > 0 {
		return
	}
	f.rest = time.AfterFunc(restTime, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.users == 0 {
			f.end()
		}
	})
}

// end lets the process go: it ends with its connection.
func (f *Files) end() {
	if f.at != nil {
		_ = f.at.conn.Close()
		f.at = nil
	}
}

// buffers are of the copies that go on.
type buffers struct{ pool *sync.Pool }

func (b buffers) Get() []byte  { return b.pool.Get().([]byte) }
func (b buffers) Put(p []byte) { b.pool.Put(p) } //nolint:staticcheck // a header on the heap, once for a request

func start(ctx context.Context, c Config) (*helper, error) {
	s, err := json.Marshal(setup{c.User, c.Dir})
	if err != nil {
		return nil, err
	}
	ours, theirs, err := proc.Pair()
	if err != nil {
		return nil, err
	}
	// It begins as the guest is, which alone may read its program, and becomes the user at once. What it has to say against that is in the first answer, or
	// rather in that there is none.
	p, err := proc.Start(context.WithoutCancel(ctx), proc.Spec{
		Argv: append([]string{c.Self}, c.Role...), Dir: "/", Env: []string{}, Stdin: bytes.NewReader(s), Stderr: os.Stderr, ExtraFiles: []*os.File{theirs}, User: c.As,
	})
	_ = theirs.Close()
	if err != nil {
		_ = ours.Close()
		return nil, err
	}
	var once sync.Once
	protocols := &http.Protocols{}
	protocols.SetUnencryptedHTTP2(true)
	t := &http.Transport{
		Protocols: protocols,
		DialContext: func(context.Context, string, string) (conn net.Conn, err error) {
			err = errors.New("the process for files has ended")
			once.Do(func() { conn, err = ours, nil })
			return conn, err
		},
		HTTP2: &http.HTTP2Config{MaxReceiveBufferPerConnection: connBuffer, MaxReceiveBufferPerStream: streamBuffer, MaxReadFrameSize: frameSize},
	}
	return &helper{p: p, conn: ours, proxy: &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host = "http", "files" }, Transport: t,
		BufferPool: buffers{&sync.Pool{New: func() any { return make([]byte, copyBuffer) }}}, ErrorLog: log.New(io.Discard, "", 0), // of clients that have gone
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			reply.Error(w, reply.Failed("look at the sandbox's files", err))
		},
	}}, nil
}
