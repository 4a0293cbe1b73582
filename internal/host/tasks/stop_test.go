package tasks

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/taskstore"
)

func TestNextStop(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		collected, held bool
		want            ActionKind
	}{
		{false, false, ActionEndBox},
		{false, true, ActionEndBox},
		{true, true, ActionAwaitLock},
		{true, false, ActionReport},
	} {
		if got := nextStop(c.collected, c.held); got != c.want {
			t.Errorf("collected %t, held %t: %s, want %s", c.collected, c.held, got, c.want)
		}
	}
}

// stopBoxes has a box from the third look on.
type stopBoxes struct {
	world
	looks int
	then  func() // when the box is told to end
}

func (b *stopBoxes) Stop(context.Context, *taskstore.Record, time.Duration) (bool, error) {
	if b.looks++; b.looks < 3 {
		return false, nil
	}
	if b.then != nil {
		b.then()
	}
	return true, nil
}

func TestStopping(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		held, late bool // another command has the task; until its box is told to end
		looks      int
		collects   int
	}{
		"nobody follows it":             {false, false, 1, 1},
		"its command is just beginning": {true, true, 3, 1},
		"its command stays":             {true, false, 3, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st := taskstore.New(t.TempDir())
			rec := &taskstore.Record{TaskID: id, AttemptID: "a1"}
			lock, err := st.Create(rec)
			if err != nil {
				t.Fatal(err)
			}
			b := &stopBoxes{world: world{t: t, st: st}}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			switch {
			case !c.held:
				lock.Unlock()
				b.looks = 2
			case c.late:
				b.then = lock.Unlock
			default:
				b.then = cancel // no deadline has to pass
				defer lock.Unlock()
			}
			before := b.looks
			got, err := (&Stopper{Store: st, Attempts: b}).Run(ctx, rec, time.Second)
			if b.looks-before != c.looks || len(b.did) != c.collects {
				t.Errorf("%d looks, %q", b.looks-before, b.did)
			}
			if c.collects == 0 {
				if !errors.Is(err, context.Canceled) {
					t.Errorf("what another command holds was stopped: %v", err)
				}
				return
			}
			if err != nil || !got.Collected || st.Locked(id) {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
}
