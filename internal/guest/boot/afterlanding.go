package boot

import (
	"context"
	"time"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// AfterLanding is the most that everything takes which follows a landing: what the branch changes is read, the evidence, the answers, the
// pull request and its comment go to the forge, the result is brought to the remote, and the lease is given back. PID 1 and the host take a run for stuck that takes longer.
const AfterLanding = surfaceBudget + evidenceBudget + answersTime + answerTime + forgeBudget + forgeBudget + resultTime + releaseTime + workorder.EngineGrace

// answersHurry is for reading the answers when the run was told to stop: part of what PID 1 leaves for the result.
const answersHurry = workorder.BootReserve / 2

// lingering is a context of at most limit, of which hurry is left when ctx ends.
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
