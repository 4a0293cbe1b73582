package egress

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const noRule = "no rule of network.allow allows it"

type clientProtocol int

const (
	clientUnclear clientProtocol = iota // more bytes are needed
	clientSilent                        // none arrived
	clientTLS
	clientHTTP
	clientHTTP2 // HTTP/2 without TLS, by prior knowledge
	clientOther
)

const (
	prefaceH2 = "PRI * HTTP/2.0"
	// maxMethod bounds the length of an HTTP method; the longest registered one has 17 letters.
	maxMethod = 24
)

func recognise(b []byte) clientProtocol {
	if len(b) == 0 {
		return clientUnclear
	}
	if b[0] == workorder.TLSHandshake {
		return clientTLS
	}
	if n := min(len(b), len(prefaceH2)); string(b[:n]) == prefaceH2[:n] {
		if n == len(prefaceH2) {
			return clientHTTP2
		}
		return clientUnclear
	}
	i := bytes.IndexFunc(b, func(r rune) bool { return r < 'A' || r > 'Z' })
	switch {
	case i > 0 && i <= maxMethod && b[i] == ' ':
		return clientHTTP
	case i < 0 && len(b) <= maxMethod:
		return clientUnclear
	}
	return clientOther
}

func (c *client) listen(wait time.Duration) clientProtocol {
	_ = c.SetReadDeadline(time.Now().Add(wait))
	buf := make([]byte, sniffBytes)
	for {
		n, err := c.Read(buf)
		c.read = append(c.read, buf[:n]...)
		if s := recognise(c.read); s != clientUnclear {
			return s
		}
		if err != nil && len(c.read) == 0 {
			return clientSilent
		}
		if err != nil || len(c.read) >= sniffBytes {
			return clientOther
		}
	}
}

// patience bounds a client's silence. On web ports the client speaks first; elsewhere a refusal is likely.
func (p *proxy) patience(c *client) time.Duration {
	port := c.dst.Port()
	switch {
	case isWeb(port):
		return helloTime
	case c.name == "" && slices.ContainsFunc(p.policy.rules, func(r workorder.AllowRule) bool { return r.Port == port }):
		return unclearTime
	}
	return refusedTime
}

// decide decides on a connection by the client's first bytes.
func (p *proxy) decide(ctx context.Context, c *client, v verdict, spoken clientProtocol) (kept bool) {
	host, port := c.host(), c.dst.Port()
	switch spoken {
	case clientTLS:
		host, v, no := p.hello(c, v)
		if no != nil {
			p.refuse(c, *no)
			return false
		}
		p.connect(ctx, c, host, v, false)
		return false
	case clientHTTP:
		_ = c.SetReadDeadline(time.Time{})
		p.web.take(c)
		return true
	}
	// For these protocols only the destination is known. At a web port they could be an odd form of HTTP.
	switch {
	case v == learned, v == allowed && p.policy.explicit(host, port):
		p.connect(ctx, c, host, v, true)
	case v == allowed:
		p.refuse(c, attempt{
			host: host, reason: "the protocol is neither TLS nor HTTP/1", rule: explicitFix(host, port),
		})
	default:
		p.refuse(c, attempt{host: host, reason: noRule, rule: p.fix(host, port)})
	}
	return false
}

// fix returns the rule that would allow it; empty if the policy never allows it.
func (p *proxy) fix(host string, port uint16) string {
	if a := parseAddr(host); a.IsValid() && p.never(a, p.ownRanges()) != "" {
		return ""
	}
	return fix(host, port)
}

// hello reads a TLS handshake up to the server name and decides on that. no is the refusal, nil if allowed.
func (p *proxy) hello(c *client, v verdict) (host string, _ verdict, no *attempt) {
	port := c.dst.Port()
	_ = c.SetReadDeadline(time.Now().Add(helloTime))
	var more bytes.Buffer
	name, err := workorder.TLSName(io.MultiReader(bytes.NewReader(c.read), io.TeeReader(c.TCPConn, &more)))
	c.read = append(c.read, more.Bytes()...)
	host = c.host()
	ok := true
	if name != "" {
		if host, ok = canonical(name); ok && host != c.host() {
			v = p.policy.judge(host, port)
		}
	}
	switch {
	case err != nil && !errors.Is(err, workorder.ErrClientHello):
		no = &attempt{host: c.host(), reason: "the TLS handshake ended before the server name"}
	case err != nil:
		no = &attempt{host: c.host(), reason: workorder.ErrClientHello.Error()}
	case !ok:
		no = &attempt{host: c.host(), reason: "the server name of the TLS handshake is not a host name"}
	case v == refused:
		reason := noRule
		if c.name != "" && host != c.name {
			reason += " (it is the TLS server name of a connection to " + c.name + ")"
		}
		no = &attempt{host: host, reason: reason, rule: p.fix(host, port)}
	}
	return host, v, no
}
