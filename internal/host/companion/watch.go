package companion

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const (
	// appearTimeout is how long a box may take to be created once its companion runs: the
	// CLI starts it right after, so a longer wait means that the CLI died.
	appearTimeout = 3 * time.Minute
	// orphanTimeout is appearTimeout if the CLI is known to be dead: the engine may still
	// carry out its last request.
	orphanTimeout = 3 * time.Second
	// engineGone is how long the companion keeps serving without an engine: longer than the
	// CLI waits, so that a restart of the engine costs no push.
	engineGone = 2 * time.Minute
	pollPause  = 200 * time.Millisecond
)

type watcher struct {
	boxes   runtime.Follower
	carrier Carrier
	cfg     Config
	log     *slog.Logger
	last    int64
	at      time.Time
	jobs    sync.WaitGroup
}

// run returns when the box has ended or never came, or when the engine stayed away.
func (w *watcher) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer w.jobs.Wait()
	defer cancel()
	begun, down, orphan := time.Now(), time.Time{}, time.Time{}
	seen := false
	for {
		box, err := runtime.Find(ctx, w.boxes, w.cfg.TaskID)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			if down.IsZero() {
				down = time.Now()
				w.log.Warn("engine does not answer", "error", err)
			}
			if time.Since(down) > engineGone {
				return fmt.Errorf("the engine has not answered for %s: %w", engineGone, err)
			}
		case box == nil && seen:
			return nil
		case box == nil || box.State == "created":
			down = time.Time{}
			if time.Since(begun) > appearTimeout {
				return fmt.Errorf("no sandbox has started for %s", appearTimeout)
			}
			if orphan.IsZero() && w.cfg.Parent != 0 && os.Getppid() != w.cfg.Parent {
				orphan = time.Now()
			}
			if !orphan.IsZero() && time.Since(orphan) > orphanTimeout {
				return errors.New("the command that was to start the sandbox has died")
			}
		case !box.Live():
			return nil
		default:
			seen, down = true, time.Time{}
			if err := w.follow(ctx, box.ID); err != nil && ctx.Err() == nil {
				w.log.Warn("follow the sandbox", "error", err)
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(pollPause):
		}
	}
}

// follow reads the box's events until its stream ends with the box.
func (w *watcher) follow(ctx context.Context, id string) error {
	lines := text.WholeLines(lineLimit, func(b []byte) {
		if len(w.cfg.Images) == 0 || !bytes.Contains(b, []byte(workorder.EventImageRequest)) {
			return
		}
		e, err := workorder.DecodeEvent(b)
		if err != nil || e.Type != workorder.EventImageRequest || e.Seq <= w.last {
			return
		}
		w.last, w.at = e.Seq, e.Time
		w.jobs.Go(func() { w.carrier.Answer(ctx, id, e) })
	})
	return runtime.Follow(ctx, w.boxes, w.cfg.TaskID, runtime.LogOptions{Since: w.at, Stdout: lines})
}

// lineLimit bounds a line that is parsed, in bytes: a request has a few hundred.
const lineLimit = 64 << 10
