package render

import "github.com/sandbox-agent/sandbox-agent/workorder"

// optional are the steps that most tasks do not have. That one of them was skipped says that the project does not ask for
// it, or that there was nothing to do, which is not worth a line; the skip of any other step is news.
var optional = map[workorder.StepName]bool{
	workorder.StepDocker: true, workorder.StepServices: true, workorder.StepPackages: true, workorder.StepTools: true, workorder.StepGround: true,
	workorder.StepSupabase: true, workorder.StepEnv: true, workorder.StepSetup: true, workorder.StepRepair: true, workorder.StepAnswers: true,
}

// noise reports whether an event is of no interest to a reader. The record has it.
func noise(e workorder.Event) bool {
	return e.Type == workorder.EventStepFinished && e.Status == string(workorder.StepSkipped) && optional[workorder.StepName(e.Name)]
}
