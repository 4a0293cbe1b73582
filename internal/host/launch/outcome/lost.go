package outcome

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/host/taskstore"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Synthesise makes the result of a run that left none from its events. A zero end means the time of the last event.
func Synthesise(rec *taskstore.Record, events func(func(workorder.Event)) error, e workorder.Ending, end time.Time) *workorder.Result {
	res := &workorder.Result{
		TaskID: rec.TaskID, Project: rec.Project, Mode: cmp.Or(rec.Mode, workorder.ModeCreate),
		Status: e.Status, EndedBy: e.EndedBy, Reasons: e.Reasons, Resumable: rec.Mode.Resumable(e.Status, e.EndedBy),
		AttemptID: rec.AttemptID, Attempt: rec.Number(), StartedAt: rec.Begun(), Repo: rec.Repo, BaseBranch: rec.Branch,
		Agent: workorder.Agent{Harness: rec.Harness},
	}
	open := map[string]int{}
	last := rec.Begun()
	err := events(func(e workorder.Event) {
		last = e.Time
		applyEvent(res, rec, e, open)
	})
	if err != nil {
		res.Warnings = append(res.Warnings, err.Error())
	}
	if end.IsZero() {
		end = last
	}
	for i := range res.Steps {
		if s := &res.Steps[i]; s.Status == workorder.StepRunning {
			s.DurationMS = max(0, end.Sub(s.StartedAt).Milliseconds())
		}
	}
	res.DurationMS = max(0, end.Sub(rec.Begun()).Milliseconds())
	res.NextCommand = NextCommand(rec, res)
	return res
}

func applyEvent(res *workorder.Result, rec *taskstore.Record, e workorder.Event, open map[string]int) {
	switch e.Type {
	case workorder.EventStepStarted:
		open[e.Name] = len(res.Steps)
		res.Steps = append(res.Steps, workorder.Step{Name: e.Step(), Status: workorder.StepRunning, StartedAt: e.Time})
	case workorder.EventStepFinished:
		i, ok := open[e.Name]
		if !ok {
			// Skipped steps never start.
			i = len(res.Steps)
			res.Steps = append(res.Steps, workorder.Step{Name: e.Step(), StartedAt: e.Time})
		}
		s := &res.Steps[i]
		s.Status, s.DurationMS, s.Error, s.ExitCode = workorder.StepStatus(e.Status), e.DurationMS, e.Text, e.ExitCode
	case workorder.EventAgentStarted:
		res.Agent.Harness, res.Agent.Version = cmp.Or(e.Name, res.Agent.Harness), e.Text
	case workorder.EventAgentFinished:
		res.Agent.ExitCode = e.ExitCode
	case workorder.EventAgentUsage:
		if e.Usage != nil {
			res.Usage = *e.Usage
		}
	case workorder.EventValidateFinished:
		v := workorder.Validation{Name: e.Name, Passed: e.Status == "passed", DurationMS: e.DurationMS}
		if e.ExitCode != nil {
			v.ExitCode = *e.ExitCode
		}
		res.Validation = append(res.Validation, v)
	case workorder.EventPush:
		if e.Status == "ok" && e.Name == workorder.BranchRef(rec.TargetBranch) {
			res.Branch, res.HeadSHA, res.Pushed = rec.TargetBranch, e.Text, true
		}
	case workorder.EventCheckpoint:
		if e.Status == "ok" && git.ValidSHA(e.Text) && own(e) {
			res.Checkpoint = &workorder.Checkpoint{SHA: e.Text, At: e.Time}
		}
	case workorder.EventWarning:
		res.Warnings = append(res.Warnings, e.Text)
	}
}

// Saves summarises the saves in the record of a box.
type Saves struct {
	Good workorder.Event // the last successful save
	Bad  workorder.Event // the last failed save after Good
	End  time.Time       // of the record
}

// Event adds an event of the record; branch and state are the refs that count as saves.
func (s *Saves) Event(e workorder.Event, branch, state string) {
	s.End = e.Time
	switch e.Type {
	case workorder.EventPush, workorder.EventCheckpoint, workorder.EventLease:
	default:
		return
	}
	switch {
	case e.Status == "error" || e.Type == workorder.EventLease && e.Status == "lost":
		s.Bad = e
	// A push of the state shows that the remote accepts pushes again.
	case e.Status == "ok" && (e.Type == workorder.EventCheckpoint && own(e) || e.Name == branch || e.Name == state):
		s.Good, s.Bad = e, workorder.Event{}
	}
}

// own reports whether an event of a ref is about the task's own repository. Before the ref of another is its name.
func own(e workorder.Event) bool { return !strings.Contains(e.Name, ":") }

// LastStep names the last step of a lost run.
func LastStep(events func(func(workorder.Event)) error) string {
	name := ""
	if err := events(func(e workorder.Event) {
		if e.Type == workorder.EventStepStarted {
			name = e.Name
		}
	}); err != nil || name == "" {
		return "before its first step"
	}
	return fmt.Sprintf("in step %s", name)
}
