// Package boxes counts the containers that tests start, by the engine's own account: a test that starts more of them
// than it needs is seen in the table that a run of the tests ends with (scripts/slow).
package boxes

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/docker/docker/api/types/events"
	"github.com/docker/docker/api/types/filters"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Line is how Print tells of a test; scripts/slow reads it.
const Line = "boxes: %s %d\n"

// again is the pause before an engine that does not answer is asked again: tests stop and kill some.
const again = 200 * time.Millisecond

// Engine tells what happens to its containers.
type Engine interface {
	Events(ctx context.Context, o events.ListOptions) (<-chan events.Message, <-chan error)
}

// Count is how many containers each test has started.
type Count struct {
	mu     sync.Mutex
	tests  map[string]string // by the state directory of a test's user
	begun  map[string]bool   // containers, so that one that starts again is counted once
	number map[string]int    // by test
}

// New counts from nothing.
func New() *Count {
	return &Count{tests: map[string]string{}, begun: map[string]bool{}, number: map[string]int{}}
}

// Of says that the boxes of a state directory are those of a test.
func (c *Count) Of(state, test string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tests[state] = test
	c.number[test] += 0 // reports a test that could start one
}

// Started counts a container that a test starts by itself.
func (c *Count) Started(test, id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.begun[id] {
		c.begun[id] = true
		c.number[test]++
	}
}

// Follow counts the boxes that the program starts on an engine, until done is called.
func (c *Count) Follow(ctx context.Context, e Engine) (done func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	began := time.Now()
	go func() {
		defer close(ended)
		for since := began; ctx.Err() == nil; {
			since, _ = c.listen(ctx, e, since) // tests end engines on purpose, and start them again
			select {
			case <-ctx.Done():
			case <-time.After(again):
			}
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}

// listen counts until the engine ends the talk, and returns the time of the last event and why it ended.
func (c *Count) listen(ctx context.Context, e Engine, since time.Time) (time.Time, error) {
	list, failed := e.Events(ctx, events.ListOptions{
		Since: fmt.Sprintf("%d.%09d", since.Unix(), since.Nanosecond()),
		Filters: filters.NewArgs(filters.Arg("type", string(events.ContainerEventType)), filters.Arg("event", string(events.ActionStart)),
			filters.Arg("label", workorder.LabelOwner)),
	})
	for {
		select {
		case m := <-list:
			since = time.Unix(0, m.TimeNano)
			if test := c.test(m.Actor.Attributes[workorder.LabelOwner]); test != "" {
				c.Started(test, m.Actor.ID)
			}
		case err := <-failed:
			return since, err
		}
	}
}

// test returns the test that has the label; boxes of unknown tests were started by another run.
func (c *Count) test(owner string) string {
	_, state, _ := strings.Cut(owner, ":")
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.tests[state]
}

// Print tells of every test that could start boxes.
func (c *Count) Print(w io.Writer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, test := range slices.Sorted(maps.Keys(c.number)) {
		fmt.Fprintf(w, Line, test, c.number[test])
	}
}
