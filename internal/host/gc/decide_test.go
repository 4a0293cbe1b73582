package gc

import (
	"slices"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/host/provision"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/host/taskstore"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

func box(attempt, state string) runtime.Instance {
	return runtime.Instance{Name: "box of " + attempt, State: state, Labels: map[string]string{workorder.LabelAttempt: attempt}}
}

// TestForTask has a row for each case.
func TestForTask(t *testing.T) {
	t.Parallel()
	over := taskstore.Record{AttemptID: "a2", Attempt: 2, Collected: true, PastAttempts: []taskstore.Attempt{{ID: "a1", Number: 1}}}
	with := func(change func(*taskstore.Record)) *taskstore.Record {
		r := over
		r.PastAttempts = slices.Clone(over.PastAttempts)
		change(&r)
		return &r
	}
	last, former := box("a2", "exited"), box("a1", "exited")
	there := func(r *taskstore.Record) { r.Collected, r.Box, r.EngineID = false, "b", "there" }
	for name, c := range map[string]struct {
		task Task
		want []runtime.GCKind
	}{
		"over, and nothing is left":              {Task{Record: &over}, nil},
		"a box runs":                             {Task{Record: with(func(r *taskstore.Record) { r.Collected = false }), Boxes: []runtime.Instance{former, box("a2", "running")}}, nil},
		"ended, and not collected":               {Task{Record: with(func(r *taskstore.Record) { r.Collected = false }), Boxes: []runtime.Instance{last}}, []runtime.GCKind{runtime.GCCollect}},
		"not collected, and an older box":        {Task{Record: with(func(r *taskstore.Record) { r.Collected = false }), Boxes: []runtime.Instance{last, former}}, []runtime.GCKind{runtime.GCCollect, runtime.GCRemoveBox}},
		"its box is gone":                        {Task{Record: with(func(r *taskstore.Record) { r.Collected = false })}, []runtime.GCKind{runtime.GCCollect}},
		"its box is on another engine":           {Task{Record: with(there), Engine: "here"}, nil},
		"another engine, and its box is here":    {Task{Record: with(there), Engine: "here", Boxes: []runtime.Instance{last}}, []runtime.GCKind{runtime.GCCollect}},
		"collected, and the box is still there":  {Task{Record: &over, Boxes: []runtime.Instance{last}}, []runtime.GCKind{runtime.GCRemoveBox}},
		"a box that was to be kept":              {Task{Record: with(func(r *taskstore.Record) { r.Keep = true }), Boxes: []runtime.Instance{last, former}}, []runtime.GCKind{runtime.GCRemoveBox}},
		"a former box that was to be kept":       {Task{Record: with(func(r *taskstore.Record) { r.PastAttempts[0].Keep = true }), Boxes: []runtime.Instance{former}}, nil},
		"its output was being moved":             {Task{Record: with(func(r *taskstore.Record) { r.Moving = 1 })}, []runtime.GCKind{runtime.GCMend}},
		"over, and the companion lives":          {Task{Record: &over, Companion: true}, []runtime.GCKind{runtime.GCEndCompanion}},
		"not collected, and the companion lives": {Task{Record: with(func(r *taskstore.Record) { r.Collected = false }), Companion: true}, []runtime.GCKind{runtime.GCCollect, runtime.GCEndCompanion}},
	} {
		var got []runtime.GCKind
		for _, todo := range forTask(c.task) {
			got = append(got, todo.Kind)
			if todo.Kind == runtime.GCRemoveBox && todo.Box.Name == last.Name && (!c.task.Record.Collected || c.task.Record.Keep) {
				t.Errorf("%s: the last box is removed", name)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestOldTags(t *testing.T) {
	t.Parallel()
	got := oldTags([]provision.BuiltImage{
		{Tags: []string{"now"}, Own: true, Current: true},
		{Tags: []string{"old", "older"}, Own: true},
		{Tags: []string{"theirs"}},
		{Tags: []string{"in use"}, Own: true, Used: true},
	})
	if !slices.Equal(got, []string{"old", "older"}) {
		t.Errorf("%q", got)
	}
}
