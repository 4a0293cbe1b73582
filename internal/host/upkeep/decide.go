// Package upkeep removes what commands that died left on an engine and in the state folder. forTask, Stray and oldTags decide, and have no
// input or output; Sweep carries out what they say.
package upkeep

import (
	"slices"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/provision"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// neverStarted is the age at which a box that was created and not started has
// certainly lost its CLI.
const neverStarted = 5 * time.Minute

// Do is a kind of action, as reports name it.
type Do string

// The actions.
const (
	Collect      Do = "collect"       // the result of a box, which goes with it
	Mend         Do = "mend"          // the record of a task whose output a dead command was moving
	RemoveBox    Do = "remove box"    // which has ended, and nobody wants to keep
	EndCompanion Do = "end companion" // of a task that is over
	RemoveVolume Do = "remove volume"
	RemoveImage  Do = "remove image"
)

// Todo is one thing to do about a task.
type Todo struct {
	Do  Do
	Box runtime.Box // of RemoveBox
}

// Task is what is known of a task whose lock is held.
type Task struct {
	Record    *store.Record
	Boxes     []runtime.Box // of its attempts
	Engine    string        // the identity of the engine that they are on
	Companion bool          // its companion lives
}

// idle tells whether there is nothing to do about a task, or it is at work: then its lock need not be asked for.
func (t Task) idle() bool {
	r := t.Record
	return r.Collected && len(t.Boxes) == 0 && r.Moving == 0 && !t.Companion || slices.ContainsFunc(t.Boxes, runtime.Box.Live)
}

// forTask says what to do about a task that nobody follows: collect it, and remove the boxes that nobody wants to keep.
func forTask(t Task) (todo []Todo) {
	r := t.Record
	last := func(b runtime.Box) bool { return b.Labels[workorder.LabelAttempt] == r.AttemptID }
	switch {
	case t.idle():
		return nil
	case !r.Collected && r.Elsewhere(t.Engine) && !slices.ContainsFunc(t.Boxes, last):
		return nil
	case !r.Collected:
		todo = append(todo, Todo{Do: Collect})
	case r.Moving != 0:
		todo = append(todo, Todo{Do: Mend})
	}
	attempts := r.Attempts()
	for _, b := range t.Boxes {
		i := slices.IndexFunc(attempts, func(a store.Attempt) bool { return a.ID == b.Labels[workorder.LabelAttempt] })
		// The box that is collected goes with its collection, or not at all.
		if i >= 0 && !attempts[i].Keep && (r.Collected || !last(b)) {
			todo = append(todo, Todo{RemoveBox, b})
		}
	}
	if t.Companion {
		todo = append(todo, Todo{Do: EndCompanion}) // if the task is collected by then
	}
	return todo
}

// Stray tells whether a box that no record knows is to be removed: it has ended, or its command died before it was started.
func Stray(b runtime.Box, now time.Time) bool {
	return !b.Live() && (b.State != "created" || now.Sub(b.Created) >= neverStarted)
}

// oldTags are the tags of images that other versions built. Labels are inherited: of an image that somebody made of ours only
// the tags tell that it is not ours.
func oldTags(images []provision.BuiltImage) (tags []string) {
	for _, i := range images {
		if i.Own && !i.Current && !i.Used {
			tags = append(tags, i.Tags...)
		}
	}
	return tags
}
