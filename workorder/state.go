package workorder

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Refs of a task on the remote, in addition to its branch. Since the box and the machine that started it may vanish,
// the task's id and the remote are enough to resume it.
const (
	refRoot   = "refs/sandbox-agent/" // outside refs/heads, so that forges do not list it as a branch
	StateFile = "state.json"          // the only file in the tree of the state's commit
)

// TaskRefs is the prefix of the task's refs, ending in a slash.
func TaskRefs(taskID string) string { return refRoot + taskID + "/" }

// StateRef names the commit with the task's State. It changes only by compare and swap, which makes it a lease.
func StateRef(taskID string) string { return TaskRefs(taskID) + "state" }

// AliveRef is moved by the lease's holder as long as it lives. Only its change matters, not its commit.
func AliveRef(taskID string) string { return TaskRefs(taskID) + "alive" }

// EvidenceRef names the newest commit of evidence files: pictures, logs of checks. Each attempt's commit has the
// previous one as its parent, so that links to older ones stay valid.
func EvidenceRef(taskID string) string { return TaskRefs(taskID) + "evidence" }

// ResultRef names the commit with the last attempt's result, events and logs. It has no parent, so that clones of all
// refs have only one result of a task.
func ResultRef(taskID string) string { return TaskRefs(taskID) + "result" }

// EventsGzip is EventsFile in that commit.
const EventsGzip = EventsFile + ".gz"

// CheckpointRef names the last checkpoint.
func CheckpointRef(taskID string) string { return TaskRefs(taskID) + "checkpoint" }

// KeptRef names work of the agent outside of the task's branch: a branch or tag of its own, or commits that it rewrote.
// A slash in the name becomes =2F, since git cannot store a/b next to a, which an earlier attempt may have left.
func KeptRef(taskID, name string) string {
	name = EscapeRef(name)
	if len(name) > maxKeptName {
		sum := sha256.Sum256([]byte(name))
		name = strings.ToValidUTF8(name[:maxKeptName-17], "") + "=" + hex.EncodeToString(sum[:8])
	}
	return TaskRefs(taskID) + "heads/" + name
}

// EscapeRef returns a name as in KeptRef.
func EscapeRef(name string) string { return refEscapes.Replace(name) }

var refEscapes = strings.NewReplacer("=", "=3D", "/", "=2F")

// maxKeptName is the limit of a name in KeptRef, in bytes: a remote that keeps refs as files has a limit of 255
// including its lock's suffix.
const maxKeptName = 200

// MaxAdded is the limit of State.Added, whose total length is at most MaxTask. The newest are kept.
const MaxAdded = 50

// MaxAttempts is the limit of State.Attempts. The newest are kept.
const MaxAttempts = 50

// State is the remote's record of a task. It is read leniently.
type State struct {
	Version      int       `json:"version"`
	TaskID       string    `json:"task_id"`
	Project      string    `json:"project"`
	Task         string    `json:"task"`            // the prompt, byte for byte, secrets masked
	Added        []string  `json:"added,omitempty"` // later additions, oldest first
	TargetBranch string    `json:"target_branch"`
	BaseBranch   string    `json:"base_branch"`
	BaseSHA      string    `json:"base_sha"`
	CreatedAt    time.Time `json:"created_at"`
	// Review is feedback that an attempt accepted and has not answered yet. The next attempt addresses it.
	Review        *Review    `json:"review,omitempty"`
	ReviewedUntil time.Time  `json:"reviewed_until,omitzero"` // the time of the newest answered feedback
	Lease         *TaskLease `json:"lease"`                   // the current task lease; nil if none
	Attempts      []Attempt  `json:"attempts"`                // the attempts so far, oldest first
}

// TaskLease is the exclusive right to push to the task's refs. The holder moves AliveRef every CheckpointInterval, or every
// LeaseRenewal if that is longer. A box that wants the lease watches AliveRef and StateRef for TTLSeconds on its own
// clock, so that clocks of two machines are never compared. A change of either ref means that the holder is alive.
type TaskLease struct {
	AttemptID string `json:"attempt_id"`
	// Incarnation is a random id of the holder: one order given to two boxes has one attempt and two holders.
	Incarnation string    `json:"incarnation,omitempty"`
	Holder      string    `json:"holder"`     // for people: the box's host name
	RenewedAt   time.Time `json:"renewed_at"` // when the state was last pushed
	TTLSeconds  float64   `json:"ttl_seconds"`
}

// LeaseRenewal is the longest time between two moves of AliveRef. LeaseMisses missed moves in a row void a lease: an
// outage of the remote of a minute does not end a task.
const (
	LeaseRenewal = 30 * time.Second
	LeaseMisses  = 4
)

// Attempt is the remote's record of an attempt.
type Attempt struct {
	ID     string `json:"id"`
	Number int    `json:"number"` // from 1
	// Incarnation is the box's (see Lease). If another box started the same attempt again, it is that of the first box.
	Incarnation string     `json:"incarnation,omitempty"`
	Mode        Mode       `json:"mode"`
	Status      Status     `json:"status"` // empty while it runs, and lost if a later attempt found it missing
	EndedBy     EndedBy    `json:"ended_by"`
	Reasons     Reasons    `json:"reasons"` // the JSON also has them as a Said
	ResumeAt    *time.Time `json:"resume_at"`
	StartedAt   time.Time  `json:"started_at"`
	EndedAt     time.Time  `json:"ended_at,omitzero"`
	HeadSHA     string     `json:"head_sha"`
	Agent       Agent      `json:"agent"`
	Usage       Usage      `json:"usage"`
	Validation  []string   `json:"validation"`     // failed commands
	Plan        string     `json:"plan,omitempty"` // the plan of an attempt in ModePlan
}

// Ending returns the outcome of the attempt.
func (a *Attempt) Ending() Ending {
	return Ending{Status: a.Status, EndedBy: a.EndedBy, Reasons: a.Reasons}
}

// MarshalJSON writes the reasons as a list and as a Said.
func (a Attempt) MarshalJSON() ([]byte, error) {
	type plain Attempt // without this method
	c := plain(a)
	c.Reasons = orEmpty(c.Reasons)
	return json.Marshal(struct {
		plain
		LegacyReason
	}{c, a.Reasons.Legacy()})
}

// UnmarshalJSON also reads states of older versions.
func (a *Attempt) UnmarshalJSON(b []byte) error {
	type plain Attempt // without this method
	both := struct {
		*plain
		LegacyReason
	}{plain: (*plain)(a)}
	err := json.Unmarshal(b, &both)
	a.Reasons = both.Listed(a.Reasons)
	return err
}

// SpentUSD returns the known cost of all attempts together.
func (s *State) SpentUSD() (usd float64) {
	for i := range s.Attempts {
		if c := s.Attempts[i].Usage.CostUSD; c != nil {
			usd += *c
		}
	}
	return usd
}

// Last returns the newest recorded attempt; nil if there is none.
func (s *State) Last() *Attempt {
	if len(s.Attempts) == 0 {
		return nil
	}
	return &s.Attempts[len(s.Attempts)-1]
}

// Find returns the attempt with that id; nil if unknown.
func (s *State) Find(id string) *Attempt {
	if i := slices.IndexFunc(s.Attempts, func(a Attempt) bool { return a.ID == id }); i >= 0 {
		return &s.Attempts[i]
	}
	return nil
}

// MaxState is the limit of a state, in bytes: a task text and its attempts.
const MaxState = 6*MaxTask + 4<<20

// Encode writes the state as indented JSON, with the newest MaxAttempts attempts.
func (s *State) Encode() ([]byte, error) {
	c := *s
	c.Version = Version
	c.Added = c.Added[max(0, len(c.Added)-MaxAdded):]
	for size := totalLen(c.Added); size > MaxTask; c.Added = c.Added[1:] {
		size -= len(c.Added[0])
	}
	c.Attempts = orEmpty(c.Attempts[max(0, len(c.Attempts)-MaxAttempts):])
	b, err := json.MarshalIndent(&c, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write task state: %w", err)
	}
	return append(b, '\n'), nil
}

func totalLen(list []string) (n int) {
	for _, s := range list {
		n += len(s)
	}
	return n
}

// DecodeState reads a task's state. Others can write to the remote, so names in it are validated.
func DecodeState(b []byte, taskID string) (*State, error) {
	if len(b) > MaxState {
		return nil, fmt.Errorf("read task state: it has %d bytes, more than %d", len(b), MaxState)
	}
	var s State
	if err := json.Unmarshal(b, &s); err != nil {
		return nil, fmt.Errorf("read task state: %w", err)
	}
	switch {
	case s.Version != Version:
		return nil, fmt.Errorf("task state has version %d, this program reads version %d", s.Version, Version)
	case s.TaskID != taskID:
		return nil, fmt.Errorf("task state is of %q, not of %s", s.TaskID, taskID)
	case !ValidRefName(s.TargetBranch) || !OwnBranch(taskID, s.TargetBranch):
		return nil, fmt.Errorf("task state: branch %q does not belong to %s", s.TargetBranch, taskID)
	case s.BaseBranch != "" && !ValidRefName(s.BaseBranch):
		return nil, fmt.Errorf("task state: invalid base branch %q", s.BaseBranch)
	case len(s.Added) > MaxAdded:
		return nil, fmt.Errorf("task state has %d additions, more than %d", len(s.Added), MaxAdded)
	}
	if s.Review != nil {
		var p problems
		if s.Review.check(&p); len(p.errs) > 0 {
			return nil, fmt.Errorf("task state: %w", errors.Join(p.errs...))
		}
	}
	for _, text := range append([]string{s.Task}, s.Added...) {
		if err := checkText(text); err != nil {
			return nil, fmt.Errorf("task state: %w", err)
		}
	}
	return &s, nil
}
