// Package files reads, writes and watches files of a sandbox for clients outside, with the rights of the sandbox's user.
//
// A separate process that runs as the user (Main) makes all file system calls, so that the kernel checks the user's rights whatever
// links and races a path involves. A thread with the user's rights is not enough: in /proc/self it opens the files of its own process.
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

	"github.com/sandbox-agent/sandbox-agent/internal/guest/wirehttp"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/wire"
)

const (
	// restTime is how long the process stays without a request.
	restTime = 5 * time.Second
	// Sizes of transfer buffers between guest and process, in bytes.
	streamBuffer = 1 << 20
	connBuffer   = 4 << 20
	frameSize    = 1 << 20
	copyBuffer   = 256 << 10
	maxStreams   = 1024
	// headerTime bounds the wait for a request's header, which the guest sends at once.
	headerTime = 10 * time.Second
)

// Config configures Files.
type Config struct {
	// Self is this program, and Role its arguments for Main.
	Self string
	Role []string
	// User is the user whose rights apply; nil means the guest's own.
	User *proc.Credential
	// As starts the process as this user at once, in its namespace and control group, with the right to run the
	// program. If nil, it starts as the guest and then becomes User.
	As *proc.Credential
	// Dir is the base directory of relative paths.
	Dir string
}

// setup is the input of Main on its standard input.
type setup struct {
	User *proc.Credential `json:"user,omitempty"`
	Dir  string           `json:"dir"`
}

// Files forwards requests to a process of the user. Its methods are safe for concurrent use.
type Files struct {
	config Config
	mu     sync.Mutex
	at     *helper // nil while none runs
	users  int
	rest   *time.Timer
	closed bool
}

// helper is the process and the connection to it.
type helper struct {
	p     *proc.Process
	conn  net.Conn
	proxy *httputil.ReverseProxy
}

// New returns a Files; it starts no process yet.
func New(c Config) *Files { return &Files{config: c} }

// ServeHTTP answers a request that matches one of Patterns.
func (f *Files) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h, err := f.enter(r.Context())
	if err != nil {
		wirehttp.Error(w, err)
		return
	}
	defer f.leave()
	h.proxy.ServeHTTP(w, r)
}

// Close ends the process and its running requests.
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
		case <-f.at.p.Done(): // a process in the sandbox has killed it
			f.end()
		default:
		}
	}
	if f.at == nil {
		h, err := start(ctx, f.config)
		if errors.Is(err, syscall.EAGAIN) {
			return nil, &wire.Error{Code: wire.CodeExhausted, Text: "the sandbox has reached its process limit"}
		}
		if err != nil {
			return nil, wirehttp.Failed("access the sandbox's files", err)
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

// end closes the connection, which ends the process.
func (f *Files) end() {
	if f.at != nil {
		_ = f.at.conn.Close()
		f.at = nil
	}
}

// buffers holds the buffers of running copies.
type buffers struct{ pool *sync.Pool }

func (b buffers) Get() []byte  { return b.pool.Get().([]byte) }
func (b buffers) Put(p []byte) { b.pool.Put(p) } //nolint:staticcheck // a header on the heap, once for a request

func start(ctx context.Context, c Config) (*helper, error) {
	s, err := json.Marshal(setup{c.User, c.Dir})
	if err != nil {
		return nil, err
	}
	ours, theirs, err := proc.SocketPair()
	if err != nil {
		return nil, err
	}
	// It starts with the guest's identity, the only one that may read its program, and becomes the user at once.
	p, err := proc.Start(context.WithoutCancel(ctx), proc.Spec{
		Argv: append([]string{c.Self}, c.Role...), Dir: "/", Env: []string{}, Stdin: bytes.NewReader(s), Stderr: os.Stderr,
		ExtraFiles: []*os.File{theirs}, User: c.As,
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
		// of clients that have gone
		BufferPool: buffers{&sync.Pool{New: func() any { return make([]byte, copyBuffer) }}}, ErrorLog: log.New(io.Discard, "", 0),
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			wirehttp.Error(w, wirehttp.Failed("access the sandbox's files", err))
		},
	}}, nil
}
