//go:build e2e

package e2e

import (
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

// Blows that the agent of a round deals to its own box. It first acknowledges the command.
const (
	// forkBomb takes every process that the agent may have and waits for more, until the run's time is over.
	forkBomb = "touch /tmp/blown; exec python3 -c 'import os, time\nwhile True:\n  try: os.fork()\n  except OSError: time.sleep(2)\n'\n"
	// memoryBomb takes more than there is.
	memoryBomb = "touch /tmp/blown; exec python3 -c 'b = bytearray(8 << 30)\nfor i in range(0, len(b), 4096): b[i] = 1'\n"
	// largeCommit is one that no stop has the time to push, once, and not between a checkout and its merge.
	largeCommit = `[ -e big ] || [ "$(git branch --show-current)" = side ] || {
	head -c 80000000 /dev/urandom >big && git add big && git commit -q -m big && record big && touch /tmp/blown || exit 3
}
`
)

// told has the agent do something, and then strikes.
func told(script string, then func(*testing.T, *chaosUser, *started, *rand.Rand) bool) func(*testing.T, *chaosUser, *started, *rand.Rand) bool {
	return func(t *testing.T, u *chaosUser, s *started, rng *rand.Rand) bool {
		t.Helper()
		box := u.box(t.Context())
		// By commands: what is mounted in the box, as /tmp is, the engine's copies do not see.
		inBox := func(stdin string, argv ...string) error {
			return proc.Run(t.Context(), proc.Spec{Argv: append([]string{"docker", "exec", "-i", box}, argv...), Stdin: strings.NewReader(stdin)})
		}
		if box == "" || inBox(script, "sh", "-c", "cat >/tmp/blow") != nil {
			return false
		}
		for {
			if inBox("", "test", "-e", "/tmp/blown") == nil {
				return then == nil || then(t, u, s, rng)
			}
			select {
			case <-s.Done():
				return false // it was done before it looked
			case <-time.After(50 * time.Millisecond):
			}
		}
	}
}

// stopInRescue kills boot while the remote hangs, and stops the box in the middle of rescue.
func stopInRescue(t *testing.T, u *chaosUser, s *started, rng *rand.Rand) bool {
	t.Helper()
	u.remote.Hold.Store(true)
	defer u.remote.Hold.Store(false)
	if !killInBox("entrypoint\x00boot\x00")(t, u, s, rng) {
		return false
	}
	wait(s, time.Duration(rng.IntN(1000))*time.Millisecond)
	stopBox(t, u, s, rng) // which may be over by then
	return true
}

// endByTimeout is GNU timeout whose time is over: it signals the command, and then the group of both.
func endByTimeout(t *testing.T, _ *chaosUser, s *started, _ *rand.Rand) bool {
	t.Helper()
	return syscall.Kill(s.PID(), syscall.SIGTERM) == nil
}
