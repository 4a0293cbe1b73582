package boot

import (
	"context"
	"time"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// AfterLanding bounds all steps after the push, and the end of the inner engine, in time. unbound is a step without a
// limit; empty if each has one.
func (r *Runner) AfterLanding() (most time.Duration, unbound workorder.StepName) {
	most, unbound = r.list().Longest(workorder.StepPush)
	return most + workorder.EngineGrace, unbound
}

// answersHurry bounds reading the answers in a run that is being stopped; it is part of the time that PID 1 reserves for the result.
const answersHurry = workorder.BootReserve / 2

// lingering returns a context that lasts at most limit, and at most hurry after ctx ends.
func lingering(ctx context.Context, limit, hurry time.Duration) (context.Context, context.CancelFunc) {
	long, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	stop := context.AfterFunc(ctx, func() {
		t := time.NewTimer(hurry)
		defer t.Stop()
		select {
		case <-t.C:
			cancel()
		case <-long.Done():
		}
	})
	return long, func() { stop(); cancel() }
}
