package runner

import (
	"fmt"
	"sync"
	"time"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Bounds of the events of one source: the burst covers ordinary programs, the total keeps a day-long record small.
const (
	eventRate  = 50       // events per second
	eventBurst = 400      // events
	eventTotal = 32 << 20 // bytes of text
)

// rateLimiter limits the events of one source. It is safe for concurrent use.
type rateLimiter struct {
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

func newRateLimiter(emit func(workorder.Event), log string, note func(string) workorder.Event) *rateLimiter {
	return &rateLimiter{emit: emit, log: log, note: note, now: time.Now, tokens: eventBurst, left: eventTotal, last: time.Now()}
}

// allow reports whether an event with size bytes of text may be sent. After a drop it waits for a second's worth of
// tokens, so that not every line of a flood comes with a note about dropped lines.
func (l *rateLimiter) allow(size int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	l.tokens = min(eventBurst, l.tokens+eventRate*now.Sub(l.last).Seconds())
	l.last = now
	need := 1.0
	if l.dropped > 0 {
		need = eventRate
	}
	size = min(size, workorder.MaxEventText)
	if l.tokens < need || l.left < int64(size) {
		l.dropped++
		return false
	}
	l.tokens--
	l.left -= int64(size)
	l.sendNote()
	return true
}

// close reports the events that were left out at the end.
func (l *rateLimiter) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sendNote()
}

func (l *rateLimiter) sendNote() {
	if l.dropped > 0 {
		l.emit(l.note(fmt.Sprintf("[%d more not shown here, see %s]", l.dropped, l.log)))
		l.dropped = 0
	}
}
