package boot

import (
	"context"
	"time"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// AfterLanding is the most that everything takes which follows a landing: what the branch changes is read, the evidence, the answers, the
// pull request and its comment go to the forge, the result is brought to the remote, and the lease is given back. PID 1 and the host take a run for stuck that takes longer.
const AfterLanding = surveyTime + evidenceTime + answersTime + answerTime + forgeTime + forgeTime + resultTime + releaseTime + workorder.EngineGrace

// A run whose work has landed keeps its status, whatever follows. The first stop signal ends what follows at once: PID 1 kills
// a boot that is not done soon after it, and a run that landed must not become a lost one for a forge that hangs. The time limit
// of the run does not end it: it is the agent's, and must not cost the pull request.

// answersHurry is for reading the answers when the run was told to stop: part of what PID 1 leaves for the result.
const answersHurry = workorder.BootReserve / 2

// afterLanding is the context of what follows the landing, which the first stop signal ends.
func (b *Box) afterLanding(ctx context.Context) (context.Context, context.CancelCauseFunc) {
	return context.WithCancelCause(context.WithoutCancel(ctx))
}

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

// toldToStop is why a step after the landing was not done, with how to do it later.
func toldToStop(later string) string { return "the run was told to stop" + later }
