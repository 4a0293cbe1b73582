package workorder

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Result is the record of one attempt. Every ending writes one.
type Result struct {
	Version int    `json:"version"`
	TaskID  string `json:"task_id"`
	Project string `json:"project"`
	Mode    Mode   `json:"mode"`
	// Attempt numbers the attempts of the task from 1; 0 if the attempt ended before its number was known.
	Attempt   int     `json:"attempt"`
	AttemptID string  `json:"attempt_id"`
	Status    Status  `json:"status"`
	EndedBy   EndedBy `json:"ended_by"`
	// Reasons is empty on success. The JSON also has them as a sentence (reason) and the first one's code (reason_code).
	Reasons Reasons `json:"reasons"`
	// Uncommitted reports that the working tree in the box has changes that are neither in a commit nor in ArchiveFile.
	Uncommitted bool       `json:"uncommitted,omitempty"`
	Resumable   bool       `json:"resumable"`
	ResumeAt    *time.Time `json:"resume_at"`    // when a parked task can be resumed; nil if unknown
	NextCommand string     `json:"next_command"` // the command that the user most likely runs next
	StartedAt   time.Time  `json:"started_at"`
	DurationMS  int64      `json:"duration_ms"`
	Standby     bool       `json:"standby,omitempty"` // the sandbox was started before the task

	Repo       string   `json:"repo"`
	BaseBranch string   `json:"base_branch"`
	Branch     string   `json:"branch"` // empty when nothing was pushed
	BaseSHA    string   `json:"base_sha"`
	HeadSHA    string   `json:"head_sha"`
	Pushed     bool     `json:"pushed"`
	Commits    []Commit `json:"commits"`
	// Repos are the outcomes in further repositories. The fields above are about Repo alone.
	Repos []RepoResult `json:"repos,omitempty"`
	// Changes has the files of the newest commits by SHA, at most MaxChanges of each.
	Changes      map[string][]FileChange `json:"changes"`
	PastAttempts []PastAttempt           `json:"earlier"` // has the attempts before this one, oldest first
	TaskText     *TaskText               `json:"asked"`   // the task's text; nil if the attempt ended before that was known
	// Checkpoint is the last checkpoint on the remote; nil if there is none, or if the branch has all of it.
	Checkpoint *Checkpoint `json:"checkpoint"`
	Restored   *Restored   `json:"restored"` // the initial state of a continued attempt; nil if it ended before

	Steps      []Step       `json:"steps"`
	Agent      Agent        `json:"agent"`
	Usage      Usage        `json:"usage"`
	Validation []Validation `json:"validation"`
	Proof      *Proof       `json:"proof"` // nil when no check was run on base and head
	// Surface lists changed files that run on a reviewer's machine or in CI.
	Surface []SurfaceFinding `json:"surface"`
	Repairs []RepairRound    `json:"repairs"` // the rounds of failed validation sent back to the agent
	// Review is the outcome of the feedback, in ModeRevise and if ModeContinue resumes such an attempt.
	Review []ReviewAnswer `json:"review"`
	// Rebased is the outcome of ModeRebase; nil in other modes, or if the attempt ended before.
	Rebased  *Rebased       `json:"rebased"`
	Plan     string         `json:"plan"` // the plan of ModePlan, at most MaxPlan bytes
	Services []ServiceEnd   `json:"services"`
	Evidence []Evidence     `json:"evidence"`
	Network  *NetworkReport `json:"network"`  // nil if the attempt ended before the policy was in force
	Refusals []Refusal      `json:"refusals"` // the Docker requests of the agent that the guard refused, by rule
	PR       *PR            `json:"pr"`
	// EvidenceSHA is the commit on the remote with the evidence files, at their paths; "" if there is none.
	EvidenceSHA  string   `json:"evidence_sha"`
	EvidenceLeft []string `json:"evidence_left"` // paths missing in it: too large, too many, or deleted
	Image        Image    `json:"image"`
	Platform     Platform `json:"host"`
	Warnings     []string `json:"warnings"`
}

// Commit is one commit of the branch that the base does not have.
type Commit struct {
	SHA     string `json:"sha"`
	Subject string `json:"subject"`
	Author  string `json:"author"`
}

// FileChange is one file of a commit, as in git's numstat.
type FileChange struct {
	Path    string `json:"path"`
	Added   int    `json:"added"` // lines
	Deleted int    `json:"deleted"`
	Binary  bool   `json:"binary"` // no line counts then
}

// MaxChanges is the limit of the files of a commit in a result.
const MaxChanges = 100

// PastAttempt is the outcome of an earlier attempt.
type PastAttempt struct {
	Number  int      `json:"number"`
	Mode    Mode     `json:"mode"`
	Status  Status   `json:"status"`
	Reasons Reasons  `json:"reasons"` // the JSON also has them as a Said
	CostUSD *float64 `json:"cost_usd"`
}

// MarshalJSON writes the reasons as a list and as a Said.
func (e PastAttempt) MarshalJSON() ([]byte, error) {
	type plain PastAttempt // without this method
	c := plain(e)
	c.Reasons = orEmpty(c.Reasons)
	return json.Marshal(struct {
		plain
		LegacyReason
	}{c, e.Reasons.Legacy()})
}

// UnmarshalJSON also reads results of older versions.
func (e *PastAttempt) UnmarshalJSON(b []byte) error {
	type plain PastAttempt // without this method
	both := struct {
		*plain
		LegacyReason
	}{plain: (*plain)(e)}
	err := json.Unmarshal(b, &both)
	e.Reasons = both.Listed(e.Reasons)
	return err
}

// TaskText is the task's text with all additions. State has the full text.
type TaskText struct {
	Task  string   `json:"task"`
	Added []string `json:"added"` // additions, oldest first
}

// MaxTaskText limits the task in a result, and the additions to it, in bytes each.
const MaxTaskText = 128 << 10

// TaskText returns the task's text, shortened: the newest additions are kept.
func (s *State) TaskText() *TaskText {
	a := &TaskText{Task: cutText(s.Task, MaxTaskText), Added: []string{}}
	room := MaxTaskText
	for _, text := range slices.Backward(s.Added) {
		if room <= 0 {
			break
		}
		text = cutText(text, room)
		room -= len(text)
		a.Added = append(a.Added, text)
	}
	slices.Reverse(a.Added)
	return a
}

// cutText returns the beginning of a text, in whole characters.
func cutText(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "")
}

// Checkpoint is a commit of the whole working tree. Its first parent is the agent's HEAD at that time.
type Checkpoint struct {
	SHA  string    `json:"sha"`
	Tree string    `json:"tree"`
	At   time.Time `json:"at"`
}

// Restored is the initial state of a continued attempt.
type Restored struct {
	Head       string `json:"head"`       // commit of the branch
	Checkpoint string `json:"checkpoint"` // "" means there was none
	Tree       string `json:"tree"`       // the working tree's hash after restoring, compared with the checkpoint's
	Verified   bool   `json:"verified"`
	// Kept is the ref of a checkpoint that was not restored, because the branch has changed since or it could not be
	// verified. The agent may look at it.
	Kept string `json:"kept"`
}

// Agent describes the inner agent's run.
type Agent struct {
	Harness   string `json:"harness"`
	Version   string `json:"version"`
	Model     string `json:"model"`
	ExitCode  *int   `json:"exit_code"` // nil if it never ran
	SessionID string `json:"session_id"`
	Turns     int    `json:"turns"`
	Final     string `json:"final"` // its last message, shortened
}

// Usage is the agent's consumption. CostUSD is null if unknown, which differs from zero.
type Usage struct {
	CostUSD    *float64 `json:"cost_usd"`
	CostSource string   `json:"cost_source"` // CostByGateway or CostByHarness; "" if the cost is unknown
	// ReservedUSD is the possible cost of broken-off answers beyond CostUSD, which has the cost of their received part.
	ReservedUSD float64 `json:"reserved_usd,omitempty"`
	// Estimated reports that some tokens and their cost are estimated from the received part of such answers.
	Estimated        bool  `json:"estimated,omitempty"`
	InputTokens      int64 `json:"input_tokens"`  // without cached ones
	OutputTokens     int64 `json:"output_tokens"` // including reasoning
	CacheReadTokens  int64 `json:"cache_read_tokens"`
	CacheWriteTokens int64 `json:"cache_write_tokens"`
}

// Tokens returns the number of tokens of all kinds.
func (u Usage) Tokens() int64 {
	return u.InputTokens + u.OutputTokens + u.CacheReadTokens + u.CacheWriteTokens
}

// Plus adds two usages. If one cost is unknown, the sum is the other, a lower bound.
func (u Usage) Plus(v Usage) Usage {
	sum := Usage{
		CostUSD: u.CostUSD, CostSource: u.CostSource, ReservedUSD: u.ReservedUSD + v.ReservedUSD, Estimated: u.Estimated || v.Estimated,
		InputTokens: u.InputTokens + v.InputTokens, OutputTokens: u.OutputTokens + v.OutputTokens,
		CacheReadTokens: u.CacheReadTokens + v.CacheReadTokens, CacheWriteTokens: u.CacheWriteTokens + v.CacheWriteTokens,
	}
	if v.CostUSD != nil {
		sum.CostUSD, sum.CostSource = v.CostUSD, v.CostSource
		if u.CostUSD != nil {
			all := *u.CostUSD + *v.CostUSD
			sum.CostUSD = &all
		}
	}
	return sum
}

// ModelLimit is a limit of a model's provider at which calls are refused.
type ModelLimit struct {
	Since time.Time // the first refusal after which no call was answered
	At    time.Time // the last one
	Until time.Time // as the last refusal says
	Text  string    // the text of the refusal
	Side  bool      // of a model that is used less than another one, whose calls may still be answered
}

// Values of Usage.CostSource.
const (
	CostByGateway = "gateway" // from the tokens on the wire and a price table
	CostByHarness = "harness" // reported by the agent
)

// Refusal counts the Docker requests that violated a rule of the guard.
type Refusal struct {
	Rule  string `json:"rule"`
	Count int64  `json:"count"`
	// Text and By are those of the first request.
	Text string `json:"text"`
	By   string `json:"by"`
}

// Validation is one run of a validate command after the agent.
type Validation struct {
	Name       string `json:"name"`
	Command    string `json:"command"`
	Passed     bool   `json:"passed"`
	ExitCode   int    `json:"exit_code"`
	DurationMS int64  `json:"duration_ms"`
	Log        string `json:"log"`  // the path of the full output, relative to the result's directory
	Tail       string `json:"tail"` // the end of the output, for readers without the directory
}

// ServiceEnd is the last known state of a service.
type ServiceEnd struct {
	Name    string `json:"name"`
	Image   string `json:"image"`
	State   string `json:"state"` // ready | exited | unhealthy | failed
	ReadyMS int64  `json:"ready_ms"`
	Log     string `json:"log"`  // path, relative to the result's directory
	Tail    string `json:"tail"` // end of its log, when it failed
}

// Evidence is a file next to the result.
type Evidence struct {
	Name string `json:"name"`
	Path string `json:"path"`
	Kind string `json:"kind"`
}

// PR is the pull request of the branch.
type PR struct {
	Number int    `json:"number"`
	URL    string `json:"url"`
	State  string `json:"state"`
}

// Image is the image of the box.
type Image struct {
	ID     string `json:"id"`
	Digest string `json:"digest"`
	Name   string `json:"name"`
}

// Platform describes the engine and the isolation of the box.
type Platform struct {
	Isolation     string `json:"isolation"`
	OCIRuntime    string `json:"oci_runtime"`
	StorageDriver string `json:"storage_driver"` // "" if the inner engine never started
	CgroupVersion int    `json:"cgroup_version"`
	EngineVersion string `json:"engine_version"` // of the outer engine
	InnerVersion  string `json:"inner_version"`  // of the inner engine
	InnerReadyMS  int64  `json:"inner_ready_ms"` // from the fork of the daemon to ready
	Kernel        string `json:"kernel"`
}

// DecodeResult reads a result leniently: a newer guest may add fields.
func DecodeResult(b []byte) (*Result, error) {
	var r Result
	if err := json.Unmarshal(b, &r); err != nil {
		return nil, fmt.Errorf("read result: %w", err)
	}
	if r.Version != Version {
		return nil, fmt.Errorf("result has version %d, this program reads version %d", r.Version, Version)
	}
	return &r, nil
}

// MarshalJSON writes empty lists as [], so that scripts can always iterate.
func (r Result) MarshalJSON() ([]byte, error) {
	type plain Result // without this method
	c := plain(r)
	c.Version = Version
	c.Commits = orEmpty(c.Commits)
	c.PastAttempts = orEmpty(c.PastAttempts)
	if c.Changes == nil {
		c.Changes = map[string][]FileChange{}
	}
	c.Reasons = orEmpty(c.Reasons)
	c.Steps = orEmpty(c.Steps)
	c.Validation = orEmpty(c.Validation)
	c.Surface = orEmpty(c.Surface)
	c.Repairs = orEmpty(c.Repairs)
	c.Review = orEmpty(c.Review)
	c.Services = orEmpty(c.Services)
	c.Evidence = orEmpty(c.Evidence)
	c.EvidenceLeft = orEmpty(c.EvidenceLeft)
	c.Refusals = orEmpty(c.Refusals)
	c.Warnings = orEmpty(c.Warnings)
	return json.Marshal(struct {
		plain
		LegacyReason
	}{c, r.Reasons.Legacy()})
}

// UnmarshalJSON also reads results of older versions.
func (r *Result) UnmarshalJSON(b []byte) error {
	type plain Result // without this method
	both := struct {
		*plain
		LegacyReason
	}{plain: (*plain)(r)}
	err := json.Unmarshal(b, &both)
	r.Reasons = both.Listed(r.Reasons)
	return err
}

// End sets the ending of the result.
func (r *Result) End(e Ending) { r.Status, r.EndedBy, r.Reasons = e.Status, e.EndedBy, e.Reasons }

// Encode writes the result as indented JSON with a final newline.
func (r *Result) Encode() ([]byte, error) {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write result: %w", err)
	}
	return append(b, '\n'), nil
}

func orEmpty[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}
