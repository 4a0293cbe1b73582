package git

import (
	"context"
	"fmt"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

const (
	// silence is how long a remote may be silent before it counts as dead. A busy git server sends a keep-alive every 5 s.
	silence = 20 * time.Second
	// packing is the same for a remote that we fetch from: some servers do not report that they pack.
	packing = time.Minute
	// blind replaces it if no connection can be observed.
	blind = 3 * time.Minute
	// looks is the number of looks within that time.
	looks = 20
	// awake is the CPU time, and moved the bytes, that distinguish git's work from polling some 20 times a second.
	awake = 100 * time.Millisecond
	moved = 64 << 10
)

// patience returns how long the remote may be silent for a command; 0 means the command uses no remote.
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

type activity struct {
	wire int64 // bytes that went over its connections, both ways and acknowledged
	cpu  time.Duration
	disk int64
	seen bool // there are connections, and wire is known
}

// progress reports whether there was activity since.
func (a activity) progress(since activity) bool {
	return a.wire != since.wire || a.cpu-since.cpu >= awake || a.disk-since.disk >= moved
}

// attended ends spec's process if neither its connections nor its own work move. http.lowSpeedLimit cannot: it takes a
// busy server's keep-alives for silence.
func attended(ctx context.Context, spec *proc.Spec, most time.Duration) (context.Context, context.CancelFunc) {
	if most == 0 || !canSee() {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	spec.Started = func(p *proc.Process) { go watch(p, most, cancel) }
	return ctx, func() { cancel(nil) }
}

func watch(p *proc.Process, most time.Duration, cancel context.CancelCauseFunc) {
	last, at := activity{}, time.Now()
	for range proc.Ticks(p.Done(), most/looks) {
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

const stalled = "the remote said nothing and took nothing"
