package tasks

import (
	"testing"
	"time"
)

func TestBackOff(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		ended time.Time
		times int
		want  time.Duration // from now
	}{
		"just now":                {now, 1, limitFirst},
		"a while ago":             {now.Add(-3 * time.Minute), 1, 2 * time.Minute},
		"long ago":                {now.Add(-24 * time.Hour), 1, limitLeast},
		"again":                   {now, 2, 2 * limitFirst},
		"and again":               {now, 3, 4 * limitFirst},
		"bounded":                 {now, 1000, limitMost},
		"nobody knows when":       {time.Time{}, 1, limitFirst},
		"by a clock that is fast": {now.Add(time.Hour), 1, limitFirst},
	} {
		if got := backOff(c.ended, c.times, now); !got.Equal(now.Add(c.want)) {
			t.Errorf("%s: %v, want %v", name, got.Sub(now), c.want)
		}
	}
}
