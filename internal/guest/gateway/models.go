// Package gateway gives the agent access to the task's remote and the models, and keeps the credentials of both in boot's memory.
package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/redact"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const (
	dialTime = 15 * time.Second
	tlsTime  = 15 * time.Second
	// answerTime bounds the wait for the beginning of an answer, which may come when the model is done, and the reading
	// of an answer whose client has gone.
	answerTime = 15 * time.Minute
	bodyTime   = 2 * time.Minute
	idleTime   = 90 * time.Second
	// stopTime bounds Stop's wait for requests that it has cut off.
	stopTime = 2 * time.Second
	// maxHeader bounds the headers of clients and servers, in bytes.
	maxHeader = 256 << 10
	// writeTime bounds writing one chunk of an answer: a client that takes nothing for so long is gone.
	writeTime = 2 * time.Minute
	// roomTime bounds an answer's wait for memory that others hold.
	roomTime = 30 * time.Second
)

// ModelsConfig configures the access to the models.
type ModelsConfig struct {
	Gateway workorder.Gateway
	// Network is the policy that also applies to the provider's tools and fetches. The zero value allows everything.
	Network workorder.NetworkPolicy
	// Emit gets EventNetwork, only the first of each kind. If nil, events are dropped.
	Emit func(workorder.Event)
	// Secrets contains the values of all keys of the routes.
	Secrets map[string]string
	// Audit gets one JSON line per request, without bodies and keys. If nil, no audit is written.
	Audit io.Writer
	Log   *slog.Logger

	limits limits // zero for the constants
}

// limits are the limits that tests shorten.
type limits struct {
	answer, write, room time.Duration
	again               time.Duration // 0: againTime
	held                int64
}

// Models gives the agent access to its models. It is safe for concurrent use.
type Models struct {
	log    *slog.Logger
	mask   atomic.Pointer[redact.Set]
	routes map[string]*route
	prices pricer
	budget *budget
	rate   *bucket
	audit  auditor
	judge  *judge
	client http.RoundTripper
	room   *memoryLimit
	limits limits
	// throttle is shared by all routes: an agent that progresses with one of them is not stopped.
	throttle throttle
	outage   outage

	mu      sync.Mutex
	masked  map[string]string // values that answers must not have, by name; also former ones
	stopped bool              // no request may begin
	busy    sync.WaitGroup    // requests; mu is held when one is added

	srv  *http.Server
	addr string
	stop context.CancelFunc
	over context.Context // ended by Stop
}

// route is one API with its server.
type route struct {
	api  workorder.ModelAPI
	base *url.URL // without a version at the end of its path
	keys atomic.Pointer[keyring]
}

// NewModels creates the gateway with a placeholder for every key. Env works from here on.
func NewModels(c ModelsConfig) (*Models, error) {
	prices, err := newPricer(c.Gateway.Prices)
	if err != nil {
		return nil, err
	}
	m := &Models{
		log: c.Log, routes: map[string]*route{}, prices: prices,
		budget: &budget{over: make(chan struct{}), changed: make(chan struct{}), running: map[*callCost]bool{}, cut: map[string]*callCost{}},
		rate:   newBucket(c.Gateway.RequestsPerMinute),
		audit:  auditor{out: c.Audit, log: c.Log}, limits: c.limits,
	}
	if m.judge, err = newJudge(c.Network, &c.Gateway, c.Emit); err != nil {
		return nil, err
	}
	if m.limits == (limits{}) {
		m.limits = limits{answer: answerTime, write: writeTime, room: roomTime, held: maxHeld}
	}
	m.limits.again = cmp.Or(m.limits.again, againTime)
	m.room = newMemoryLimit(m.limits.held)
	if m.log == nil {
		m.log = slog.New(slog.DiscardHandler)
		m.audit.log = m.log
	}
	keys := map[string]string{}
	for _, r := range c.Gateway.Routes {
		if err := workorder.CheckBaseURL(r.BaseURL); err != nil {
			return nil, fmt.Errorf("model gateway: %s: %w", r.API, err)
		}
		base, err := url.Parse(r.BaseURL)
		if err != nil {
			return nil, fmt.Errorf("model gateway: %s: %w", r.API, err)
		}
		base.Path = strings.TrimSuffix(strings.TrimRight(base.Path, "/"), "/v1")
		ring, err := newKeyring(r, c.Secrets)
		if err != nil {
			return nil, err
		}
		for _, name := range r.Keys {
			keys[name] = c.Secrets[name]
		}
		rt := &route{api: r.API, base: base}
		rt.keys.Store(&ring)
		m.routes[string(r.API)] = rt
	}
	m.masked = keys
	m.mask.Store(redact.Named(keys))
	m.client = &http.Transport{
		Proxy:               http.ProxyFromEnvironment, // loopback is never proxied
		DialContext:         (&net.Dialer{Timeout: dialTime, ControlContext: notMetadata}).DialContext,
		TLSHandshakeTimeout: tlsTime, ResponseHeaderTimeout: answerTime, IdleConnTimeout: idleTime,
		MaxResponseHeaderBytes: maxHeader, DisableCompression: true, ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 16,
	}
	return m, nil
}

// notMetadata refuses connections to services that hand out this machine's credentials, whatever a name resolves to.
func notMetadata(_ context.Context, _, address string, _ syscall.RawConn) error {
	if at, err := netip.ParseAddrPort(address); err == nil && workorder.IsMetadata(at.Addr()) {
		return fmt.Errorf("%s is an address of a metadata service, which is no server of models", at.Addr())
	}
	return nil
}

// SetKeys replaces the values of keys by their names, for the requests that begin from here on. Names of other secrets have no effect.
func (m *Models) SetKeys(values map[string]string) error {
	for name, value := range values {
		if !validKey(value) {
			return fmt.Errorf("the secret %s is empty or has line breaks: it cannot be a key of a model", name)
		}
	}
	// Answers of running requests may still name a former key.
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, value := range values {
		if !slices.Contains(slices.Collect(maps.Values(m.masked)), value) {
			m.masked[fmt.Sprintf("%s_%d", name, len(m.masked))] = value
		}
	}
	m.mask.Store(redact.Named(m.masked))
	for _, r := range m.routes {
		next := r.keys.Load().with(values)
		r.keys.Store(&next)
	}
	return nil
}

// Start listens on a free port of loopback. Stop must be called.
func (m *Models) Start(ctx context.Context) error {
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("start model gateway: %w", err)
	}
	m.addr = ln.Addr().String()
	m.over, m.stop = context.WithCancel(ctx)
	m.srv = &http.Server{
		Handler: m, ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHeader,
		BaseContext: func(net.Listener) context.Context { return m.over },
		ErrorLog:    slog.NewLogLogger(m.log.Handler(), slog.LevelDebug),
	}
	go func() {
		if err := m.srv.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			m.log.Error("model gateway ended", "error", err)
		}
	}()
	return nil
}

// Env returns the variables by which programs find the gateway: placeholders for keys and, after Start, addresses. A
// route without keys gets a placeholder, too, because programs require one.
func (m *Models) Env() map[string]string {
	env := map[string]string{}
	for name, r := range m.routes {
		maps.Copy(env, r.keys.Load().vars)
		if m.addr == "" {
			continue
		}
		base := "http://" + m.addr + "/" + name
		if r.api == workorder.APIOpenAI { // OpenAI clients expect the version in the base
			base += "/v1"
			env["OPENAI_API_BASE"] = base // the name that older programs use
		}
		env[r.api.BaseURLVariable()] = base
	}
	return env
}

// SetBudget sets the total budget, which includes the sum already spent; nil means no limit.
func (m *Models) SetBudget(usd *float64) { m.budget.setBudget(usd) }

// Usage returns the usage so far and the number of forwarded requests. The cost is nil if any part is unknown.
func (m *Models) Usage() (workorder.Usage, int64) { return m.budget.usage() }

// Settle waits for abandoned calls and returns Usage. If ctx ends first, it includes their highest possible cost.
func (m *Models) Settle(ctx context.Context) (workorder.Usage, int64) { return m.budget.settle(ctx) }

// OverBudget returns a channel that is closed when a request is refused for the budget. SetBudget with more creates a new one.
func (m *Models) OverBudget() <-chan struct{} { return m.budget.overBudget() }

// begin admits a request; it returns false if the gateway has stopped.
func (m *Models) begin() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.stopped {
		m.busy.Add(1)
	}
	return !m.stopped
}

// Stop ends the gateway and cuts off running requests.
func (m *Models) Stop() {
	if m.srv == nil {
		return
	}
	m.mu.Lock()
	m.stopped = true
	m.mu.Unlock()
	m.stop()
	_ = m.srv.Close() // an error on loopback connections does not matter now
	done := make(chan struct{})
	go func() { m.busy.Wait(); close(done) }()
	t := time.NewTimer(stopTime)
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
	}
}
