package workorder

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Result is the record of one attempt. Every ending produces one.
type Result struct {
	Version int    `json:"version"`
	TaskID  string `json:"task_id"`
	Project string `json:"project"`
	Mode    Mode   `json:"mode"`
	// Attempt counts the boxes of the task, this one included, from 1; 0 when the
	// run ended before that was known.
	Attempt   int     `json:"attempt"`
	AttemptID string  `json:"attempt_id"`
	Status    Status  `json:"status"`
	EndedBy   EndedBy `json:"ended_by"`
	// Reasons are empty on success. The JSON has them as a sentence (reason) and by the first one's code (reason_code), too.
	Reasons Reasons `json:"reasons"`
	// Uncommitted says that the work tree in the box has changes that are neither in a commit nor in ArchiveFile.
	Uncommitted bool `json:"uncommitted,omitempty"`
	Resumable   bool `json:"resumable"`
	// ResumeAt is when a parked task can go on; nil when nobody knows.
	ResumeAt *time.Time `json:"resume_at"`
	// NextCommand is what the user would most likely run next.
	NextCommand string    `json:"next_command"`
	StartedAt   time.Time `json:"started_at"`
	DurationMS  int64     `json:"duration_ms"`

	Repo       string   `json:"repo"`
	BaseBranch string   `json:"base_branch"`
	Branch     string   `json:"branch"` // empty when nothing was pushed
	BaseSHA    string   `json:"base_sha"`
	HeadSHA    string   `json:"head_sha"`
	Pushed     bool     `json:"pushed"`
	Commits    []Commit `json:"commits"`
	// Changes are the files of the newest commits by SHA, at most MaxChanges of each.
	Changes map[string][]FileChange `json:"changes"`
	// Earlier are the attempts before this one, oldest first.
	Earlier []Earlier `json:"earlier"`
	// Asked is what the task is; nil when the run ended before that was known.
	Asked *Asked `json:"asked"`
	// Checkpoint is the last snapshot of uncommitted work on the remote; nil when
	// there is none, or when all of it is in the branch.
	Checkpoint *Checkpoint `json:"checkpoint"`
	// Restored is what a continued attempt began with; nil when it did not get so far.
	Restored *Restored `json:"restored"`

	Steps      []Step       `json:"steps"`
	Agent      Agent        `json:"agent"`
	Usage      Usage        `json:"usage"`
	Validation []Validation `json:"validation"`
	// Proof is nil when no check was run on base and head.
	Proof *Proof `json:"proof"`
	// Surface lists changed files that run on a reviewer's machine or in CI.
	Surface []SurfaceFinding `json:"surface"`
	// Repairs are the returns of failed validation to the agent.
	Repairs []RepairRound `json:"repairs"`
	// Review says what became of the feedback, in ModeRevise and where ModeContinue goes on with it.
	Review []ReviewAnswer `json:"review"`
	// Rebased is what ModeRebase did; nil in other modes, or when it did not get so far.
	Rebased *Rebased `json:"rebased"`
	// Plan is what ModePlan made, at most MaxPlan bytes.
	Plan     string       `json:"plan"`
	Services []ServiceEnd `json:"services"`
	Evidence []Evidence   `json:"evidence"`
	// Network is nil when the run ended before the policy was in force.
	Network *NetworkReport `json:"network"`
	// Refusals are what the guard refused of the agent's Docker requests, by rule.
	Refusals []Refusal `json:"refusals"`
	PR       *PR       `json:"pr"`
	// EvidenceSHA is the commit on the remote that holds the evidence files, at their paths; empty means there is none.
	EvidenceSHA string `json:"evidence_sha"`
	// EvidenceLeft are the paths that it does not hold: too large, too many, or gone.
	EvidenceLeft []string `json:"evidence_left"`
	Image        Image    `json:"image"`
	Host         Host     `json:"host"`
	Warnings     []string `json:"warnings"`
}

// Commit is one commit of the branch that the base does not have.
type Commit struct {
	SHA     string `json:"sha"`
	Subject string `json:"subject"`
	Author  string `json:"author"`
}

// FileChange is one file of a commit, as git's numstat has it.
type FileChange struct {
	Path    string `json:"path"`
	Added   int    `json:"added"` // lines
	Deleted int    `json:"deleted"`
	Binary  bool   `json:"binary"` // then there are no lines
}

// MaxChanges bounds the files of a commit that a result names.
const MaxChanges = 100

// Earlier is how an attempt before this one ended.
type Earlier struct {
	Number  int      `json:"number"`
	Mode    Mode     `json:"mode"`
	Status  Status   `json:"status"`
	Reasons Reasons  `json:"reasons"` // the JSON has them as a Said, too
	CostUSD *float64 `json:"cost_usd"`
}

// MarshalJSON writes the reasons as a list and as they are said.
func (e Earlier) MarshalJSON() ([]byte, error) {
	type plain Earlier // without this method
	c := plain(e)
	c.Reasons = orEmpty(c.Reasons)
	return json.Marshal(struct {
		plain
		Said
	}{c, e.Reasons.Said()})
}

// UnmarshalJSON reads what MarshalJSON writes, and results of older versions.
func (e *Earlier) UnmarshalJSON(b []byte) error {
	type plain Earlier // without this method
	both := struct {
		*plain
		Said
	}{plain: (*plain)(e)}
	err := json.Unmarshal(b, &both)
	e.Reasons = both.Listed(e.Reasons)
	return err
}

// Asked is what was asked for, by all attempts together. State has the whole of it.
type Asked struct {
	Task  string   `json:"task"`
	Added []string `json:"added"` // later, oldest first
}

// MaxAsked bounds the task in a result, and what was added to it, in bytes each.
const MaxAsked = 128 << 10

// Asked is what the task is, shortened: of what was added the newest is kept.
func (s *State) Asked() *Asked {
	a := &Asked{Task: cutText(s.Task, MaxAsked), Added: []string{}}
	room := MaxAsked
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

// cutText is the beginning of a text, in whole characters.
func cutText(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "")
}

// Checkpoint is a commit that holds the whole work tree at a moment. Its first
// parent is the agent's HEAD of that moment.
type Checkpoint struct {
	SHA  string    `json:"sha"`
	Tree string    `json:"tree"`
	At   time.Time `json:"at"`
}

// Restored is the state that a continued attempt began with.
type Restored struct {
	Head       string `json:"head"`       // commit of the branch
	Checkpoint string `json:"checkpoint"` // "" means there was none
	// Tree is the work tree's hash after restoring, compared with the checkpoint's.
	Tree     string `json:"tree"`
	Verified bool   `json:"verified"`
	// Kept is the ref of a checkpoint that does not fit the branch any more (somebody
	// pushed to it) or could not be verified, and was left for the agent to look at.
	Kept string `json:"kept"`
}

// Agent is what is known of the inner agent.
type Agent struct {
	Harness   string `json:"harness"`
	Version   string `json:"version"`
	Model     string `json:"model"`
	ExitCode  *int   `json:"exit_code"` // nil means it never ran
	SessionID string `json:"session_id"`
	Turns     int    `json:"turns"`
	Final     string `json:"final"` // its last words, shortened
}

// Usage is what the agent consumed. CostUSD is null when it is not known,
// which is not the same as zero.
type Usage struct {
	CostUSD *float64 `json:"cost_usd"`
	// CostSource says who computed the cost: CostByGateway, CostByHarness, or "" when
	// it is unknown.
	CostSource string `json:"cost_source"`
	// ReservedUSD is what answers that broke off may have cost beyond CostUSD, which has what was seen of them.
	ReservedUSD float64 `json:"reserved_usd,omitempty"`
	// Estimated: some of the tokens, and their cost, are estimated from what was seen of such answers.
	Estimated        bool  `json:"estimated,omitempty"`
	InputTokens      int64 `json:"input_tokens"`  // without cached ones
	OutputTokens     int64 `json:"output_tokens"` // with reasoning
	CacheReadTokens  int64 `json:"cache_read_tokens"`
	CacheWriteTokens int64 `json:"cache_write_tokens"`
}

// Tokens is how many of all kinds.
func (u Usage) Tokens() int64 {
	return u.InputTokens + u.OutputTokens + u.CacheReadTokens + u.CacheWriteTokens
}

// Plus is the usage of two runs of the agent together. Where the cost of one is not known, the sum is that of the other, a lower bound.
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
	Until time.Time // as that one says
	Text  string    // how it refuses
	Side  bool      // of a model that is asked less than another one, whose calls may still be answered
}

// Who can have computed a cost.
const (
	CostByGateway = "gateway" // from the tokens on the wire and a table of prices
	CostByHarness = "harness" // the agent's own word
)

// Refusal counts the Docker requests that broke a rule of the guard.
type Refusal struct {
	Rule  string `json:"rule"`
	Count int64  `json:"count"`
	// Text and By are those of the first one.
	Text string `json:"text"`
	By   string `json:"by"`
}

// Validation is one validate command, run by us after the agent.
type Validation struct {
	Name       string `json:"name"`
	Command    string `json:"command"`
	Passed     bool   `json:"passed"`
	ExitCode   int    `json:"exit_code"`
	DurationMS int64  `json:"duration_ms"`
	// Log is the path of the full output, relative to the result's folder.
	Log string `json:"log"`
	// Tail is the end of the output, for a reader without the folder.
	Tail string `json:"tail"`
}

// ServiceEnd is a service's state as last seen.
type ServiceEnd struct {
	Name    string `json:"name"`
	Image   string `json:"image"`
	State   string `json:"state"` // ready | exited | unhealthy | failed
	ReadyMS int64  `json:"ready_ms"`
	Log     string `json:"log"`  // path, relative to the result's folder
	Tail    string `json:"tail"` // end of its log, when it failed
}

// Evidence is a file beside the result.
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

// Image is the image that the box was made of.
type Image struct {
	ID     string `json:"id"`
	Digest string `json:"digest"`
	Name   string `json:"name"`
}

// Host says how the box was held.
type Host struct {
	Isolation     string `json:"isolation"`
	OCIRuntime    string `json:"oci_runtime"`
	StorageDriver string `json:"storage_driver"` // empty when the inner engine never started
	CgroupVersion int    `json:"cgroup_version"`
	EngineVersion string `json:"engine_version"` // of the outer engine
	InnerVersion  string `json:"inner_version"`  // of the inner engine
	InnerReadyMS  int64  `json:"inner_ready_ms"` // its daemon's way from fork to ready
	Kernel        string `json:"kernel"`
}

// DecodeResult reads a result leniently: a newer guest may say more.
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

// MarshalJSON writes lists that are empty as [], so that a script can always iterate.
func (r Result) MarshalJSON() ([]byte, error) {
	type plain Result // without this method
	c := plain(r)
	c.Version = Version
	c.Commits = orEmpty(c.Commits)
	c.Earlier = orEmpty(c.Earlier)
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
		Said
	}{c, r.Reasons.Said()})
}

// UnmarshalJSON reads what MarshalJSON writes, and results of older versions.
func (r *Result) UnmarshalJSON(b []byte) error {
	type plain Result // without this method
	both := struct {
		*plain
		Said
	}{plain: (*plain)(r)}
	err := json.Unmarshal(b, &both)
	r.Reasons = both.Listed(r.Reasons)
	return err
}

// End puts an ending into the result.
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
