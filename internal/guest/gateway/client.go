package gateway

import (
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

// client is who asked, as far as it is written to: chunk by chunk, each with its own time, and without keys.
type client struct {
	w     http.ResponseWriter
	conn  *http.ResponseController
	limit time.Duration // for a chunk
	// masked writes to the client, without keys.
	masked io.WriteCloser
	// gone: the client has hung up, or takes nothing any more.
	gone atomic.Bool
	// hangUp says so, and bounds how long the answer is read from then on.
	hangUp func()
	sent   int64 // bytes
}

// patience starts the time that the client has to take the next chunk.
func (c *client) patience() {
	_ = c.conn.SetWriteDeadline(time.Now().Add(c.limit)) // a writer that cannot do it has no slow client either
}

var errGone = errors.New("the client has gone")

// Write is for the masker of keys.
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

// put writes to the client, without keys; false: it is gone. Only the end that may be the beginning of a key waits
// for more. No key has a line end, so that no event of a stream ever waits.
func (c *client) put(b []byte) bool {
	_, _ = c.masked.Write(b) // an error is that the client has gone
	return c.flush()
}

// rest writes what put held back, when the whole answer has arrived.
func (c *client) rest() {
	_ = c.masked.Close() // an error is that the client has gone
	c.flush()
}

func (c *client) flush() bool {
	c.patience()
	if !c.gone.Load() && c.conn.Flush() != nil {
		c.hangUp()
	}
	return !c.gone.Load()
}
