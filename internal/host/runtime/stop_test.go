package runtime_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
)

func TestStopper(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		looks  []look
		stops  int
		failed error
	}{
		"runs":               {looks: []look{{box: running}}, stops: 1},
		"gone":               {looks: []look{{}}},
		"being made":         {looks: []look{{err: runtime.ErrCreating}, {err: runtime.ErrCreating}, {box: running}}, stops: 1},
		"the engine is away": {looks: []look{{err: runtime.ErrUnavailable}, {box: running}}, stops: 1},
		"question fails":     {looks: []look{{err: errOther}}, failed: errOther},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				stops := 0
				var failed error
				s := &runtime.Stopper{
					Find:   looks(c.looks...),
					Stop:   func(context.Context, string, time.Duration) error { stops++; return nil },
					Failed: func(err error) { failed = err },
				}
				s.Request(t.Context(), time.Minute)
				s.Wait()
				if stops != c.stops || !errors.Is(failed, c.failed) {
					t.Errorf("%d stops, %v; want %d, %v", stops, failed, c.stops, c.failed)
				}
			})
		})
	}
}

// A second gentle stop waits for the first, a kill for none, and all of them end with their context.
func TestStopsTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var mu sync.Mutex
		var asked []time.Duration
		s := &runtime.Stopper{
			Find: looks(look{box: running}),
			Stop: func(ctx context.Context, _ string, grace time.Duration) error {
				mu.Lock()
				asked = append(asked, grace)
				mu.Unlock()
				<-ctx.Done()
				return ctx.Err()
			},
			Failed: func(err error) { t.Errorf("a stop that was given up is reported: %v", err) },
		}
		expect := func(want ...time.Duration) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(asked, want) {
				t.Errorf("asked for %v, want %v", asked, want)
			}
		}
		s.Request(ctx, time.Minute)
		expect(time.Minute)
		s.Request(ctx, time.Hour)
		expect(time.Minute)
		s.Request(ctx, 0)
		expect(time.Minute, 0)
		cancel()
		s.Wait()
	})
}
