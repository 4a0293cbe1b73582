package egress

import (
	"bytes"
	"context"
	"encoding/binary"
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
	if b[0] == recordHandshake {
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
	name, err := clientHello(io.MultiReader(bytes.NewReader(c.read), io.TeeReader(c.TCPConn, &more)))
	c.read = append(c.read, more.Bytes()...)
	host = c.host()
	ok := true
	if name != "" {
		if host, ok = canonical(name); ok && host != c.host() {
			v = p.policy.judge(host, port)
		}
	}
	switch {
	case err != nil && !errors.Is(err, errHello):
		no = &attempt{host: c.host(), reason: "the TLS handshake ended before the server name"}
	case err != nil:
		no = &attempt{host: c.host(), reason: errHello.Error()}
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

const (
	// maxHello bounds a ClientHello, in bytes: real ones stay below 4 KiB, and Go's and OpenSSL's servers accept no more.
	maxHello = 64 << 10
	// maxRecord is the largest TLS record (RFC 8446, 5.1).
	maxRecord = 1 << 14

	recordHandshake = 0x16
	messageHello    = 1
	extensionName   = 0
	nameTypeHost    = 0
	helloHeader     = 4      // type and length of a handshake message
	recordHeader    = 5      // type, version, length
	helloFixed      = 2 + 32 // version and random
)

var errHello = errors.New("malformed TLS ClientHello")

// clientHello reads a ClientHello, which may span records, and returns its server name, or "" if there is none.
func clientHello(r io.Reader) (name string, err error) {
	var msg []byte
	for {
		var head [recordHeader]byte
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return "", err
		}
		n := int(binary.BigEndian.Uint16(head[3:]))
		if head[0] != recordHandshake || head[1] != 3 || n == 0 || n > maxRecord || len(msg)+n > maxHello {
			return "", errHello
		}
		msg = append(msg, make([]byte, n)...)
		if _, err := io.ReadFull(r, msg[len(msg)-n:]); err != nil {
			return "", err
		}
		if msg[0] != messageHello {
			return "", errHello
		}
		if len(msg) < helloHeader {
			continue
		}
		size := int(msg[1])<<16 | int(msg[2])<<8 | int(msg[3])
		if size > maxHello-helloHeader {
			return "", errHello
		}
		if len(msg) >= helloHeader+size {
			// A client sends nothing more in the same record.
			if len(msg) > helloHeader+size {
				return "", errHello
			}
			return serverName(msg[helloHeader:])
		}
	}
}

// cursor cuts fields off a message. After a missing field, bad is set and all further fields are empty.
type cursor struct {
	b   []byte
	bad bool
}

func (c *cursor) take(n int) []byte {
	if c.bad || len(c.b) < n {
		c.bad, c.b = true, nil
		return nil
	}
	b := c.b[:n]
	c.b = c.b[n:]
	return b
}

func (c *cursor) uint8() int {
	if b := c.take(1); b != nil {
		return int(b[0])
	}
	return 0
}

func (c *cursor) uint16() int {
	if b := c.take(2); b != nil {
		return int(binary.BigEndian.Uint16(b))
	}
	return 0
}

// serverName returns the host name in a ClientHello. It rejects duplicates and trailing bytes.
func serverName(body []byte) (string, error) {
	c := &cursor{b: body}
	c.take(helloFixed)
	c.take(c.uint8())  // session id
	c.take(c.uint16()) // cipher suites
	c.take(c.uint8())  // compression
	if c.bad {
		return "", errHello
	}
	if len(c.b) == 0 {
		return "", nil // no extensions
	}
	ext := &cursor{b: c.take(c.uint16())}
	if c.bad || len(c.b) != 0 {
		return "", errHello
	}
	name, seen := "", map[int]bool{}
	for len(ext.b) > 0 {
		typ := ext.uint16()
		data := ext.take(ext.uint16())
		if ext.bad || seen[typ] {
			return "", errHello
		}
		seen[typ] = true
		if typ != extensionName {
			continue
		}
		var err error
		if name, err = hostEntry(data); err != nil {
			return "", err
		}
	}
	return name, nil
}

func hostEntry(data []byte) (string, error) {
	c := &cursor{b: data}
	list := &cursor{b: c.take(c.uint16())}
	typ := list.uint8()
	name := list.take(list.uint16())
	if c.bad || list.bad || len(c.b) != 0 || len(list.b) != 0 || typ != nameTypeHost || len(name) == 0 {
		return "", errHello
	}
	return string(name), nil
}
