package files

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

// connFD is the process's end of the connection to the guest.
const connFD = 3

// newMask is the umask of files that are created without an explicit mode.
const newMask = 0o022

// endTime bounds the wait for requests that are running when the guest ends.
const endTime = 2 * time.Second

// Main runs the process that ServeHTTP starts. It returns at the end of the connection.
func Main(ctx context.Context) error {
	file := os.NewFile(connFD, "guest")
	if file == nil {
		return errors.New("serve files: no connection to the guest")
	}
	conn, err := net.FileConn(file)
	_ = file.Close()
	if err != nil {
		return fmt.Errorf("serve files: %w", err)
	}
	defer conn.Close()
	var s setup
	if err := json.NewDecoder(os.Stdin).Decode(&s); err != nil {
		return fmt.Errorf("serve files: %w", err)
	}
	if s.User != nil {
		if err := proc.BecomeUser(*s.User); err != nil {
			return fmt.Errorf("serve files: %w", err)
		}
	}
	// Other processes of the user must not inspect it.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("serve files: %w", err)
	}
	unix.Umask(newMask)
	var busy sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	served := serve(ctx, conn, counted(&busy, newHandler(s.Dir)))
	cancel()
	over := make(chan struct{})
	go func() { busy.Wait(); close(over) }()
	select {
	case <-over:
	case <-time.After(endTime):
	}
	return served
}

// serve serves one connection until it ends.
func serve(ctx context.Context, conn net.Conn, h http.Handler) error {
	protocols := &http.Protocols{}
	protocols.SetUnencryptedHTTP2(true)
	l := &single{conns: make(chan net.Conn, 1), over: make(chan struct{}), addr: conn.LocalAddr()}
	l.conns <- &ending{Conn: conn, l: l}
	s := &http.Server{
		Handler: h, Protocols: protocols, ReadHeaderTimeout: headerTime, BaseContext: func(net.Listener) context.Context { return ctx },
		HTTP2: &http.HTTP2Config{
			MaxReceiveBufferPerConnection: connBuffer, MaxReceiveBufferPerStream: streamBuffer, MaxReadFrameSize: frameSize,
			MaxConcurrentStreams: maxStreams,
		},
	}
	if err := s.Serve(l); !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

func counted(busy *sync.WaitGroup, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		busy.Add(1)
		defer busy.Done()
		h.ServeHTTP(w, r)
	})
}

// single is a listener of one connection, and ends with it.
type single struct {
	conns chan net.Conn
	over  chan struct{}
	once  sync.Once
	addr  net.Addr
}

func (l *single) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	default:
	}
	<-l.over
	return nil, io.EOF
}

func (l *single) Close() error   { l.once.Do(func() { close(l.over) }); return nil }
func (l *single) Addr() net.Addr { return l.addr }

type ending struct {
	net.Conn
	l *single
}

func (e *ending) Close() error { return errors.Join(e.Conn.Close(), e.l.Close()) }
