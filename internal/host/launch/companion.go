package launch

import (
	"context"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
)

// companionPoll is how often the companion's end is looked for.
const companionPoll = 20 * time.Millisecond

// endCompanion waits for the companion to notice that the box is gone, and ends
// it when it does not. It leaves with the box by itself; this makes sure.
func (l *Launcher) endCompanion(ctx context.Context, rec *store.Record, hadBox bool) {
	p := rec.Companion
	if p == nil {
		return
	}
	if !hadBox || !waitGone(ctx, p, companionExit) {
		_ = unix.Kill(p.PID, unix.SIGTERM)
		if !waitGone(ctx, p, companionExit) && p.Alive() {
			_ = unix.Kill(p.PID, unix.SIGKILL)
		}
	}
	rec.Companion = nil
}

func waitGone(ctx context.Context, p *store.Process, most time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	t := time.NewTicker(companionPoll)
	defer t.Stop()
	for p.Alive() {
		select {
		case <-ctx.Done():
			return false
		case <-t.C:
		}
	}
	return true
}
