package runner

import (
	"fmt"
	"sync"
	"time"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Bounds of the events of one source. A reader follows some ten lines a second. The burst covers ordinary
// programs, and the total keeps the record of a day-long run small enough for a host to store. The log has
// all of it.
const (
	flowRate  = 50       // events per second
	flowBurst = 400      // events
	flowTotal = 32 << 20 // bytes of text
)

// flow limits the events of one source. It is safe for concurrent use.
type flow struct {
	emit func(workorder.Event)
	// note creates the event that reports how many were left out.
	note func(text string) workorder.Event
	log  string // path of the complete log
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

// allow reports whether an event with size bytes of text may be sent. After a drop it resumes only when a
// second's worth of tokens has gathered: otherwise every line of a flood would come with a note about dropped
// lines.
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

// close reports the events that were left out at the end.
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
