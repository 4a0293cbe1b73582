package workorder

import (
	"cmp"
	"slices"
	"time"
)

// StepName is the name of a step.
type StepName string

// Steps of the host, which come first.
const (
	StepPreflight StepName = "preflight"
	StepImage     StepName = "image"
	StepSecrets   StepName = "secrets"
	StepStart     StepName = "start"
)

// Steps in the box. Package boot has their list; a result may have fewer.
const (
	StepPrepare        StepName = "prepare"
	StepDocker         StepName = "docker"
	StepClone          StepName = "clone"
	StepRebase         StepName = "rebase"
	StepServices       StepName = "services"
	StepPackages       StepName = "packages"
	StepTools          StepName = "tools"
	StepBaseline       StepName = "baseline"
	StepSupabase       StepName = "supabase"
	StepEnv            StepName = "env"
	StepSetup          StepName = "setup"
	StepServe          StepName = "serve"
	StepRestore        StepName = "restore"
	StepAgent          StepName = "agent"
	StepCommit         StepName = "commit"
	StepCompareCommits StepName = "compare-commits"
	StepValidate       StepName = "validate"
	StepRepair         StepName = "repair"
	StepMoveBranch     StepName = "move-branch"
	StepPush           StepName = "push"
	StepProof          StepName = "proof"
	StepSensitiveFiles StepName = "sensitive-files"
	StepEvidence       StepName = "evidence"
	StepReply          StepName = "reply"
	StepPR             StepName = "pr"
	StepRangeDiff      StepName = "range-diff"
	StepResult         StepName = "result"
	StepReleaseLease   StepName = "release-lease"
)

// oldStepNames are the names in results and events of older versions that differ. Steps that are in neither have none.
var oldStepNames = map[StepName]StepName{"box": StepPrepare, "ground": StepBaseline, "answers": StepReply}

// UnmarshalText implements encoding.TextUnmarshaler. It also reads the names of older versions.
func (n *StepName) UnmarshalText(b []byte) error {
	*n = StepName(b)
	*n = cmp.Or(oldStepNames[*n], *n)
	return nil
}

// StepStatus is the outcome of a step.
type StepStatus string

// Values of StepStatus.
const (
	StepDone    StepStatus = "done"
	StepFailed  StepStatus = "failed"
	StepSkipped StepStatus = "skipped"
	StepRunning StepStatus = "running" // only in partial results
)

// Step is one step of an attempt, in the order of starting.
type Step struct {
	Name       StepName   `json:"name"`
	Status     StepStatus `json:"status"`
	StartedAt  time.Time  `json:"started_at,omitzero"`
	DurationMS int64      `json:"duration_ms"`
	Error      string     `json:"error"`     // the error, or why the step was skipped
	ExitCode   *int       `json:"exit_code"` // that of the decisive command; nil if none
}

// Step returns the step of a name; nil if the result does not have it.
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
