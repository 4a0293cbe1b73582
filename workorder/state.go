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

// The remote holds more of a task than its branch. A box may vanish, and the
// machine that started it too; whoever has the task's id and the remote can go on.
const (
	// refRoot is outside refs/heads, so that forges list none of it as a branch.
	refRoot = "refs/sandbox-agent/"
	// StateFile is the one file in the tree of the state's commit.
	StateFile = "state.json"
)

// TaskRefs is the folder of refs that belong to the task, ending in a slash.
func TaskRefs(taskID string) string { return refRoot + taskID + "/" }

// StateRef names the commit that holds the task's State. It changes by compare
// and swap only, which is what makes it a lease.
func StateRef(taskID string) string { return TaskRefs(taskID) + "state" }

// AliveRef is moved by the lease's holder for as long as it lives. Its commit means
// nothing; its change is the sign.
func AliveRef(taskID string) string { return TaskRefs(taskID) + "alive" }

// EvidenceRef names the newest commit of evidence files: pictures, logs of checks. Each
// attempt's has the one before as its parent, so that links to older ones stay good.
func EvidenceRef(taskID string) string { return TaskRefs(taskID) + "evidence" }

// ResultRef names the commit that holds the last attempt's result, events and logs. It has no parent: clones of all refs
// have one result of a task, not all of them.
func ResultRef(taskID string) string { return TaskRefs(taskID) + "result" }

// EventsGzip is EventsFile as that commit has it.
const EventsGzip = EventsFile + ".gz"

// CheckpointRef names the last snapshot of uncommitted work.
func CheckpointRef(taskID string) string { return TaskRefs(taskID) + "checkpoint" }

// KeptRef names work of the agent that is not part of the task's branch: a
// branch or tag of its own, or commits that it rewrote. A slash in the name becomes =2F: git
// has no room for a/b beside a, which may be what an earlier attempt left.
func KeptRef(taskID, name string) string {
	name = EscapeRef(name)
	if len(name) > maxKeptName {
		sum := sha256.Sum256([]byte(name))
		name = strings.ToValidUTF8(name[:maxKeptName-17], "") + "=" + hex.EncodeToString(sum[:8])
	}
	return TaskRefs(taskID) + "heads/" + name
}

// EscapeRef is a name as KeptRef writes it.
func EscapeRef(name string) string { return refEscapes.Replace(name) }

var refEscapes = strings.NewReplacer("=", "=3D", "/", "=2F")

// maxKeptName bounds a name of KeptRef, in bytes: a remote that keeps refs as files has
// room for 255, with its lock's suffix.
const maxKeptName = 200

// MaxAdded bounds State.Added, which all together are no longer than MaxTask: the
// newest are kept.
const MaxAdded = 50

// MaxAttempts bounds State.Attempts: the newest are kept.
const MaxAttempts = 50

// State is what the remote knows of a task. It is read leniently.
type State struct {
	Version int    `json:"version"`
	TaskID  string `json:"task_id"`
	Project string `json:"project"`
	Task    string `json:"task"` // what was asked for, byte for byte, secrets masked
	// Added is what was asked for later, oldest first.
	Added        []string  `json:"added,omitempty"`
	TargetBranch string    `json:"target_branch"`
	BaseBranch   string    `json:"base_branch"`
	BaseSHA      string    `json:"base_sha"`
	CreatedAt    time.Time `json:"created_at"`
	// Review is feedback that an attempt took on and has not answered yet: whoever goes on with the task
	// addresses it.
	Review *Review `json:"review,omitempty"`
	// ReviewedUntil is the newest text of feedback that was answered.
	ReviewedUntil time.Time `json:"reviewed_until,omitzero"`
	// Lease is who works on the task; nil means nobody.
	Lease *Lease `json:"lease"`
	// Attempts are the boxes so far, oldest first.
	Attempts []Attempt `json:"attempts"`
}

// Lease is the exclusive right to push to the task's refs. The holder moves AliveRef
// every CheckpointInterval, or LeaseRenewal when that is longer. A box that wants the lease watches
// AliveRef and StateRef for TTLSeconds on a clock of its own: clocks of two machines are never
// compared. A change of either means that the holder lives.
type Lease struct {
	AttemptID string `json:"attempt_id"`
	// Incarnation is what the holder drew when it began: the same order given to two boxes has one attempt and two holders.
	Incarnation string    `json:"incarnation,omitempty"`
	Holder      string    `json:"holder"`     // for people: the box's host name
	RenewedAt   time.Time `json:"renewed_at"` // when the state was last pushed
	TTLSeconds  float64   `json:"ttl_seconds"`
}

// LeaseRenewal is the longest time between two moves of AliveRef, and LeaseMisses of them
// in a row make a lease void: a remote that is away for a minute costs nobody the task.
const (
	LeaseRenewal = 30 * time.Second
	LeaseMisses  = 4
)

// Attempt is one box's try, as the remote knows it.
type Attempt struct {
	ID     string `json:"id"`
	Number int    `json:"number"` // from 1
	// Incarnation is the box's own (see Lease). Where another box began the same attempt again, it is the ID of the first one's.
	Incarnation string `json:"incarnation,omitempty"`
	Mode        Mode   `json:"mode"`
	// Status is empty while it runs, and lost when a later attempt found it gone.
	Status     Status     `json:"status"`
	EndedBy    EndedBy    `json:"ended_by"`
	Reasons    Reasons    `json:"reasons"` // the JSON has them as a Said, too
	ResumeAt   *time.Time `json:"resume_at"`
	StartedAt  time.Time  `json:"started_at"`
	EndedAt    time.Time  `json:"ended_at,omitzero"`
	HeadSHA    string     `json:"head_sha"`
	Agent      Agent      `json:"agent"`
	Usage      Usage      `json:"usage"`
	Validation []string   `json:"validation"` // commands that failed
	// Plan is what an attempt in ModePlan made.
	Plan string `json:"plan,omitempty"`
}

// Ending is how the attempt ended.
func (a *Attempt) Ending() Ending {
	return Ending{Status: a.Status, EndedBy: a.EndedBy, Reasons: a.Reasons}
}

// MarshalJSON writes the reasons as a list and as they are said.
func (a Attempt) MarshalJSON() ([]byte, error) {
	type plain Attempt // without this method
	c := plain(a)
	c.Reasons = orEmpty(c.Reasons)
	return json.Marshal(struct {
		plain
		Said
	}{c, a.Reasons.Said()})
}

// UnmarshalJSON reads what MarshalJSON writes, and states of older versions.
func (a *Attempt) UnmarshalJSON(b []byte) error {
	type plain Attempt // without this method
	both := struct {
		*plain
		Said
	}{plain: (*plain)(a)}
	err := json.Unmarshal(b, &both)
	a.Reasons = both.Listed(a.Reasons)
	return err
}

// SpentUSD is what all attempts together are known to have cost.
func (s *State) SpentUSD() (usd float64) {
	for i := range s.Attempts {
		if c := s.Attempts[i].Usage.CostUSD; c != nil {
			usd += *c
		}
	}
	return usd
}

// Last is the newest attempt that was recorded; nil when there is none.
func (s *State) Last() *Attempt {
	if len(s.Attempts) == 0 {
		return nil
	}
	return &s.Attempts[len(s.Attempts)-1]
}

// Find is the attempt of that id; nil when it is not known.
func (s *State) Find(id string) *Attempt {
	if i := slices.IndexFunc(s.Attempts, func(a Attempt) bool { return a.ID == id }); i >= 0 {
		return &s.Attempts[i]
	}
	return nil
}

// MaxState bounds a state, in bytes: a task text and its attempts.
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

// DecodeState reads a task's state. It comes from a remote that others can write
// to, so what names things is checked.
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
		return nil, fmt.Errorf("task state names the branch %q, which cannot be the one of %s", s.TargetBranch, taskID)
	case s.BaseBranch != "" && !ValidRefName(s.BaseBranch):
		return nil, fmt.Errorf("task state names the base branch %q", s.BaseBranch)
	case len(s.Added) > MaxAdded:
		return nil, fmt.Errorf("task state has %d additions, more than %d", len(s.Added), MaxAdded)
	}
	if s.Review != nil {
		var c check
		if s.Review.check(&c); len(c.errs) > 0 {
			return nil, fmt.Errorf("task state: %w", errors.Join(c.errs...))
		}
	}
	for _, text := range append([]string{s.Task}, s.Added...) {
		if err := checkText(text); err != nil {
			return nil, fmt.Errorf("task state: %w", err)
		}
	}
	return &s, nil
}
