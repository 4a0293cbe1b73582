package git

import (
	"context"
	"fmt"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

const (
	// silence is how long a remote may say nothing, and take nothing, before it is dead or as good as that. A git server that
	// is busy says so every 5 s (receive.keepAlive, uploadpack.keepAlive), be it with five bytes.
	silence = 20 * time.Second
	// packing is the same for one that we fetch from: others than git's own need not say that they pack.
	packing = time.Minute
	// blind takes its place where no connection is to be seen: this machine does not let us, or git has none of its own.
	blind = 3 * time.Minute
	// looks is how often one looks within that time.
	looks = 20
	// awake is the CPU time, and moved are the bytes read and written, which distinguish git's own work from what it does
	// while it waits, which is to look at its sockets some 20 times a second.
	awake = 100 * time.Millisecond
	moved = 64 << 10
)

// patience is how long the remote may be silent for a command; 0 means it speaks to none.
func (r Repo) patience(verb string) time.Duration {
	switch verb {
	case "fetch", "clone", "push", "ls-remote":
		if r.quiet > 0 {
			return r.quiet
		}
	}
	switch verb {
	case "fetch", "clone":
		return packing
	case "push", "ls-remote":
		return silence
	}
	return 0
}

// activity is what a git process and its children have done so far.
type activity struct {
	wire int64 // bytes that went over its connections, both ways and acknowledged
	cpu  time.Duration
	disk int64
	seen bool // there are connections, and wire is known
}

// progress reports whether there was any since.
func (a activity) progress(since activity) bool {
	return a.wire != since.wire || a.cpu-since.cpu >= awake || a.disk-since.disk >= moved
}

// attended has spec's process watched: it is ended when neither its connections nor its own work move. http.lowSpeedLimit cannot
// do that: what a busy server says is less than any speed, and what git does with what it got is none.
func attended(ctx context.Context, spec *proc.Spec, most time.Duration) (context.Context, context.CancelFunc) {
	if most == 0 || !canSee() {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	spec.Started = func(p *proc.Process) { go watch(p, most, cancel) }
	return ctx, func() { cancel(nil) }
}

func watch(p *proc.Process, most time.Duration, cancel context.CancelCauseFunc) {
	t := time.NewTicker(most / looks)
	defer t.Stop()
	last, at := activity{}, time.Now()
	for {
		select {
		case <-p.Done():
			return
		case <-t.C:
		}
		now := look(p.PID())
		bound := most
		if !now.seen {
			bound = blind
		}
		if quiet := time.Since(at); now.progress(last) {
			last, at = now, time.Now()
		} else if quiet >= bound {
			cancel(fmt.Errorf("%s for %s", stalled, quiet.Round(time.Second)))
			return
		}
	}
}

// stalled begins the reason.
const stalled = "the remote said nothing and took nothing"
