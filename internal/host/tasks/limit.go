package tasks

import "time"

const (
	// limitFirst is the first wait for a limit of which nobody knows the end: longer than a throttle, shorter than the shortest
	// window that providers count in, which are hours. Each attempt that ends at it doubles the wait, up to limitMost.
	limitFirst = 5 * time.Minute
	limitMost  = time.Hour
	// limitLeast is waited for an attempt that ended long ago, too: --wait was asked for because there is a limit.
	limitLeast = time.Minute
)

// backOff is when a task goes on that was parked without a known time, so many times in a row.
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
