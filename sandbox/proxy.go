package sandbox

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/wireclient"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// proxy serves the HTTP proxy of a sandbox that has no other network. Its clients are not trusted.
type proxy struct {
	rules   []workorder.AllowRule
	resolve func(ctx context.Context, network, host string) ([]netip.Addr, error)
	connect func(ctx context.Context, network, address string) (net.Conn, error)
	web     *http.Transport // for requests that are not tunnels
}

const (
	// maxProxied bounds the connections of a sandbox's proxy; other requests to its guest need streams, too.
	maxProxied    = 256
	maxProxyHead  = 64 << 10    // bytes of a request's head
	proxyHeadTime = time.Minute // for a client to send a request's head
	proxyDialTime = 15 * time.Second
	proxyWaitTime = 15 * time.Minute // for the head of a server's answer: some models think for minutes
	proxyLinger   = 5 * time.Second  // for a client to close its side
	addressTime   = 5 * time.Second  // for one address of a name
)

// serveProxy serves the proxy of the client's sandbox until the client is closed.
func serveProxy(ctx context.Context, c *wireclient.Client, allow []string) {
	p := newProxy(allow)
	ctx = context.WithoutCancel(ctx)
	defer p.web.CloseIdleConnections()
	free := make(chan struct{}, maxProxied)
	for {
		free <- struct{}{}
		conn, err := c.Proxied(ctx)
		if err != nil {
			return
		}
		go func() {
			defer func() { <-free }()
			p.serve(ctx, conn)
			end(conn)
		}()
	}
}

// end closes a connection after its client has received everything: closing it drops what is still on the way.
func end(conn net.Conn) {
	if half, ok := conn.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
		late := time.AfterFunc(proxyLinger, func() { _ = conn.Close() })
		defer late.Stop()
		_, _ = io.Copy(io.Discard, conn)
	}
	_ = conn.Close()
}

// newProxy returns a proxy with valid rules.
func newProxy(allow []string) *proxy {
	p := &proxy{resolve: net.DefaultResolver.LookupNetIP, connect: (&net.Dialer{Timeout: addressTime}).DialContext}
	for _, s := range allow {
		if r, err := workorder.ParseAllowRule(s); err == nil {
			p.rules = append(p.rules, r)
		}
	}
	p.web = &http.Transport{
		DialContext:       func(ctx context.Context, _, address string) (net.Conn, error) { return p.dial(ctx, address) },
		DisableKeepAlives: true, DisableCompression: true,
		MaxResponseHeaderBytes: maxProxyHead, ResponseHeaderTimeout: proxyWaitTime,
	}
	return p
}

func (p *proxy) allows(host string, port uint16) bool {
	return slices.ContainsFunc(p.rules, func(r workorder.AllowRule) bool { return r.Match(host, port) })
}

// errRefused is a refusal by the rules, which the client reads.
type errRefused struct{ why string }

func (e errRefused) Error() string { return e.why }

// hostPort returns the canonical host and the port of host:port.
func hostPort(address string) (host string, port uint16, err error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, err
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return "", 0, err
	}
	if a, err := netip.ParseAddr(host); err == nil {
		return a.Unmap().WithZone("").String(), uint16(n), nil
	}
	if host = workorder.CanonicalHost(host); !workorder.ValidHostName(host) {
		return "", 0, fmt.Errorf("%.80q is not a host", host)
	}
	return host, uint16(n), nil
}

// dial connects to host:port if a rule allows it, at an address that was checked.
func (p *proxy) dial(ctx context.Context, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, proxyDialTime)
	defer cancel()
	host, port, err := hostPort(address)
	if err != nil {
		return nil, err
	}
	if !p.allows(host, port) {
		return nil, errRefused{fmt.Sprintf("no rule allows %s: it needs the rule %s", address, workorder.AllowRuleFor(host, port))}
	}
	literal, err := netip.ParseAddr(host)
	all := []netip.Addr{literal}
	if err != nil {
		if all, err = p.resolve(ctx, "ip", host); err != nil {
			return nil, err
		}
	}
	err = errRefused{fmt.Sprintf("%s has no address that a rule can allow; one of a private network needs the suffix @private", host)}
	for _, a := range all {
		if a = a.Unmap().WithZone(""); !p.reachable(host, port, a) {
			continue
		}
		var c net.Conn
		if c, err = p.connect(ctx, "tcp", netip.AddrPortFrom(a, port).String()); err == nil {
			return c, nil
		}
	}
	return nil, err
}

// reachable reports whether an allowed host may have the address.
func (p *proxy) reachable(host string, port uint16, a netip.Addr) bool {
	if workorder.IsMetadata(a) || workorder.Undialled(workorder.Untranslated(a)) != "" {
		return false
	}
	return !workorder.PrivateAddress(a) || slices.ContainsFunc(p.rules, func(r workorder.AllowRule) bool {
		return r.Match(a.String(), port) || r.Private && r.Match(host, port)
	})
}

// serve answers one request: a tunnel, or a request of HTTP/1 to pass on.
func (p *proxy) serve(ctx context.Context, conn net.Conn) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	head := &io.LimitedReader{R: conn, N: maxProxyHead}
	in := bufio.NewReader(head)
	late := time.AfterFunc(proxyHeadTime, func() { _ = conn.Close() })
	r, err := http.ReadRequest(in)
	late.Stop()
	if err != nil {
		return // the client is gone, or speaks another protocol
	}
	head.N = math.MaxInt64
	if r.Method == http.MethodConnect {
		up, err := p.dial(ctx, r.Host)
		if err != nil {
			answerError(conn, err)
			return
		}
		defer up.Close()
		if _, err := io.WriteString(conn, "HTTP/1.1 200 Connection established\r\n\r\n"); err == nil {
			p.tunnel(r.Host, conn, in, up)
		}
		return
	}
	if r.URL.Scheme != "http" || r.URL.Host == "" {
		answerError(conn, errRefused{"this is a proxy: name it in http_proxy and https_proxy"})
		return
	}
	for _, name := range []string{"Proxy-Connection", "Proxy-Authorization", "Connection", "Keep-Alive", "Te", "Trailer", "Upgrade"} {
		r.Header.Del(name)
	}
	r.RequestURI = ""
	answer, err := p.web.RoundTrip(r.WithContext(ctx))
	if err != nil {
		answerError(conn, err)
		return
	}
	defer answer.Body.Close()
	answer.Close = true
	_ = answer.Write(conn) // a client that is gone needs no answer
}

func answerError(conn net.Conn, err error) {
	status := http.StatusBadGateway
	if _, ok := errors.AsType[errRefused](err); ok {
		status = http.StatusForbidden
	}
	text := "sandbox-agent: " + err.Error() + "\n"
	fmt.Fprintf(conn, "HTTP/1.1 %d %s\r\nContent-Type: text/plain\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s",
		status, http.StatusText(status), len(text), text)
}

// tunnel copies between a client and an allowed server until one side ends. Rules without a port are for TLS, which must not ask for
// another host than the rules allow.
func (p *proxy) tunnel(address string, conn net.Conn, in io.Reader, up net.Conn) {
	host, port, _ := hostPort(address) // dial has parsed it
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, err := io.Copy(conn, up)
		if half, ok := conn.(interface{ CloseWrite() error }); !ok || err != nil || half.CloseWrite() != nil {
			_ = conn.Close()
		}
	}()
	first := make([]byte, 1)
	if _, err := io.ReadFull(in, first); err != nil {
		return
	}
	in = io.MultiReader(bytes.NewReader(first), in)
	if first[0] == workorder.TLSHandshake {
		var read bytes.Buffer
		name, err := workorder.TLSName(io.TeeReader(in, &read))
		if name = workorder.CanonicalHost(name); err != nil || name != "" && !p.allows(name, port) {
			return
		}
		in = io.MultiReader(&read, in)
	} else if !slices.ContainsFunc(p.rules, func(r workorder.AllowRule) bool { return r.Port == port && r.Names(host) }) {
		return
	}
	_, err := io.Copy(up, in)
	if t, ok := up.(*net.TCPConn); ok && err == nil {
		_ = t.CloseWrite()
		<-done
	}
}
