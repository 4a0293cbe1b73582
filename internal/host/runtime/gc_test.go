package runtime

import (
	"testing"
	"time"
)

func TestLeftover(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for state, c := range map[string]struct {
		age  time.Duration
		want bool
	}{"running": {time.Hour, false}, "exited": {0, true}, "created": {NeverStarted, true}} {
		if got := (Instance{State: state, Created: now.Add(-c.age)}).Leftover(now); got != c.want {
			t.Errorf("%s: %v", state, got)
		}
	}
	if (Instance{State: "created", Created: now}).Leftover(now) {
		t.Error("a box that is just being started is removed")
	}
}
