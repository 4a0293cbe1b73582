package runner

import (
	"bytes"
	"fmt"
	"sync"
	"time"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// maxLine bounds what is kept of one line, in bytes. Agents print whole files
// and pictures as one JSON line; the events that matter (a result with its denied tool
// calls) stay well below, and the rest of a longer line is in the log only.
const maxLine = 4 << 20

// keptLine is the buffer that is kept from line to line, in bytes; a larger one,
// grown for one long line, is given back.
const keptLine = 64 << 10

// lineWriter cuts a stream into lines, without their ends, and never fails. A
// line is passed on in one piece; what exceeds maxLine is counted, not kept.
type lineWriter struct {
	line func(line []byte, lost int64)
	buf  []byte
	lost int64
}

func (w *lineWriter) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		i := bytes.IndexByte(p, '\n')
		switch {
		case i < 0:
			w.keep(p)
			return n, nil
		case len(w.buf) == 0 && i <= maxLine:
			w.line(trimCR(p[:i]), 0) // the whole line lies in p: no copy
		default:
			w.keep(p[:i])
			w.flush()
		}
		p = p[i+1:]
	}
	return n, nil
}

func (w *lineWriter) keep(p []byte) {
	room := min(maxLine-len(w.buf), len(p))
	w.buf = append(w.buf, p[:room]...)
	w.lost += int64(len(p) - room)
}

func (w *lineWriter) flush() {
	w.line(trimCR(w.buf), w.lost)
	w.buf, w.lost = w.buf[:0], 0
	if cap(w.buf) > keptLine {
		w.buf = nil
	}
}

// Close passes on a last line without an end.
func (w *lineWriter) Close() {
	if len(w.buf) > 0 {
		w.flush()
	}
}

func trimCR(b []byte) []byte { return bytes.TrimSuffix(b, []byte{'\r'}) }

// What one source may put into the record. A reader follows some ten lines a
// second; the burst lets ordinary programs through whole, and the total keeps
// the record of a day-long run within what a host stores without thinking. All is in the log.
const (
	flowRate  = 50       // events per second
	flowBurst = 400      // events
	flowTotal = 32 << 20 // bytes of text
)

// flow bounds the events of one source. It is safe for concurrent use.
type flow struct {
	emit func(workorder.Event)
	// note makes the event that says how many were left out.
	note func(text string) workorder.Event
	log  string // where all of it is
	now  func() time.Time

	mu      sync.Mutex
	tokens  float64
	left    int64
	last    time.Time
	dropped int64
}

func newFlow(emit func(workorder.Event), log string, note func(string) workorder.Event) *flow {
	return &flow{emit: emit, log: log, note: note, now: time.Now, tokens: flowBurst, left: flowTotal, last: time.Now()}
}

// allow reports whether an event with so many bytes of text may be sent. Once
// something was dropped it goes on only when a second's worth has gathered: else every
// line of a flood would come with a note about its neighbours.
func (f *flow) allow(size int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.now()
	f.tokens = min(flowBurst, f.tokens+flowRate*now.Sub(f.last).Seconds())
	f.last = now
	need := 1.0
	if f.dropped > 0 {
		need = flowRate
	}
	size = min(size, workorder.MaxEventText)
	if f.tokens < need || f.left < int64(size) {
		f.dropped++
		return false
	}
	f.tokens--
	f.left -= int64(size)
	f.sendNote()
	return true
}

// close says what was left out at the end.
func (f *flow) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sendNote()
}

func (f *flow) sendNote() {
	if f.dropped > 0 {
		f.emit(f.note(fmt.Sprintf("[%d more not shown here, see %s]", f.dropped, f.log)))
		f.dropped = 0
	}
}
