// Package render shows a run to a person or a program. Renderers consume only events, so
// a run looks the same while it happens and when its record is read later. Everything in
// an event may come from the agent: all text is cleaned before it reaches a terminal.
package render

import (
	"bytes"
	"encoding/json"
	"io"
	"sync"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Renderer shows events as they arrive. Event and Close are called by one goroutine. An unknown, incomplete or
// misplaced event is shown as well as possible and is not an error; nor is a reader that has gone away.
type Renderer interface {
	Event(workorder.Event)
	// Close leaves the terminal in its final state. It may be called twice.
	Close()
}

// Options describe the output's abilities. The zero value fits a file.
type Options struct {
	Color bool
	// Verbose makes Plain print every event; without it there are steps and failures.
	Verbose bool
	// Width and Height return the terminal's present size; nil or 0 if unknown.
	Width, Height func() int
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Tick is when a renderer looks at the time; if nil, it makes its own ticker.
	Tick <-chan time.Time
}

// Mode selects a renderer.
type Mode int

// The renderers.
const (
	Plain Mode = iota // lines
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

// UseColor applies the NO_COLOR convention, and excludes terminals without colours.
func UseColor(isTerminal bool, getenv func(string) string) bool {
	return isTerminal && getenv("NO_COLOR") == "" && getenv("TERM") != "dumb"
}

// every calls do at each tick until end is called, which waits for it. d is the time between ticks of a ticker of our own.
func (o Options) every(d time.Duration, do func()) (end func()) {
	tick, stop := o.Tick, func() {}
	if tick == nil {
		t := time.NewTicker(d)
		tick, stop = t.C, t.Stop
	}
	over := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		defer stop()
		for {
			select {
			case <-over:
				return
			case <-tick:
				do()
			}
		}
	})
	return sync.OnceFunc(func() { close(over); running.Wait() })
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

type jsonRenderer struct{ w io.Writer }

func newJSON(w io.Writer) Renderer { return &jsonRenderer{w: w} }

func (r *jsonRenderer) Event(e workorder.Event) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(&e); err != nil {
		// Only a number that JSON does not have can cause this; the rest of the event is kept.
		e.Usage, e.Result = nil, nil
		b.Reset()
		if enc.Encode(&e) != nil {
			return
		}
	}
	_, _ = r.w.Write(text.EscapeControls(b.Bytes())) // a reader that has gone away is not an error
}

func (r *jsonRenderer) Close() {}
