package egress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/connowner"
)

const (
	// webIdle bounds a connection's wait for its next request. It is above most servers' limits, so that they decide.
	webIdle = 5 * time.Minute
	// webIdleUpstream bounds the idle connections to one host for one client connection.
	webIdleUpstream = 1
	webIdleAll      = 4
	// maxRequestHeader and maxResponseHeader bound a message's header, in bytes: net/http's own limits times all
	// connections exceed a box's memory.
	maxRequestHeader  = 64 << 10
	maxResponseHeader = 256 << 10
	// maxPlaces bounds the hosts whose scope a connection remembers; it exceeds the hosts with idle connections.
	maxPlaces = 64
	// copyBuffer is the size of the buffer that copies bodies, in bytes.
	copyBuffer = 32 << 10
)

// httpProxy handles HTTP/1 without TLS. It encodes every request again: the server reads exactly the checked request.
type httpProxy struct {
	proxy   *proxy
	server  *http.Server
	queue   chan net.Conn
	done    chan struct{}
	once    sync.Once
	buffers sync.Pool
}

type webKey struct{}

type webConn struct {
	*client
	transport *http.Transport
	once      sync.Once
	gone      func()
	places    scopeByHost
}

type scopeByHost struct {
	mu sync.Mutex
	of map[string]addrScope
}

// keep adds a host's scope and reports whether it had to drop others.
func (p *scopeByHost) keep(host string, to addrScope) (forgot bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, known := p.of[host]
	if forgot = !known && len(p.of) >= maxPlaces; forgot || p.of == nil {
		p.of = map[string]addrScope{}
	}
	p.of[host] = to
	return forgot
}

func (p *scopeByHost) get(host string) (to addrScope, known bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	to, known = p.of[host]
	return to, known
}

func (c *webConn) Read(b []byte) (int, error) {
	if len(c.read) > 0 {
		n := copy(b, c.read)
		c.read = c.read[n:]
		return n, nil
	}
	return c.TCPConn.Read(b)
}

func (c *webConn) Close() error {
	c.once.Do(c.gone)
	return c.TCPConn.Close()
}

func newHTTPProxy(p *proxy) *httpProxy {
	hp := &httpProxy{proxy: p, queue: make(chan net.Conn), done: make(chan struct{})}
	hp.buffers.New = func() any { return new([copyBuffer]byte) }
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	hp.server = &http.Server{
		Handler:           hp,
		ReadHeaderTimeout: helloTime,
		IdleTimeout:       webIdle,
		MaxHeaderBytes:    maxRequestHeader,
		Protocols:         &protocols,
		ErrorLog:          log.New(io.Discard, "", 0), // clients get their errors in the answer
		ConnContext:       func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, webKey{}, c) },
	}
	return hp
}

func (hp *httpProxy) take(c *client) {
	wc := &webConn{client: c}
	wc.transport = &http.Transport{
		DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
			host, _, err := net.SplitHostPort(addr)
			if err != nil {
				return nil, err
			}
			up, to, err := hp.proxy.dial(ctx, host, c.dst.Port())
			if wc.places.keep(host, to) {
				wc.transport.CloseIdleConnections() // of hosts whose scope was dropped
			}
			if err != nil {
				return nil, err
			}
			return up, nil
		},
		MaxIdleConns: webIdleAll, MaxIdleConnsPerHost: webIdleUpstream, DisableCompression: true, IdleConnTimeout: webIdle,
		MaxResponseHeaderBytes: maxResponseHeader,
	}
	wc.gone = func() {
		wc.transport.CloseIdleConnections()
		hp.proxy.open.Add(-1)
	}
	select {
	case hp.queue <- wc:
	case <-hp.done:
		wc.Close()
	}
}

// Accept, Close and Addr make web the listener of its own server.
func (hp *httpProxy) Accept() (net.Conn, error) {
	select {
	case c := <-hp.queue:
		return c, nil
	case <-hp.done:
		return nil, net.ErrClosed
	}
}

func (hp *httpProxy) Close() error {
	hp.once.Do(func() { close(hp.done) })
	return nil
}

func (hp *httpProxy) Addr() net.Addr { return &net.TCPAddr{} }

// Get and Put lend buffers to the reverse proxy.
func (hp *httpProxy) Get() []byte { return hp.buffers.Get().(*[copyBuffer]byte)[:] }

func (hp *httpProxy) Put(b []byte) { hp.buffers.Put((*[copyBuffer]byte)(b)) }

func (hp *httpProxy) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	c, ok := r.Context().Value(webKey{}).(*webConn)
	if !ok {
		http.Error(rw, "no connection", http.StatusInternalServerError)
		return
	}
	host, ok := requestHost(r, c.client)
	a := attempt{host: host, port: c.dst.Port(), protocol: "tcp", by: hp.proxy.by(c.client)}
	switch {
	case !ok:
		a.host, a.reason = connowner.Clean(r.Host), "the request has no valid host"
	case r.Method == http.MethodConnect:
		a.reason = "CONNECT is refused: programs in the sandbox connect directly, without a proxy"
	case r.Method == "PRI":
		a.reason = "HTTP/2 without TLS hides the requested host"
	default:
		a.verdict = hp.proxy.policy.judge(host, c.dst.Port())
		if a.verdict != allowed {
			a.reason, a.rule = noRule, hp.proxy.fix(host, c.dst.Port())
		}
	}
	if a.verdict == refused {
		hp.deny(rw, a)
		return
	}
	hp.forward(rw, r, c, a)
}

// requestHost returns the canonical host of a request; net/http has replaced Host by the host of an absolute URI.
func requestHost(r *http.Request, c *client) (string, bool) {
	h := r.Host
	if h == "" {
		h = c.name // HTTP/1.0
	}
	if strings.HasPrefix(h, "[") || strings.Count(h, ":") == 1 {
		if i := strings.LastIndexByte(h, ':'); i > strings.LastIndexByte(h, ']') {
			h = h[:i]
		}
	}
	return canonical(h)
}

func (hp *httpProxy) forward(rw http.ResponseWriter, r *http.Request, c *webConn, a attempt) {
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		r.Header.Del("Upgrade") // a server may ignore the other headers; h2c matters most
	}
	// It counts as allowed once a connection exists: the name may resolve to a forbidden address.
	var once sync.Once
	note := func() {
		once.Do(func() {
			a := a
			to, known := c.places.get(a.host)
			if to == insideNoRule {
				a.verdict, a.reason = learned, noRule
			}
			if known && to != public {
				a.rule = hp.proxy.policy.insideFix(a.host, a.port, false)
			}
			go hp.proxy.ledger.note(a)
		})
	}
	r = r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { note() }}))
	// Use the server's own headers, not net/http's.
	rw.Header()["Date"], rw.Header()["Content-Type"] = nil, nil
	rp := httputil.ReverseProxy{
		Transport: c.transport, BufferPool: hp, FlushInterval: -1, ErrorLog: hp.server.ErrorLog,
		Rewrite: func(pr *httputil.ProxyRequest) {
			pr.Out.URL.Scheme = "http"
			pr.Out.URL.Host = netHost(a.host)
			pr.Out.URL.RawQuery = pr.In.URL.RawQuery
			pr.Out.Host = pr.In.Host
			for _, h := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
				if v, ok := pr.In.Header[h]; ok {
					pr.Out.Header[h] = v
				}
			}
			if _, ok := pr.In.Header["User-Agent"]; !ok {
				pr.Out.Header["User-Agent"] = nil
			}
		},
		ErrorHandler: func(rw http.ResponseWriter, _ *http.Request, err error) {
			if f, ok := errors.AsType[errForbidden](err); ok {
				no := a
				no.reason, no.rule = f.why, hp.proxy.forbiddenFix(f, a.host, a.port)
				hp.deny(rw, no)
				return
			}
			note()
			plain(rw, http.StatusBadGateway, fmt.Sprintf("sandbox-agent: %s: %v\n", a.host, err))
		},
	}
	rp.ServeHTTP(rw, r)
}

// netHost is a host in URL form. The port is the connection's own, see take.
func netHost(host string) string {
	if a, err := netip.ParseAddr(host); err == nil && a.Is6() {
		return "[" + host + "]"
	}
	return host
}

// deny refuses one request and ends the connection.
func (hp *httpProxy) deny(rw http.ResponseWriter, a attempt) {
	a.verdict = refused
	text := fmt.Sprintf("sandbox-agent: the network policy of this sandbox refuses %s, port %d: %s.\n", a.host, a.port, a.reason)
	if a.rule != "" {
		text += "To allow it, add this line under network.allow in the project file:\n" + a.rule + "\n"
	}
	hp.proxy.ledger.note(a)
	rw.Header().Set("Connection", "close")
	plain(rw, http.StatusForbidden, text)
}

func plain(rw http.ResponseWriter, code int, text string) {
	delete(rw.Header(), "Date")
	rw.Header().Set("Content-Type", "text/plain; charset=utf-8")
	rw.WriteHeader(code)
	_, _ = io.WriteString(rw, text)
}
