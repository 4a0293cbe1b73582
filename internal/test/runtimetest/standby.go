package runtimetest

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// standby: a box that was paused takes input again, one of several clients takes the box by its name, and the name
// tells the task.
func (s suite) standby(t *testing.T, r runtime.StandbyRuntime) {
	t.Helper()
	waiting := s
	waiting.spec.Standby, waiting.spec.Name = true, runtime.StandbyName("T-A1B2C3D4")
	waiting.spec.Labels = maps.Clone(s.spec.Labels)
	waiting.spec.Labels[workorder.LabelStandby], waiting.spec.Labels[workorder.LabelTask] = "key", "T-A1B2C3D4"
	id := waiting.start(t, "first\n")
	box := func(state string) runtime.Instance {
		t.Helper()
		list, err := s.e.Instances(t.Context(), s.spec.Labels)
		if err != nil || len(list) != 1 || list[0].State != state {
			t.Fatalf("%+v, %v, want one that is %s", list, err, state)
		}
		return list[0]
	}
	if b := box("running"); !b.Waits() {
		t.Errorf("%+v", b)
	}
	if err := r.Pause(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	box("paused")
	if err := r.Resume(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	taskID := "T-Z1B2C3D4"
	if err := r.Rename(t.Context(), waiting.spec.Name, runtime.BoxName(taskID, 2)); err != nil {
		t.Fatal(err)
	}
	if err := r.Rename(t.Context(), waiting.spec.Name, "sandbox-agent-late"); !errors.Is(err, runtime.ErrNotFound) {
		t.Errorf("renamed twice: %v", err)
	}
	with := maps.Clone(s.spec.Labels)
	with[workorder.LabelTask] = taskID
	if list, err := s.e.Instances(t.Context(), with); err != nil || len(list) != 1 || list[0].Waits() {
		t.Errorf("of the task: %+v, %v", list, err)
	}
	if err := r.Send(t.Context(), id, 0.5, strings.NewReader("wait\n")); err != nil {
		t.Fatal(err)
	}
}
