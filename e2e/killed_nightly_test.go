//go:build e2e && nightly

package e2e

import (
	"testing"
	"time"
)

// The CLI is killed in the course of a start at fixed times, whatever is there by then.
func TestCLIKilledAtAnyTime(t *testing.T) {
	t.Parallel()
	for i := range 16 {
		after := time.Duration(i) * 60 * time.Millisecond
		t.Run(after.String(), func(t *testing.T) {
			t.Parallel()
			killed(t, func(*user) func() bool {
				begun := time.Now()
				return func() bool { return time.Since(begun) >= after }
			})
		})
	}
}
