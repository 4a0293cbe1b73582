package runtime

import (
	"context"
	"fmt"
	"io"
	"maps"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// StandbyRuntime keeps boxes that were started before their orders.
type StandbyRuntime interface {
	// Pause stops all processes of a box until Resume.
	Pause(ctx context.Context, id string) error
	// Resume lets the processes of a paused box continue.
	Resume(ctx context.Context, id string) error
	// Rename gives a box another name. ErrNotFound means that no box has the name from any longer, ErrConflict that one has to.
	Rename(ctx context.Context, from, to string) error
	// Send writes a document to the standard input of a box with ContainerSpec.Standby, and sets its limit of CPUs.
	Send(ctx context.Context, id string, cpus float64, document io.Reader) error
}

const (
	boxPrefix     = "sandbox-agent-"
	standbyPrefix = boxPrefix + "standby-"
)

// BoxName returns the name of an attempt's container. It has the attempt's number because the stopped box of a previous
// attempt may have been kept.
func BoxName(taskID string, attempt int) string {
	if attempt <= 1 {
		return boxPrefix + taskID
	}
	return fmt.Sprintf("%s%s-%d", boxPrefix, taskID, attempt)
}

// StandbyName returns the name of a box until a task takes it.
func StandbyName(id string) string { return standbyPrefix + id }

// Waits reports whether the box was started before its order, and no task has taken it.
func (b Instance) Waits() bool {
	return b.Labels[workorder.LabelStandby] != "" && strings.HasPrefix(b.Name, standbyPrefix)
}

// Ready reports whether the box waits, and a task can take it.
func (b Instance) Ready() bool { return b.Waits() && b.Paused() }

// Named returns the instance with the label of the task that has taken it: labels cannot change, only the name does.
func (b Instance) Named() Instance {
	id, _, _ := strings.Cut(strings.TrimPrefix(b.Name, boxPrefix+"T-"), "-")
	if id = "T-" + id; b.Labels[workorder.LabelStandby] != "" && workorder.ValidTaskID(id) && strings.HasPrefix(b.Name, boxPrefix+id) {
		b.Labels = maps.Clone(b.Labels)
		b.Labels[workorder.LabelTask] = id
	}
	return b
}

// Has reports whether the instance has the labels. An empty value matches any.
func (b Instance) Has(labels map[string]string) bool {
	for k, v := range labels {
		if have, ok := b.Labels[k]; !ok || v != "" && have != v {
			return false
		}
	}
	return true
}
