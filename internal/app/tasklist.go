package app

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/gc"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/host/taskstore"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// StatusUnknown is the status of a task whose engine does not answer, or is another one.
const StatusUnknown = "unknown"

// EngineWait bounds how long lists and completions wait for an engine that does not answer.
const EngineWait = 5 * time.Second

// TaskState says how a task is.
type TaskState struct {
	Kind      string            `json:"kind"` // always "task"
	TaskID    string            `json:"task_id"`
	Project   string            `json:"project"`
	Status    string            `json:"status"` // starting, running, collecting, unknown, or a result's status
	Step      string            `json:"step"`
	Task      string            `json:"task"`
	Branch    string            `json:"branch"`
	CreatedAt time.Time         `json:"created_at"`
	Dir       string            `json:"dir"`
	Container string            `json:"container"`
	EndedBy   workorder.EndedBy `json:"ended_by,omitempty"`
	Attempt   int               `json:"attempt"`
	// Resumable reports that continue can continue it; a parked one at ResumeAt.
	Resumable bool       `json:"resumable"`
	ResumeAt  *time.Time `json:"resume_at"`
	// Engine is the address of the engine with its box, if it is not the present one.
	Engine string `json:"engine,omitempty"`
	// Kept reports that the stopped container was kept for inspection (--keep).
	Kept bool `json:"kept,omitempty"`
}

// TaskList has the tasks of a state directory, the newest first.
type TaskList struct {
	Tasks []TaskState
	// Hidden is the number of finished tasks that were left out.
	Hidden int
	// Damaged is the error of the records that cannot be read, Engine that of the engine.
	Damaged, Engine error
}

// List lists tasks, of the finished ones at most the last few.
func (t *Tasks) List(ctx context.Context, finished int) (l TaskList, err error) {
	st, err := t.Store()
	if err != nil {
		return l, err
	}
	records, err := st.List()
	l.Damaged = err
	there, err := t.taskBoxes(ctx, st)
	l.Engine = err
	for _, r := range records {
		if r.Collected {
			if finished--; finished < 0 {
				l.Hidden++
				continue
			}
		}
		l.Tasks = append(l.Tasks, stateOf(st, r, there, l.Engine))
	}
	return l, nil
}

// RecordedTask is what the record of a task says, without an engine.
type RecordedTask struct {
	ID, Text string
	Status   workorder.Status // of the last attempt that was collected
	// Collected is false for a task that may still run.
	Collected, Resumable bool
}

// RecordedTasks returns the tasks whose records can be read, the newest first.
func (w Works) RecordedTasks() (all []RecordedTask) {
	st, err := w.Store()
	if err != nil {
		return nil
	}
	records, _ := st.List()
	for _, r := range records {
		all = append(all, RecordedTask{r.TaskID, r.Task, r.Status, r.Collected, r.Resumable()})
	}
	return all
}

// State says how a task is. The error is that of an engine that does not answer.
func (t *Tasks) State(ctx context.Context, r *taskstore.Record) (s TaskState, err error) {
	st, err := t.Store()
	if err != nil {
		return s, err
	}
	var there *taskBoxes
	if !r.Collected {
		there, err = t.taskBoxes(ctx, st)
	}
	return stateOf(st, r, there, err), err
}

// TaskDetails has all that is known of a task on this machine.
type TaskDetails struct {
	TaskState
	Attempts []WorkAttempt   `json:"attempts"` // newest first
	Order    json.RawMessage `json:"order,omitempty"`
	Result   json.RawMessage `json:"result,omitempty"` // of the last attempt
}

// Details returns what is known of a task. It collects nothing. If the engine does not answer, it returns the rest
// together with the error.
func (t *Tasks) Details(ctx context.Context, id string) (d TaskDetails, err error) {
	_, r, err := t.Find(ctx, id)
	if err != nil {
		return d, err
	}
	d.TaskState, err = t.State(ctx, r)
	d.Attempts = attempts(r)
	for file, to := range map[string]*json.RawMessage{workorder.OrderFile: &d.Order, workorder.ResultFile: &d.Result} {
		if b, err := os.ReadFile(filepath.Join(r.Dir, file)); err == nil && json.Valid(b) {
			*to = b
		}
	}
	return d, err
}

// taskBoxes are the boxes of an engine.
type taskBoxes struct {
	id    string // the engine's identity
	boxes map[boxKey]boxState
}

// taskBoxes lists the engine's boxes by task, with the step each is in.
func (t *Tasks) taskBoxes(ctx context.Context, st *taskstore.Store) (*taskBoxes, error) {
	ctx, cancel := context.WithTimeout(ctx, EngineWait)
	defer cancel()
	be, err := t.Engine()
	if err != nil {
		return nil, err
	}
	list, err := gc.OwnInstances(ctx, be.Engine, st, nil)
	if err != nil {
		return nil, err
	}
	info, err := be.Engine.Info(ctx)
	if err != nil {
		return nil, err
	}
	m := map[boxKey]boxState{}
	for _, b := range list {
		s := boxState{Instance: b}
		s.step, s.ended = lastEvents(ctx, be.Engine, b.ID)
		m[boxKey{b.Labels[workorder.LabelTask], b.Labels[workorder.LabelAttempt]}] = s
	}
	return &taskBoxes{info.Identity(), m}, nil
}

// boxKey identifies the box of an attempt.
type boxKey struct{ task, attempt string }

// stepTail is how many of the last events `ps` reads to find the step: a box that has run
// for a day has printed hundreds of megabytes.
const stepTail = 200

// lastEvents finds a box's current step, and its ending if it has ended, in its last events.
func lastEvents(ctx context.Context, e runtime.Runtime, id string) (step string, ended workorder.Status) {
	lines := text.WholeLines(1<<20, func(line []byte) {
		e, err := workorder.DecodeEvent(line)
		kind, _, _ := strings.Cut(string(e.Type), ".")
		switch {
		case err != nil:
		case e.Type == workorder.EventStepStarted:
			step = e.Name
		case kind == "agent", kind == "validate":
			step = kind // its start may be far earlier
		case e.Type == workorder.EventResult && e.Result != nil && slices.Contains(workorder.Statuses(), e.Result.Status):
			ended = e.Result.Status
		}
	})
	_ = e.Logs(ctx, id, runtime.LogOptions{Stdout: lines, Tail: stepTail}) // the list is useful without it
	return step, ended
}

type boxState struct {
	runtime.Instance
	step  string
	ended workorder.Status
}

// stateOf changes nothing: a task that has ended is shown as its
// collection will find it.
func stateOf(st *taskstore.Store, r *taskstore.Record, there *taskBoxes, engineErr error) TaskState {
	s := TaskState{
		Kind: "task", TaskID: r.TaskID, Project: r.Project, Task: r.Task, Branch: r.TargetBranch, CreatedAt: r.CreatedAt, Dir: r.Dir,
		Container: r.Box, EndedBy: r.EndedBy, Attempt: r.Number(), ResumeAt: r.ResumeAt,
	}
	var b boxState
	here, away := false, false
	if there != nil {
		b, here = there.boxes[boxKey{r.TaskID, r.AttemptID}]
		away = !here && r.Elsewhere(there.id)
	}
	s.Kept = r.Collected && r.Keep && here
	switch {
	case r.Collected:
		s.Status = string(r.Status)
	case engineErr != nil:
		s.Status = StatusUnknown
	case away:
		s.Status, s.Engine = StatusUnknown, r.Engine
	case here && b.Running():
		s.Status, s.Step = "running", b.step
	case here && b.ended != "":
		s.Status = string(b.ended)
	case !here && st.Locked(r.TaskID):
		s.Status = "starting"
		if _, err := os.Stat(filepath.Join(r.Dir, workorder.EventsFile)); err == nil {
			s.Status = "collecting"
		}
	case here && b.State == "created" && st.Locked(r.TaskID):
		s.Status = "starting"
	case st.StopRequest(r.TaskID) != "":
		s.Status = string(workorder.StatusInterrupted)
	default:
		s.Status = string(workorder.StatusLost)
		// The task may have been collected between the reads of the record, of the engine and of the lock.
		if now, err := st.Load(r.TaskID); err == nil && now.Collected {
			s.Status, s.EndedBy, s.Attempt, s.ResumeAt = string(now.Status), now.EndedBy, now.Number(), now.ResumeAt
		}
	}
	s.Resumable = workorder.Resumable(workorder.Status(s.Status), s.EndedBy)
	return s
}
