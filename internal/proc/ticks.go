package proc

import (
	"iter"
	"time"
)

// Ticks yields the time at each interval until done is closed. It is for one goroutine.
func Ticks(done <-chan struct{}, interval time.Duration) iter.Seq[time.Time] {
	return func(yield func(time.Time) bool) {
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case now := <-tick.C:
				if !yield(now) {
					return
				}
			}
		}
	}
}
