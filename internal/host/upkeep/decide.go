// Package upkeep removes what dead commands left on an engine and in the state folder. forTask, Stray and oldTags decide, and have no
// input or output; Sweep carries out their decisions.
package upkeep

import (
	"slices"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/provision"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// neverStarted is the age at which a box that was created and not started has surely lost its CLI.
const neverStarted = 5 * time.Minute

// Do is a kind of action, as reports name it.
type Do string

// The actions.
const (
	Collect      Do = "collect"       // the result of a box, and remove the box
	Mend         Do = "mend"          // the record of a task whose output a dead command was moving
	RemoveBox    Do = "remove box"    // one that has ended and is not kept
	EndCompanion Do = "end companion" // that of a task that is over
	RemoveVolume Do = "remove volume"
	RemoveImage  Do = "remove image"
)

// Todo is one action for a task.
type Todo struct {
	Do  Do
	Box runtime.Box // for RemoveBox
}

// Task is the state of a task, read while its lock is held.
type Task struct {
	Record    *store.Record
	Boxes     []runtime.Box // of its attempts
	Engine    string        // the identity of the boxes' engine
	Companion bool          // its companion lives
}

// idle reports whether a task needs nothing or is running: then its lock is not taken.
func (t Task) idle() bool {
	r := t.Record
	return r.Collected && len(t.Boxes) == 0 && r.Moving == 0 && !t.Companion || slices.ContainsFunc(t.Boxes, runtime.Box.Live)
}

// forTask decides what to do for a task without a follower: collect it, and remove the boxes that are not kept.
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
		// The box that is collected is removed by its collection, or stays.
		if i >= 0 && !attempts[i].Keep && (r.Collected || !last(b)) {
			todo = append(todo, Todo{RemoveBox, b})
		}
	}
	if t.Companion {
		todo = append(todo, Todo{Do: EndCompanion}) // done only if the task is collected by then
	}
	return todo
}

// Stray reports whether a box without a record is to be removed: it has ended, or its command died before it was started.
func Stray(b runtime.Box, now time.Time) bool {
	return !b.Live() && (b.State != "created" || now.Sub(b.Created) >= neverStarted)
}

// oldTags are the tags of images that other versions built, and of prepared ones that no run uses any more. Images that a user made from ours inherit the labels: only their tags differ.
func oldTags(images []provision.BuiltImage) (tags []string) {
	for _, i := range images {
		if i.Used {
			continue
		}
		switch {
		case i.Own && !i.Current:
			tags = append(tags, i.Tags...)
		case i.Old && len(i.Tags) > 0:
			tags = append(tags, i.Tags...)
		case i.Old: // another image has its tag
			tags = append(tags, i.ID)
		}
	}
	return tags
}
