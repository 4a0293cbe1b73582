package workorder

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"time"
)

const (
	// TLSHandshake is the first byte that a TLS client sends (RFC 8446, 5.1).
	TLSHandshake = 0x16
	// MaxClientHello bounds the bytes of a ClientHello with its records: real ones stay below 4 KiB, and Go's and OpenSSL's servers
	// accept no more than 64 KiB.
	MaxClientHello = 64 << 10
)

// ErrClientHello means that the client sent no valid ClientHello.
var ErrClientHello = errors.New("malformed TLS ClientHello")

// TLSName reads a ClientHello, which may span records, and returns its server name, or "" if it has none. It may read more
// than that. The error is ErrClientHello or that of r.
func TLSName(r io.Reader) (name string, err error) {
	c := &helloConn{r: io.LimitReader(r, MaxClientHello)}
	err = ErrClientHello
	_ = tls.Server(c, &tls.Config{GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
		name, err = h.ServerName, nil
		return nil, ErrClientHello // ends the handshake
	}}).Handshake() //nolint:noctx // it waits for r alone
	if err != nil && c.err != nil {
		err = c.err
	}
	return name, err
}

// helloConn is a connection of which only Read is used.
type helloConn struct {
	net.Conn
	r   io.Reader
	err error
}

func (c *helloConn) Read(p []byte) (n int, err error) {
	n, err = c.r.Read(p)
	c.err = err
	return n, err
}
func (*helloConn) Write(p []byte) (int, error)      { return len(p), nil } // an alert
func (*helloConn) SetWriteDeadline(time.Time) error { return nil }         // for the alert
