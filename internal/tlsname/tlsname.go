// Package tlsname reads the server name that a TLS client asks for.
package tlsname

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"time"
)

const (
	// Handshake is the first byte that a TLS client sends (RFC 8446, 5.1).
	Handshake = 0x16
	// MaxHello bounds the bytes of a ClientHello with its records: real ones stay below 4 KiB, and Go's and OpenSSL's servers
	// accept no more than 64 KiB.
	MaxHello = 64 << 10
)

// ErrHello means that the client sent no valid ClientHello.
var ErrHello = errors.New("malformed TLS ClientHello")

// Read reads a ClientHello, which may span records, and returns its server name, or "" if it has none. It may read more
// than that. The error is ErrHello or that of r.
func Read(r io.Reader) (name string, err error) {
	c := &conn{r: io.LimitReader(r, MaxHello)}
	err = ErrHello
	_ = tls.Server(c, &tls.Config{GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
		name, err = h.ServerName, nil
		return nil, ErrHello // ends the handshake
	}}).Handshake() //nolint:noctx // it waits for r alone
	if err != nil && c.err != nil {
		err = c.err
	}
	return name, err
}

// conn is a connection of which only Read is used.
type conn struct {
	net.Conn
	r   io.Reader
	err error
}

func (c *conn) Read(p []byte) (n int, err error) {
	n, err = c.r.Read(p)
	c.err = err
	return n, err
}
func (*conn) Write(p []byte) (int, error)      { return len(p), nil } // an alert
func (*conn) SetWriteDeadline(time.Time) error { return nil }         // for the alert
