package poolserver

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/loopback"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
	"github.com/sandbox-agent/sandbox-agent/sandbox/pool"
)

const (
	// maxDocument bounds a request, in bytes: a command line and its standard input.
	maxDocument = 32 << 20
	headerTime  = 10 * time.Second
	// maxOutput bounds a stream of a command, in bytes: an answer has all of it at once.
	maxOutput = 64 << 20
	// maxTimeout bounds the time of a command.
	maxTimeout = 365 * 24 * time.Hour
	// drainTime is what requests have to end with the server.
	drainTime = 2 * time.Second
)

// DefaultLeaseIdle ends an unused lease: its client may be gone.
const DefaultLeaseIdle = time.Hour

// Server lends a pool's sandboxes.
type Server struct {
	pool    *pool.Pool
	idle    time.Duration
	ttl     time.Duration // 0 means no limit
	sources []Source
	log     *slog.Logger

	mu     sync.Mutex
	leases map[string]*lent
}

// lent is a lease with what is known of its use.
type lent struct {
	*pool.Lease
	name  string
	since time.Time
	limit time.Duration // of commands without one
	mu    sync.Mutex
	users int
	used  time.Time
}

// New serves a pool. Leases end when they have not been used for idle (0 means DefaultLeaseIdle) or ttl after their start (0 means
// never), and mount only what the sources have.
func New(p *pool.Pool, idle, ttl time.Duration, sources []Source, log *slog.Logger) *Server {
	idle = cmp.Or(idle, DefaultLeaseIdle)
	log = cmp.Or(log, slog.New(slog.DiscardHandler))
	return &Server{pool: p, idle: idle, ttl: ttl, sources: sources, log: log, leases: map[string]*lent{}}
}

// Listener is where a server is asked.
type Listener struct {
	net.Listener
	// Token is what a request has to bring; "" for a socket that only its user reaches.
	Token string
}

// askTime bounds the check whether a server has the socket: a server accepts a connection at once.
const askTime = 2 * time.Second

// Listen listens at a socket of this user's. What a server has left there that was killed is replaced; anything else
// stays, and is fs.ErrExist.
func Listen(ctx context.Context, path string) (net.Listener, error) {
	st, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	case st.Mode().Type() != fs.ModeSocket:
		return nil, fmt.Errorf("%s is no socket: %w", path, fs.ErrExist)
	default:
		if conn, err := (&net.Dialer{Timeout: askTime}).DialContext(ctx, "unix", path); err == nil {
			_ = conn.Close()
			return nil, fmt.Errorf("another server listens at %s: %w", path, fs.ErrExist)
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	const mode = 0o600
	if err := os.Chmod(path, mode); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// Serve serves until ctx ends or a listener fails. It closes the listeners, and the caller the pool.
func (s *Server) Serve(ctx context.Context, listeners ...Listener) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	var servers []*http.Server
	for _, l := range listeners {
		h := &http.Server{
			Handler: s.handler(l.Token), ReadHeaderTimeout: headerTime,
			BaseContext: func(net.Listener) context.Context { return ctx }, ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
		}
		servers = append(servers, h)
		wg.Go(func() {
			if err := h.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				cancel(fmt.Errorf("serve the pool at %s: %w", l.Addr(), err))
			}
		})
	}
	wg.Go(func() { s.sweep(ctx) })
	<-ctx.Done()
	drain, stop := context.WithTimeout(context.WithoutCancel(ctx), drainTime)
	defer stop()
	for _, h := range servers {
		if h.Shutdown(drain) != nil {
			_ = h.Close() // a request that did not end is cut
		}
	}
	wg.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

func (s *Server) handler(token string) http.Handler {
	mux := http.NewServeMux()
	for pattern, h := range map[string]func(http.ResponseWriter, *http.Request) (any, error){
		"GET /v1/stats":             s.stats,
		"POST /v1/leases":           s.acquire,
		"GET /v1/leases":            s.list,
		"DELETE /v1/leases":         s.destroyAll,
		"POST /v1/leases/{id}/exec": s.exec,
		"DELETE /v1/leases/{id}":    s.end,
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			if token != "" && !loopback.Shows(w, r, token) {
				w.WriteHeader(http.StatusUnauthorized)
				_ = json.NewEncoder(w).Encode(Error{KindInvalid, "the request needs the token of the server: Authorization: Bearer TOKEN"})
				return
			}
			doc, err := h(w, r)
			if err != nil {
				fail(w, err)
				return
			}
			if doc == nil { // it has answered
				return
			}
			_ = json.NewEncoder(w).Encode(doc) // a client that is gone has no use for it
		})
	}
	return mux
}

func fail(w http.ResponseWriter, err error) {
	e, status := errorOf(err)
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(e)
}

func errorOf(err error) (e *Error, status int) {
	e, status = &Error{KindFailed, err.Error()}, http.StatusInternalServerError
	for _, row := range []struct {
		is     error
		kind   Kind
		status int
	}{
		{pool.ErrPoolFull, KindLimit, http.StatusTooManyRequests},
		{pool.ErrReleased, KindNotFound, http.StatusNotFound},
		{pool.ErrClosed, KindUnavailable, http.StatusServiceUnavailable},
		{sandbox.ErrNotFound, KindNotFound, http.StatusNotFound},
		{sandbox.ErrName, KindInvalid, http.StatusBadRequest},
		{sandbox.ErrInvalidSpec, KindInvalid, http.StatusBadRequest},
		{sandbox.ErrUnavailable, KindUnavailable, http.StatusServiceUnavailable},
		{sandbox.ErrUnsupported, KindUnsupported, http.StatusNotImplemented},
	} {
		if errors.Is(err, row.is) {
			e.Kind, status = row.kind, row.status
			break
		}
	}
	return e, status
}

func read(w http.ResponseWriter, r *http.Request, document any) error {
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxDocument))
	d.DisallowUnknownFields()
	err := d.Decode(document)
	if err == nil && d.More() {
		err = errors.New("there is more than one document")
	}
	if err != nil {
		return fmt.Errorf("request body: %w: %w", sandbox.ErrInvalidSpec, err)
	}
	return nil
}

func (s *Server) stats(http.ResponseWriter, *http.Request) (any, error) { return s.pool.Stats(), nil }

func (s *Server) acquire(w http.ResponseWriter, r *http.Request) (any, error) {
	var req Request
	if r.ContentLength != 0 {
		if err := read(w, r, &req); err != nil {
			return nil, err
		}
	}
	if err := checkTimeout(req.TimeoutSeconds); err != nil {
		return nil, fmt.Errorf("lease: %w", err)
	}
	spec, err := permit(req.Spec, s.sources)
	if err != nil {
		return nil, err
	}
	l, err := s.pool.Acquire(r.Context(), spec)
	if err != nil {
		return nil, err
	}
	if r.Context().Err() != nil { // the client is gone and would not release it
		return nil, errors.Join(context.Cause(r.Context()), l.Release(context.WithoutCancel(r.Context())))
	}
	have := &lent{
		Lease: l, name: req.Name, since: time.Now(), used: time.Now(), limit: cmp.Or(seconds(req.TimeoutSeconds), pool.DefaultTimeout),
	}
	s.mu.Lock()
	s.leases[l.ID()] = have
	s.mu.Unlock()
	w.WriteHeader(http.StatusCreated)
	return have.document(), nil
}

func (l *lent) document() LeaseInfo {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := LeaseInfo{ID: l.ID(), Name: l.name, Sandbox: l.Sandbox(), Since: l.since.UTC(), Status: "idle", TimeoutSeconds: l.limit.Seconds()}
	if l.users > 0 {
		d.Status = "busy"
	}
	return d
}

func (l *lent) use(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.users += n
	l.used = time.Now()
}

// over returns why a lease ends; "" if it does not.
func (l *lent) over(idle, ttl time.Duration) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case ttl > 0 && time.Since(l.since) > ttl:
		return "time to live"
	case l.users == 0 && time.Since(l.used) > idle:
		return "unused"
	}
	return ""
}

func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }

func checkTimeout(n float64) error {
	if n < 0 || n > maxTimeout.Seconds() {
		return fmt.Errorf("%w: timeout_seconds %g: use 0 to %g", sandbox.ErrInvalidSpec, n, maxTimeout.Seconds())
	}
	return nil
}

func (s *Server) list(http.ResponseWriter, *http.Request) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := []LeaseInfo{}
	for _, l := range s.leases {
		all = append(all, l.document())
	}
	slices.SortFunc(all, func(a, b LeaseInfo) int { return a.Since.Compare(b.Since) })
	return all, nil
}

func (s *Server) find(r *http.Request) (*lent, error) {
	if !ValidLease(r.PathValue("id")) {
		return nil, fmt.Errorf("lease %.40q: %w", r.PathValue("id"), sandbox.ErrName)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.leases[r.PathValue("id")]; l != nil {
		return l, nil
	}
	return nil, fmt.Errorf("lease %.40q: %w", r.PathValue("id"), sandbox.ErrNotFound)
}

func (s *Server) exec(w http.ResponseWriter, r *http.Request) (any, error) {
	var e ExecRequest
	if err := read(w, r, &e); err != nil {
		return nil, err
	}
	switch {
	case e.Command != "" && len(e.Argv) > 0 || e.Command == "" && len(e.Argv) == 0:
		return nil, fmt.Errorf("command: %w: name either argv or command", sandbox.ErrInvalidSpec)
	case e.Stdin != "" && len(e.StdinBytes) > 0:
		return nil, fmt.Errorf("command: %w: name either stdin or stdin_base64", sandbox.ErrInvalidSpec)
	case checkTimeout(e.TimeoutSeconds) != nil:
		return nil, fmt.Errorf("command: %w", checkTimeout(e.TimeoutSeconds))
	case e.MaxOutput < 0 || e.MaxOutput > maxOutput:
		return nil, fmt.Errorf("command: %w: max_output %d: use 0 to %d", sandbox.ErrInvalidSpec, e.MaxOutput, maxOutput)
	}
	if e.Command != "" {
		e.Argv = []string{"sh", "-c", e.Command}
	}
	l, err := s.find(r)
	if err != nil {
		return nil, err
	}
	l.use(1)
	defer l.use(-1)
	c := sandbox.Command{
		Argv: e.Argv, Dir: e.Dir, Env: e.Env, Stdin: strings.NewReader(e.Stdin + string(e.StdinBytes)),
		Timeout: cmp.Or(seconds(e.TimeoutSeconds), l.limit), MaxOutput: e.MaxOutput,
	}
	if e.Stream || r.Header.Get("Accept") == streamType {
		stream(w, r, l, c)
		return nil, nil
	}
	res, err := l.Run(r.Context(), c)
	if err != nil {
		return nil, err
	}
	answer := resultOf(res)
	if e.ParseJSON {
		answer.JSON = text.LastJSON(res.Stdout)
	}
	return answer, nil
}

// streamType asks for a stream in Accept, where a server that knows none answers with a Result, and is the stream's own type.
const streamType = "application/x-ndjson"

// stream answers with what a command prints, as it comes, and then with how it ended.
func stream(w http.ResponseWriter, r *http.Request, l *lent, c sandbox.Command) {
	w.Header().Set("Content-Type", streamType)
	lines := &lines{w: w}
	res, err := l.RunTo(r.Context(), c, printer(func(p []byte) error { return lines.say(Output{Stdout: p}) }),
		printer(func(p []byte) error { return lines.say(Output{Stderr: p}) }))
	end := resultOf(res)
	last := Output{Result: &end}
	if err != nil {
		e, _ := errorOf(err)
		last = Output{Error: e}
	}
	_ = lines.say(last) // a client that is gone has no use for it
}

type lines struct {
	mu sync.Mutex
	w  http.ResponseWriter
}

func (l *lines) say(o Output) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := json.NewEncoder(l.w).Encode(o); err != nil {
		return err
	}
	return http.NewResponseController(l.w).Flush()
}

type printer func(p []byte) error

func (f printer) Write(p []byte) (int, error) {
	if err := f(p); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (s *Server) end(_ http.ResponseWriter, r *http.Request) (any, error) {
	l, err := s.find(r)
	destroy := r.URL.Query().Get("destroy") == "1"
	if destroy && errors.Is(err, sandbox.ErrNotFound) { // nothing of it is left
		return s.pool.Stats(), nil
	}
	if err != nil {
		return nil, err
	}
	s.forget(l)
	if destroy {
		err = l.Destroy(r.Context())
	} else {
		err = l.Release(r.Context())
	}
	if err != nil {
		return nil, err
	}
	return s.pool.Stats(), nil
}

func (s *Server) forget(l *lent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.leases, l.ID())
}

func (s *Server) destroyAll(_ http.ResponseWriter, r *http.Request) (any, error) {
	s.mu.Lock()
	s.leases = map[string]*lent{}
	s.mu.Unlock()
	if err := s.pool.DestroyAll(context.WithoutCancel(r.Context())); err != nil {
		return nil, err
	}
	return s.pool.Stats(), nil
}

const sweepEvery = time.Second

func (s *Server) sweep(ctx context.Context) {
	for range proc.Ticks(ctx.Done(), sweepEvery) {
		s.mu.Lock()
		left := map[*lent]string{}
		for _, l := range s.leases {
			if why := l.over(s.idle, s.ttl); why != "" {
				left[l] = why
				delete(s.leases, l.ID())
			}
		}
		s.mu.Unlock()
		for l, why := range left {
			s.log.Warn("lease ended", "lease", l.ID(), "reason", why)
			if err := l.Destroy(context.WithoutCancel(ctx)); err != nil {
				s.log.Warn("a sandbox was left", "error", err)
			}
		}
	}
}
