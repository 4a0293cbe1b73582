// Package render shows a run to a human or a program. Renderers consume events
// and nothing else, so a run looks the same while it happens and when its
// record is read later. Everything in an event may come from the agent: no text
// reaches a terminal before it is cleaned of what a terminal would obey.
package render

import (
	"io"
	"time"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Renderer shows events as they arrive. Event and Close are called by one
// goroutine. An event that is unknown, incomplete or out of order is shown as
// well as it can be and never an error; neither is a reader that has gone away.
type Renderer interface {
	Event(workorder.Event)
	// Close leaves the terminal as it should stay. It may be called twice.
	Close()
}

// Options say what the output can do. The zero value is good for a file.
type Options struct {
	Color bool
	// Width and Height return the terminal's size now; nil or 0 means unknown.
	Width, Height func() int
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Tick repaints the live part; nil means a ticker of the renderer's own.
	Tick <-chan time.Time
}

// Mode names a renderer.
type Mode int

// The renderers.
const (
	Plain Mode = iota // one line per event
	TTY               // live
	JSON              // the events themselves
)

// New returns the renderer of a mode.
func New(m Mode, w io.Writer, o Options) Renderer {
	switch m {
	case TTY:
		return newTTY(w, o)
	case JSON:
		return newJSON(w)
	}
	return newPlain(w, o)
}

// UseColor applies the NO_COLOR convention and the terminal without abilities.
func UseColor(isTerminal bool, getenv func(string) string) bool {
	return isTerminal && getenv("NO_COLOR") == "" && getenv("TERM") != "dumb"
}

const defaultWidth = 80

func (o Options) width() int {
	if o.Width != nil {
		if w := o.Width(); w > 0 {
			return w
		}
	}
	return defaultWidth
}

func (o Options) now() time.Time {
	if o.Now != nil {
		return o.Now()
	}
	return time.Now()
}
