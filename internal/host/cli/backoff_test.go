package cli

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

func TestBackOff(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		ended time.Time
		times int
		want  time.Duration // from now
	}{
		"just now":                {now, 1, parkFirst},
		"a while ago":             {now.Add(-3 * time.Minute), 1, 2 * time.Minute},
		"long ago":                {now.Add(-24 * time.Hour), 1, parkLeast},
		"again":                   {now, 2, 2 * parkFirst},
		"and again":               {now, 3, 4 * parkFirst},
		"bounded":                 {now, 1000, parkMost},
		"nobody knows when":       {time.Time{}, 1, parkFirst},
		"by a clock that is fast": {now.Add(time.Hour), 1, parkFirst},
	} {
		if got := backOff(c.ended, c.times, now); !got.Equal(now.Add(c.want)) {
			t.Errorf("%s: %v, want %v", name, got.Sub(now), c.want)
		}
	}
}

// TestParkedForNobodyKnowsHowLong: to wait for it is to wait, and who does not want to says so.
func TestParkedForNobodyKnowsHowLong(t *testing.T) {
	t.Parallel()
	r := newRig(t, ends(workorder.StatusParked, workorder.ByLimit), ends(workorder.StatusSuccess, workorder.ByAgent))
	r.want(workorder.ExitParked, "parked", create()...)
	r.boxes(1)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	said, code := waits(ctx, leave, r, "continue", tid, "--wait")
	if code != exitLeft || !strings.Contains(said, "waiting") {
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
