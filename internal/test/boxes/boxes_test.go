package boxes

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/events"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// talks is an engine that ends each talk after some events, as one does that is restarted.
type talks struct {
	list  [][]events.Message
	asked chan string // since when
}

func (e *talks) Events(_ context.Context, o events.ListOptions) (<-chan events.Message, <-chan error) {
	out, failed := make(chan events.Message), make(chan error, 1)
	var now []events.Message
	if len(e.list) > 0 {
		now, e.list = e.list[0], e.list[1:]
	}
	go func() {
		for _, m := range now {
			out <- m
		}
		e.asked <- o.Since
		failed <- errors.New("the engine is gone")
	}()
	return out, failed
}

func TestCount(t *testing.T) {
	t.Parallel()
	start := func(id, owner string) events.Message {
		return events.Message{
			TimeNano: int64(time.Minute),
			Actor:    events.Actor{ID: id, Attributes: map[string]string{workorder.LabelOwner: owner}},
		}
	}
	e := &talks{asked: make(chan string, 100), list: [][]events.Message{
		{start("1", "x:/state/a"), start("2", "y:/state/b"), start("3", "y:/state/of/others")},
		{start("2", "y:/state/b"), start("4", "x:/state/a")}, // one is told of again
	}}
	c := New()
	c.Of("/state/a", "TestA/one")
	c.Of("/state/b", "TestB")
	c.Of("/state/c", "TestC")
	done := c.Follow(t.Context(), e)
	for range 2 {
		<-e.asked
	}
	if since := <-e.asked; since != "60.000000000" {
		t.Errorf("asked again since %s, want the time of the last event", since)
	}
	done()
	c.Started("TestD", "5")
	var out strings.Builder
	if c.Print(&out); out.String() != "boxes: TestA/one 2\nboxes: TestB 1\nboxes: TestC 0\nboxes: TestD 1\n" {
		t.Errorf("printed %q", out.String())
	}
}
