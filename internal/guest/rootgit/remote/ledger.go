package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/atomicfile"
	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Ledger is root's record of the remote and of the task, for all processes of a box. It is empty before Load or Begin.
type Ledger struct {
	*ledgerData
	// Fence reports whether this box still holds the lease.
	Fence Fence
	// BoxID distinguishes this box from another one with the same order.
	BoxID string

	// mayBeat means that another process or an earlier attempt may have left a heartbeat on the remote.
	mayBeat bool

	repos *Repos
	op    ctxMutex
	noted sync.Once // a failure to write the ledger was reported
}

// ledgerData is root's view of the remote and of the task, in a file that rescue, another process, reads.
type ledgerData struct {
	// State is the task's state on the remote, in the commit Refs[StateRef].
	State *workorder.State `json:"state"`
	// Refs are the task's refs on the remote by full name, as last seen: the old values for a push.
	Refs map[string]string `json:"refs"`
	// Checkpoint is the checkpoint among them, or nil.
	Checkpoint *workorder.Checkpoint `json:"checkpoint,omitempty"`
	// Pending is the result of the push under way, written before it: a reader has to ask the remote for the outcome.
	Pending *PushTarget `json:"pending,omitempty"`
	// Tips are the last commits that this box tried to push to the branch; a push may take effect late.
	Tips []string `json:"tips,omitempty"`
	// Sent are the last states that this box pushed or tried to push, by commit.
	Sent []string `json:"sent,omitempty"`
	// Foreign is the branch's commit on the remote if this box did not push it.
	Foreign string `json:"foreign,omitempty"`
	// Replaced are the commits kept because the agent rewrote its branch, oldest first.
	Replaced []string `json:"replaced,omitempty"`
	// Keep are refs to push with the next save.
	Keep map[string]string `json:"keep,omitempty"`
	// Lost means that another box has the lease. Nothing more may be pushed.
	Lost bool `json:"lost,omitempty"`
	// Apart means that the remote cannot change several refs at once.
	Apart bool `json:"apart,omitempty"`
	// RestoredTree is the work tree's hash at the start, empty if nothing was restored; Start is the commit under it.
	RestoredTree string `json:"restored_tree,omitempty"`
	Start        string `json:"start,omitempty"`
	// Forced are restored files that are ignored: the agent had added them by force.
	Forced []string `json:"forced,omitempty"`
	// Settings are the agents' settings that have the base's version while the agent works.
	Settings []ConfigFile `json:"settings,omitempty"`
	// Committed means that all of the agent's work is in commits.
	Committed bool `json:"committed,omitempty"`
	// Hold is the ref that receives the branch's commits while the branch is held; empty if it is not.
	Hold string `json:"hold,omitempty"`
	// Incarnation identifies this box, in all of its processes.
	Incarnation string `json:"incarnation,omitempty"`
	// Moved is the rebase whose commits become the branch's.
	Moved *RebaseResult `json:"moved,omitempty"`
}

// PushTarget is the remote's state after a push.
type PushTarget struct {
	State      *workorder.State      `json:"state"`
	Refs       map[string]string     `json:"refs"` // an empty id means deleted
	Checkpoint *workorder.Checkpoint `json:"checkpoint,omitempty"`
}

func (l *Ledger) file() string { return filepath.Join(l.repos.Dir, "ledger.json") }

// Begin replaces the ledger by that of a new attempt, with the remote's refs as last seen. Store writes it.
func (l *Ledger) Begin(state *workorder.State, refs map[string]string) {
	l.ledgerData = &ledgerData{State: state, Refs: maps.Clone(refs), Incarnation: l.BoxID}
	l.mayBeat = len(state.Attempts) > 1
}

// Discard removes the ledger of an attempt that did not get the lease.
func (l *Ledger) Discard() error {
	l.ledgerData = nil
	return os.Remove(l.file())
}

// Claimed reports whether the ledger has been read, or begun by a claim.
func (l *Ledger) Claimed() bool { return l.ledgerData != nil }

// ErrUnclaimed is returned by Load if there is no ledger.
var ErrUnclaimed = errors.New("this sandbox never took the task's lease")

// Load reads the ledger of the run, once.
func (l *Ledger) Load() error {
	if l.ledgerData != nil {
		return nil
	}
	b, err := os.ReadFile(l.file())
	if errors.Is(err, os.ErrNotExist) {
		return ErrUnclaimed
	}
	if err != nil {
		return fmt.Errorf("read the ledger: %w", err)
	}
	var d ledgerData
	if err := json.Unmarshal(b, &d); err != nil {
		return fmt.Errorf("read the ledger: %w", err)
	}
	if d.State == nil || d.Refs == nil {
		return fmt.Errorf("read the ledger: %s is incomplete", l.file())
	}
	l.ledgerData, l.BoxID, l.mayBeat = &d, d.Incarnation, true
	l.Fence.sending(l.Sent...)
	if l.Lost {
		l.Fence.markLost(l.State.Lease, func() {}) // the process that wrote the ledger has reported it
	}
	return nil
}

// Store writes the ledger atomically: a reader sees the old or the new one.
func (l *Ledger) Store() error {
	b, err := json.Marshal(l.ledgerData)
	if err != nil {
		return fmt.Errorf("write the ledger: %w", err)
	}
	f := l.file()
	if err = atomicfile.Write(f, b, 0o600); err != nil && l.Unreserve() {
		err = atomicfile.Write(f, b, 0o600)
	}
	if err != nil {
		return fmt.Errorf("write the ledger: %w", err)
	}
	return nil
}

// StoreBestEffort is Store without an error: the remote can be queried again.
func (l *Ledger) StoreBestEffort() {
	if err := l.Store(); err != nil {
		l.noted.Do(func() {
			l.repos.Warn("%v; the work is pushed all the same", err)
		})
	}
}

// KeepRef makes the next save push a ref.
func (l *Ledger) KeepRef(ref, sha string) {
	if l.Keep == nil {
		l.Keep = map[string]string{}
	}
	l.Keep[ref] = sha
}

// AttemptNumber returns the number of this box's attempt.
func (l *Ledger) AttemptNumber() int {
	if a := l.State.Find(l.repos.Order.AttemptID); a != nil {
		return a.Number
	}
	return 0
}

// Branch returns the task's branch; for a continued task it is the remote's.
func (l *Ledger) Branch() string {
	if l.ledgerData != nil {
		return l.State.TargetBranch
	}
	return l.repos.Order.TargetBranch
}

// Record creates the commit of a state, without a parent, so that a thousand saves leave one commit.
func (l *Ledger) Record(s *workorder.State) (string, error) {
	b, err := s.Encode()
	if err != nil {
		return "", err
	}
	commit, err := l.writeState(s.TaskID, b)
	if err != nil && l.Unreserve() {
		commit, err = l.writeState(s.TaskID, b)
	}
	return commit, err
}

func (l *Ledger) writeState(taskID string, b []byte) (string, error) {
	r := l.repos.Outbox()
	blob, err := r.WriteBlob(b)
	if err != nil {
		return "", fmt.Errorf("write task state: %w", err)
	}
	commit, err := r.WriteCommit(map[string]string{workorder.StateFile: blob}, Signature, "State of task "+taskID, "")
	if err != nil {
		return "", fmt.Errorf("write task state: %w", err)
	}
	return commit, nil
}

// ReadState reads the state from a commit in one of root's repositories.
func (l *Ledger) ReadState(ctx context.Context, r git.Repo, commit string) (*workorder.State, error) {
	out, err := r.Output(ctx, "cat-file", "blob", commit+":"+workorder.StateFile)
	if err != nil {
		return nil, fmt.Errorf("read task state: %w", err)
	}
	return workorder.DecodeState(out, l.repos.Order.TaskID)
}

// CopyState returns a deep copy of s.
func CopyState(s *workorder.State) *workorder.State {
	c := *s
	c.Attempts, c.Added = slices.Clone(s.Attempts), slices.Clone(s.Added)
	if s.Lease != nil {
		l := *s.Lease
		c.Lease = &l
	}
	return &c
}

// Lease returns a lease of this box, renewed now.
func (l *Ledger) Lease() *workorder.TaskLease {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return &workorder.TaskLease{
		AttemptID: l.repos.Order.AttemptID, Incarnation: l.BoxID, Holder: host, RenewedAt: time.Now().UTC(),
		TTLSeconds: (workorder.LeaseMisses * l.renewal()).Seconds(),
	}
}

func (l *Ledger) renewal() time.Duration {
	return min(l.repos.Order.CheckpointInterval(), workorder.LeaseRenewal)
}

// An agent could write settings, hooks and MCP servers that the next agent obeys before it reads its task. While an
// agent works on a continued task, these files have the base branch's version. Snapshots and commits have the branch's
// version, which the ledger records, unless the agent changed the file itself.

// ConfigFile is a file that differs between branch and base. Entries are "mode id", empty if the file is absent.
type ConfigFile struct {
	Path   string `json:"path"`
	Base   string `json:"base,omitempty"`   // the version that replaced it in the work tree
	Branch string `json:"branch,omitempty"` // the original version
	Start  string `json:"start,omitempty"`  // the version in the attempt's first commit
}

// While a rebase is unfinished, the branch is held: every save or landing pushes to a ref next to it.

// RebaseResult is a rebase that passed its checks.
type RebaseResult struct {
	// Branch and Base are the new base branch and its commit, Head is the new head.
	Branch string `json:"branch"`
	Base   string `json:"base"`
	Head   string `json:"head"`
	// OldHead is the head that Head replaces, and Backup the ref that keeps it.
	OldHead string `json:"old_head"`
	Backup  string `json:"backup"`

	// Beside is the ref used while the branch was held.
	Beside string `json:"beside,omitempty"`
}

// IsOwn reports whether a state has this box's lease, or records the end of its attempt as the last one.
func (l *Ledger) IsOwn(s *workorder.State) bool {
	if s.Lease != nil {
		return l.Holds(s.Lease)
	}
	last := s.Last()
	return last != nil && last == l.OwnAttempt(s)
}

// Holds reports whether a lease is this box's.
func (l *Ledger) Holds(lease *workorder.TaskLease) bool {
	return lease.AttemptID == l.repos.Order.AttemptID && lease.Incarnation == l.BoxID
}

// OwnAttempt returns this box's attempt in a state; nil if there is none.
func (l *Ledger) OwnAttempt(s *workorder.State) *workorder.Attempt {
	if a := s.Find(l.repos.Order.AttemptID); a != nil && a.Incarnation == l.BoxID {
		return a
	}
	if l.BoxID == "" {
		return nil
	}
	return s.Find(l.BoxID)
}

// endedIn reports whether this box's attempt ended, according to the state, before another one began.
func (l *Ledger) endedIn(s *workorder.State) bool {
	a := l.OwnAttempt(s)
	return a != nil && a.Status != "" && a.Status != workorder.StatusLost
}

// Sending records a state that may be on the remote from now on.
func (l *Ledger) Sending(commit string) {
	l.Sent = append(l.Sent[max(0, len(l.Sent)-maxSent+1):], commit)
	l.Fence.sending(commit)
}

// An agent can fill the disk. The ledger reserves some space with the lease and frees it when needed.

// reserveBytes is enough for some hundred states and heartbeats.
const reserveBytes = 4 << 20

func (l *Ledger) reserveFile() string { return filepath.Join(l.repos.Dir, "reserve") }

// Reserve takes the space; a failure is ignored.
func (l *Ledger) Reserve() { _ = os.WriteFile(l.reserveFile(), make([]byte, reserveBytes), 0o600) }

// Unreserve frees the space; freed reports whether there was any.
func (l *Ledger) Unreserve() (freed bool) { return os.Remove(l.reserveFile()) == nil }

// ctxMutex is a mutex whose Lock ends with a context: a hanging push may hold it for minutes. The zero value is free.
type ctxMutex struct {
	once  sync.Once
	taken chan struct{}
}

func (m *ctxMutex) lock(ctx context.Context) error {
	m.once.Do(func() { m.taken = make(chan struct{}, 1) })
	if ctx.Err() == nil {
		select {
		case m.taken <- struct{}{}:
			return nil
		case <-ctx.Done():
		}
	}
	return fmt.Errorf("wait for the running save: %w", context.Cause(ctx))
}

func (m *ctxMutex) unlock() { <-m.taken }

// Lock protects the index and the ledger against a concurrent AutoSaver. It fails when ctx ends.
func (l *Ledger) Lock(ctx context.Context) error { return l.op.lock(ctx) }

// Unlock releases Lock.
func (l *Ledger) Unlock() { l.op.unlock() }
