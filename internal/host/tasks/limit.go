package tasks

import "time"

const (
	// limitFirst is the first wait for a limit whose end is unknown: longer than a throttle, shorter than the shortest window
	// of providers, which is hours. Each attempt that ends at the limit doubles the wait, up to limitMost.
	limitFirst = 5 * time.Minute
	limitMost  = time.Hour
	// limitLeast is the shortest wait, also for an attempt that ended long ago: the user gave --wait because there is a limit.
	limitLeast = time.Minute
)

// backOff is when a task continues that was parked without a known time, the given number of times in a row.
func backOff(ended time.Time, times int, now time.Time) time.Time {
	wait := limitFirst
	for ; times > 1 && wait < limitMost; times-- {
		wait *= 2
	}
	at := ended.Add(min(wait, limitMost))
	if ended.IsZero() || ended.After(now) {
		at = now.Add(min(wait, limitMost))
	}
	if least := now.Add(limitLeast); at.Before(least) {
		return least
	}
	return at
}
