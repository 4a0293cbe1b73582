package cli

import (
	"context"
	"io"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// TestParkedForNobodyKnowsHowLong: to wait for it is to wait, and who does not want to says so.
func TestParkedForNobodyKnowsHowLong(t *testing.T) {
	t.Parallel()
	r := newRig(t, ends(workorder.StatusParked, workorder.EndedByLimit), ends(workorder.StatusSuccess, workorder.EndedByAgent))
	r.want(workorder.ExitParked, "parked", create()...)
	r.boxes(1)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	said, code := waits(ctx, leave, r, "continue", tid, "--wait")
	if code != app.ExitLeft || !strings.Contains(said, "waiting") {
		t.Errorf("exit %d: %s", code, said)
	}
	r.boxes(1)
	r.want(0, "success", "continue", tid)
	r.boxes(2)
}

// waits runs a command line and leaves it when it says that it waits, or that a box works.
func waits(ctx context.Context, leave context.CancelFunc, r *rig, args ...string) (said string, code int) {
	pr, pw := io.Pipe()
	done := make(chan int, 1)
	go func() {
		done <- r.runTo(ctx, io.Discard, pw, args...)
		pw.Close()
	}()
	var all strings.Builder
	buf := make([]byte, 4096)
	for {
		n, err := pr.Read(buf)
		all.Write(buf[:n])
		if strings.Contains(all.String(), "waiting") {
			leave()
		}
		if err != nil {
			return all.String(), <-done
		}
	}
}
