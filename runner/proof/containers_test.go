package proof_test

import (
	"context"
	"errors"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// beside are containers that checks start, and that stand beside others when they are not removed.
type beside struct {
	there   int
	removed int
	err     error
}

func (b *beside) Extra(context.Context) (int, error) { return b.there, b.err }
func (b *beside) Remove(context.Context) error {
	b.removed++
	b.there = 0
	return b.err
}

func TestContainersDoNotStandBesideTheChecks(t *testing.T) {
	t.Parallel()
	b := newBox(t, map[string]string{"f": "1\n"})
	b.Order.Validate = []workorder.Check{{Name: "test", Run: "grep 2 f"}}
	head := b.commit(map[string]string{"f": "2\n"})
	c := &beside{there: 1}
	b.Containers = c
	p := b.prove(t.Context(), head)
	// Before the first side, after base, after head, after each repeat.
	if c.removed < 3 || c.there != 0 || len(p.Reasons) != 0 || p.Checks[0].Transition != workorder.TransitionFixed {
		t.Errorf("removed %d times, %+v", c.removed, p)
	}
	c = &beside{err: errors.New("the engine hangs")}
	b.Containers = c
	if p := b.prove(t.Context(), head); !p.Reasons.Has(workorder.ReasonRemains) {
		t.Errorf("reasons %q", p.Reasons)
	}
}
