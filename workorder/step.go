package workorder

import (
	"slices"
	"time"
)

// StepName names a step of a run.
type StepName string

// The steps of the host, which come first.
const (
	StepPreflight StepName = "preflight"
	StepImage     StepName = "image"
	StepSecrets   StepName = "secrets"
	StepStart     StepName = "start"
)

// The steps in the box. Package boot has the list of them; not all are in a result.
const (
	StepBox            StepName = "box"
	StepDocker         StepName = "docker"
	StepClone          StepName = "clone"
	StepRebase         StepName = "rebase"
	StepServices       StepName = "services"
	StepPackages       StepName = "packages"
	StepTools          StepName = "tools"
	StepGround         StepName = "ground"
	StepSupabase       StepName = "supabase"
	StepEnv            StepName = "env"
	StepSetup          StepName = "setup"
	StepServe          StepName = "serve"
	StepBegin          StepName = "begin"
	StepAgent          StepName = "agent"
	StepKeep           StepName = "keep"
	StepCompare        StepName = "compare"
	StepValidate       StepName = "validate"
	StepRepair         StepName = "repair"
	StepMove           StepName = "move"
	StepPush           StepName = "push"
	StepProof          StepName = "proof"
	StepSensitiveFiles StepName = "sensitive-files"
	StepEvidence       StepName = "evidence"
	StepAnswers        StepName = "answers"
	StepPR             StepName = "pr"
	StepRangeDiff      StepName = "range-diff"
	StepResult         StepName = "result"
	StepLease          StepName = "lease"
)

// StepStatus is how a step ended.
type StepStatus string

// Step endings.
const (
	StepDone    StepStatus = "done"
	StepFailed  StepStatus = "failed"
	StepSkipped StepStatus = "skipped"
	StepRunning StepStatus = "running" // only seen in partial results
)

// Step is one named phase of the run, in the order of starting.
type Step struct {
	Name       StepName   `json:"name"`
	Status     StepStatus `json:"status"`
	StartedAt  time.Time  `json:"started_at,omitzero"`
	DurationMS int64      `json:"duration_ms"`
	// Error says what failed; for a skipped step it says why it was skipped.
	Error string `json:"error"`
	// ExitCode of the command that decided the step; nil when no command did.
	ExitCode *int `json:"exit_code"`
}

// Step finds a step by its name; nil when the result does not have it.
func (r *Result) Step(name StepName) *Step {
	if i := slices.IndexFunc(r.Steps, func(s Step) bool { return s.Name == name }); i >= 0 {
		return &r.Steps[i]
	}
	return nil
}

// Reached reports whether a step had begun.
func (r *Result) Reached(name StepName) bool {
	s := r.Step(name)
	return s != nil && !s.StartedAt.IsZero()
}
