package browse

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const (
	// probePause is the interval between probes, and so the longest unnecessary wait.
	probePause = 100 * time.Millisecond
	// probeTime bounds one probe. Some servers build a page on its first request, and start over if the client gives up.
	probeTime = 20 * time.Second
	// dialTime bounds a connection within the box.
	dialTime = time.Second
	// stopTime bounds the wait for a stopped server; its starter kills it long before.
	stopTime = 15 * time.Second
	// maxSaid bounds how much of the server's log an error quotes, in bytes.
	maxSaid = 600
)

// Ended reports how the server's command ended.
type Ended struct {
	ExitCode int
	Tail     string // end of its output
	Err      error  // nil after exit code 0
}

// Server is a running development server.
type Server struct {
	// Origin is the server's address, as in http://127.0.0.1:3000.
	Origin string
	stop   context.CancelFunc
	ended  <-chan Ended
}

// loopbacks are the addresses on which a local server may listen: some tools resolve "localhost" to the second.
var loopbacks = []string{"127.0.0.1", "::1"}

// Serve starts the server and waits until it answers with a status below 500. run must run its command until that or
// ctx ends. The caller must call Stop unless Serve returns an error.
func Serve(ctx context.Context, d *workorder.Dev, run func(ctx context.Context) Ended) (*Server, error) {
	if d.Port < 1 || d.Port > 65535 || !rooted(readyPath(d)) {
		return nil, fmt.Errorf("dev: invalid port %d or ready_path %q", d.Port, d.ReadyPath)
	}
	if a := taken(ctx, d.Port); a != "" {
		return nil, fmt.Errorf(
			"port %d is taken: a server answered at %s before the development server was started; stop the server that setup leaves running, "+
				"or use another port",
			d.Port, a,
		)
	}
	life, stop := context.WithCancel(ctx)
	ended := make(chan Ended, 1)
	go func() { ended <- run(life) }()
	s := &Server{stop: stop, ended: ended}
	wait, done := context.WithTimeoutCause(ctx, d.StartTimeout(), errStart)
	defer done()
	last := "no answer"
	for {
		origin, why := probe(wait, d)
		if origin != "" {
			s.Origin = origin
			return s, nil
		}
		if why != "" && wait.Err() == nil {
			last = why
		}
		select {
		case e := <-ended:
			stop()
			if ctx.Err() != nil { // which ended it
				return nil, stopped(ctx)
			}
			return nil, died(d, e)
		case <-wait.Done():
			tail := s.Stop()
			if !errors.Is(context.Cause(wait), errStart) {
				return nil, stopped(wait)
			}
			return nil, fmt.Errorf(
				"the development server was not ready within %s: GET %s at port %d: %s%s; see dev.start_timeout and dev.ready_path", d.StartTimeout(),
				readyPath(d), d.Port, last, said(tail),
			)
		case <-time.After(probePause):
		}
	}
}

var errStart = errors.New("the time to start ran out")

// Stop ends the server, waits for it and returns the end of its output.
func (s *Server) Stop() string {
	s.stop()
	select {
	case e := <-s.ended:
		return e.Tail
	case <-time.After(stopTime):
		return ""
	}
}

func stopped(ctx context.Context) error {
	return fmt.Errorf("wait for the development server: %w", context.Cause(ctx))
}

func died(d *workorder.Dev, e Ended) error {
	how := fmt.Sprintf("exited with %d", e.ExitCode)
	if e.Err != nil && e.ExitCode < 0 {
		how = "could not be started: " + e.Err.Error()
	}
	return fmt.Errorf(
		"the development server %s before it answered at port %d%s; dev.command must stay in the foreground and listen on $PORT", how, d.Port,
		said(e.Tail),
	)
}

func said(tail string) string {
	tail = text.Words(tail)
	if tail == "" {
		return " (it printed nothing)"
	}
	if len(tail) > maxSaid {
		tail = "…" + strings.ToValidUTF8(tail[len(tail)-maxSaid:], "")
	}
	return " (output: " + tail + ")"
}

func readyPath(d *workorder.Dev) string {
	if d.ReadyPath == "" {
		return "/"
	}
	return d.ReadyPath
}

// rooted reports whether a path can follow an origin without changing it.
func rooted(p string) bool {
	u, err := url.Parse("http://127.0.0.1:1" + p)
	return err == nil && strings.HasPrefix(p, "/") && u.Host == "127.0.0.1:1" && u.User == nil
}

// taken returns the address at which something listens on the port; empty if nothing does.
func taken(ctx context.Context, port int) string {
	d := net.Dialer{Timeout: dialTime}
	for _, host := range loopbacks {
		a := net.JoinHostPort(host, strconv.Itoa(port))
		if c, err := d.DialContext(ctx, "tcp", a); err == nil {
			_ = c.Close()
			return a
		}
	}
	return ""
}

// prober connects only to the given address: no proxy, no redirects, no connection reuse.
var prober = &http.Client{
	Timeout: probeTime,
	Transport: &http.Transport{
		Proxy: nil, DisableKeepAlives: true, DialContext: (&net.Dialer{Timeout: dialTime}).DialContext, MaxResponseHeaderBytes: 64 << 10,
	},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// probe requests the ready path. It returns the origin that answers or the reason of the failure; neither if nothing listens.
func probe(ctx context.Context, d *workorder.Dev) (origin, why string) {
	for _, host := range loopbacks {
		at := "http://" + net.JoinHostPort(host, strconv.Itoa(d.Port))
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, at+readyPath(d), http.NoBody)
		if err != nil {
			return "", err.Error()
		}
		res, err := prober.Do(req)
		if err != nil {
			var op *net.OpError
			if !errors.As(err, &op) || op.Op != "dial" {
				why = strings.TrimPrefix(err.Error(), "Get ")
			}
			continue
		}
		_, _ = io.CopyN(io.Discard, res.Body, 64<<10)
		_ = res.Body.Close()
		if res.StatusCode < http.StatusInternalServerError {
			return at, ""
		}
		why = "answered with " + strconv.Itoa(res.StatusCode)
	}
	return "", why
}
