package collect

import (
	"context"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbox-agent/sandbox-agent/internal/host/statedir"
	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
)

// companionPoll is how often the companion's end is looked for.
const companionPoll = 20 * time.Millisecond

// EndCompanion waits until the companion sees that the box is gone, and ends it if it
// does not leave by itself.
func (c *Collector) EndCompanion(ctx context.Context, rec *store.Record, hadBox bool) {
	p := rec.Companion
	if p == nil {
		return
	}
	if !hadBox || !waitGone(ctx, p, companionExit) {
		// It may have ended long ago and its id may be reused: then it is gone, as wanted.
		_ = p.Signal(unix.SIGTERM)
		if !waitGone(ctx, p, companionExit) {
			_ = p.Signal(unix.SIGKILL)
		}
	}
	rec.Companion = nil
}

func waitGone(ctx context.Context, p *statedir.Process, most time.Duration) bool {
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
