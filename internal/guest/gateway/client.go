package gateway

import (
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

// client writes the answer to the agent: in chunks, each with its own deadline, and with keys masked.
type client struct {
	w     http.ResponseWriter
	conn  *http.ResponseController
	limit time.Duration // for a chunk
	// masked writes to the client with keys masked.
	masked io.WriteCloser
	// gone means that the client has hung up or takes nothing more.
	gone atomic.Bool
	// hangUp sets gone, and bounds how long the rest of the answer is read.
	hangUp func()
	sent   int64 // bytes
}

// patience sets the client's deadline for the next chunk.
func (c *client) patience() {
	_ = c.conn.SetWriteDeadline(time.Now().Add(c.limit)) // a writer without deadlines has no slow client either
}

var errGone = errors.New("the client has gone")

// Write implements io.Writer for the key masker.
func (c *client) Write(b []byte) (int, error) {
	all := len(b)
	for len(b) > 0 {
		if c.gone.Load() {
			return all - len(b), errGone
		}
		c.patience()
		n, err := c.w.Write(b[:min(len(b), chunk)])
		c.sent += int64(n)
		if err != nil {
			c.hangUp()
		}
		b = b[n:]
	}
	return all, nil
}

// put writes to the client with keys masked; it returns false if the client is gone. Only a tail that may begin a key is held back.
// Keys contain no line end, so stream events are never held back.
func (c *client) put(b []byte) bool {
	_, _ = c.masked.Write(b) // an error means that the client has gone
	return c.flush()
}

// rest writes the held-back tail once the whole answer has arrived.
func (c *client) rest() {
	_ = c.masked.Close() // an error means that the client has gone
	c.flush()
}

func (c *client) flush() bool {
	c.patience()
	if !c.gone.Load() && c.conn.Flush() != nil {
		c.hangUp()
	}
	return !c.gone.Load()
}
