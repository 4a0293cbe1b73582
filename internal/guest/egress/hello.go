package egress

import (
	"encoding/binary"
	"errors"
	"io"
)

const (
	// maxHello bounds a ClientHello, in bytes: real ones with post-quantum keys and
	// session tickets stay below 4 KiB, and Go's and OpenSSL's servers accept no more.
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

// clientHello reads a whole ClientHello, which may span several
// records, and returns its server name, or "" if there is none.
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

// cursor cuts fields off a message. After a missing field, bad is set
// and all further fields are empty.
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

// serverName returns the host name in the body of a ClientHello. It rejects ambiguous messages: a duplicate
// extension, two names, trailing bytes.
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
