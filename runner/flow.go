package runner

import (
	"fmt"
	"sync"
	"time"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// These bound what one source may put into the record. A reader follows some ten lines a
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
