// Package gc removes what dead commands left on an engine and in the state directory. forTask, oldTags and
// runtime.Instance.Leftover decide without input or output; Collector.Run carries out their decisions.
package gc

import (
	"slices"

	"github.com/sandbox-agent/sandbox-agent/internal/host/provision"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/host/taskstore"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Planned is one action for a task.
type Planned struct {
	Kind runtime.GCKind
	Box  runtime.Instance // for runtime.GCRemoveBox
}

// Task is the state of a task, read under its lock.
type Task struct {
	Record    *taskstore.Record
	Boxes     []runtime.Instance // of all its attempts
	Engine    string             // the engine's identity
	Companion bool               // the companion is alive
}

// idle reports whether a task is running or needs nothing. Its lock is then not taken.
func (t Task) idle() bool {
	r := t.Record
	return r.Collected && len(t.Boxes) == 0 && r.Moving == 0 && !t.Companion || slices.ContainsFunc(t.Boxes, runtime.Instance.Running)
}

// forTask decides what to do for a task that no command follows: collect it, and remove boxes that are not kept.
func forTask(t Task) (todo []Planned) {
	r := t.Record
	last := func(b runtime.Instance) bool { return b.Labels[workorder.LabelAttempt] == r.AttemptID }
	switch {
	case t.idle():
		return nil
	case !r.Collected && r.Elsewhere(t.Engine) && !slices.ContainsFunc(t.Boxes, last):
		return nil
	case !r.Collected:
		todo = append(todo, Planned{Kind: runtime.GCCollect})
	case r.Moving != 0:
		todo = append(todo, Planned{Kind: runtime.GCMend})
	}
	attempts := r.Attempts()
	for _, b := range t.Boxes {
		i := slices.IndexFunc(attempts, func(a taskstore.Attempt) bool { return a.ID == b.Labels[workorder.LabelAttempt] })
		// Collecting removes its own box, or keeps it.
		if i >= 0 && !attempts[i].Keep && (r.Collected || !last(b)) {
			todo = append(todo, Planned{runtime.GCRemoveBox, b})
		}
	}
	if t.Companion {
		todo = append(todo, Planned{Kind: runtime.GCEndCompanion}) // skipped if the task is still uncollected by then
	}
	return todo
}

// oldTags returns the tags of images that other versions built, and of unused prepared images. It returns tags and not
// labels, because images that a user builds from these inherit the labels.
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
