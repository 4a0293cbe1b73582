// Package ledger keeps what root believes of the remote, in a file that every process of the box reads.
package ledger

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/repos"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Book is the ledger as the processes of a box use it. Ledger is nil before Load, or before the lease was taken.
type Book struct {
	*Ledger
	// Fence says whether the lease is still ours.
	Fence Fence
	// BoxID makes this box another holder of the lease than one that was given the same order.
	BoxID string

	repos *repos.Repos
	op    ctxMutex
	noted sync.Once // that the ledger cannot be written was said
}

// New makes it; nothing is read yet.
func New(r *repos.Repos) *Book { return &Book{repos: r} }

// Ledger is what we believe of the remote and hold of the task. It is a file of
// root's, so that rescue, another process, pushes with the same belief as boot.
type Ledger struct {
	// State is the task as the remote has it, under the commit Refs[StateRef].
	State *workorder.State `json:"state"`
	// Refs are the task's refs on the remote by full name: what a push may replace.
	Refs map[string]string `json:"refs"`
	// Checkpoint is the one among them, or nil.
	Checkpoint *workorder.Checkpoint `json:"checkpoint,omitempty"`
	// Pending is what a push under way makes of all that. It is written before the push:
	// whoever finds it has to ask the remote whether the push came to its end.
	Pending *Aim `json:"pending,omitempty"`
	// Tips are the last commits that we tried to make the branch's: one of them on
	// the remote is ours, however late the push that brought it was done there.
	Tips []string `json:"tips,omitempty"`
	// Sent are the last states that we pushed or tried to, by commit.
	Sent []string `json:"sent,omitempty"`
	// Foreign is the branch's commit on the remote that is none of ours.
	Foreign string `json:"foreign,omitempty"`
	// Replaced are the commits kept because the agent rewrote its branch, oldest first.
	Replaced []string `json:"replaced,omitempty"`
	// Keep are refs to push with the next save.
	Keep map[string]string `json:"keep,omitempty"`
	// Lost: another box has the lease. Nothing may be pushed any more.
	Lost bool `json:"lost,omitempty"`
	// Apart: the remote cannot change several refs at once.
	Apart bool `json:"apart,omitempty"`
	// RestoredTree is the work tree's hash and Start the commit under it as the run
	// began; RestoredTree is empty where nothing uncommitted was restored.
	RestoredTree string `json:"restored_tree,omitempty"`
	Start        string `json:"start,omitempty"`
	// Forced are restored files that are ignored: the agent had added them by force,
	// which the index of the new work tree does not say.
	Forced []string `json:"forced,omitempty"`
	// Settings are the agents' settings that are the base's while the agent works.
	Settings []Setting `json:"settings,omitempty"`
	// Committed: nothing but commits is left of what the agent did.
	Committed bool `json:"committed,omitempty"`
	// Hold is the ref that what would be the branch's goes to; empty: the branch is not held.
	Hold string `json:"hold,omitempty"`
	// Incarnation is this box's, for every process of it.
	Incarnation string `json:"incarnation,omitempty"`
	// Moved is the rebase whose commits are the branch's from now on.
	Moved *Moved `json:"moved,omitempty"`
}

// Aim is what a push makes of the remote.
type Aim struct {
	State      *workorder.State      `json:"state"`
	Refs       map[string]string     `json:"refs"` // "": deleted
	Checkpoint *workorder.Checkpoint `json:"checkpoint,omitempty"`
}

// LedgerFile is the path of the ledger.
func (bk *Book) LedgerFile() string { return filepath.Join(bk.repos.Dir, "ledger.json") }

// ErrUnclaimed is returned by Load where there is no ledger.
var ErrUnclaimed = errors.New("the task's lease was never taken in this sandbox")

// Load reads the ledger of the run, once.
func (bk *Book) Load() error {
	if bk.Ledger != nil {
		return nil
	}
	b, err := os.ReadFile(bk.LedgerFile())
	if errors.Is(err, os.ErrNotExist) {
		return ErrUnclaimed
	}
	if err != nil {
		return fmt.Errorf("read what the remote has: %w", err)
	}
	var l Ledger
	if err := json.Unmarshal(b, &l); err != nil {
		return fmt.Errorf("read what the remote has: %w", err)
	}
	if l.State == nil || l.Refs == nil {
		return fmt.Errorf("read what the remote has: %s is not complete", bk.LedgerFile())
	}
	bk.Ledger, bk.BoxID = &l, l.Incarnation
	bk.Fence.sending(l.Sent...)
	if l.Lost {
		bk.Fence.Lose(l.State.Lease, func() {}) // whoever wrote the ledger has said it
	}
	return nil
}

// Store writes the ledger; a reader sees the old or the new one.
func (bk *Book) Store() error {
	b, err := json.Marshal(bk.Ledger)
	if err != nil {
		return fmt.Errorf("note what the remote has: %w", err)
	}
	f := bk.LedgerFile()
	write := func() error {
		if err := os.WriteFile(f+".new", b, 0o600); err != nil {
			return err
		}
		return os.Rename(f+".new", f)
	}
	if err = write(); err != nil && bk.Unreserve() {
		err = write()
	}
	if err != nil {
		return fmt.Errorf("note what the remote has: %w", err)
	}
	return nil
}

// Note is Store where work is at stake, which counts more than what we note of it: the
// remote can be asked again.
func (bk *Book) Note() {
	if err := bk.Store(); err != nil {
		bk.noted.Do(func() {
			bk.repos.Emit(workorder.Event{Type: workorder.EventWarning, Text: err.Error() + "; the work is pushed all the same"})
		})
	}
}

// Number is our attempt's.
func (bk *Book) Number() int {
	if a := bk.State.Find(bk.repos.Order.AttemptID); a != nil {
		return a.Number
	}
	return 0
}

// Branch is the task's branch. A continued task's is what the remote knows,
// whatever the order calls it.
func (bk *Book) Branch() string {
	if bk.Ledger != nil {
		return bk.State.TargetBranch
	}
	return bk.repos.Order.TargetBranch
}

// Record makes the commit of a state. It has no parent: a task of thousand
// saves leaves one commit on the remote.
func (bk *Book) Record(ctx context.Context, s *workorder.State) (string, error) {
	b, err := s.Encode()
	if err != nil {
		return "", err
	}
	commit, err := bk.writeState(ctx, s.TaskID, b)
	if err != nil && bk.Unreserve() {
		commit, err = bk.writeState(ctx, s.TaskID, b)
	}
	return commit, err
}

func (bk *Book) writeState(ctx context.Context, taskID string, b []byte) (string, error) {
	r := bk.repos.Outbox()
	r.Stdin = string(b)
	blob, err := r.Output(ctx, "hash-object", "-w", "--stdin")
	if err != nil {
		return "", fmt.Errorf("write task state: %w", err)
	}
	r.Stdin = fmt.Sprintf("100644 blob %s\t%s\n", bytes.TrimSpace(blob), workorder.StateFile)
	tree, err := r.Output(ctx, "mktree")
	if err != nil {
		return "", fmt.Errorf("write task state: %w", err)
	}
	r.Stdin = ""
	commit, err := r.Output(ctx, "commit-tree", "-m", "State of task "+taskID, string(bytes.TrimSpace(tree)))
	if err != nil {
		return "", fmt.Errorf("write task state: %w", err)
	}
	return string(bytes.TrimSpace(commit)), nil
}

// ReadState reads the state that a commit of a repository of ours holds.
func (bk *Book) ReadState(ctx context.Context, r git.Repo, commit string) (*workorder.State, error) {
	out, err := r.Output(ctx, "cat-file", "blob", commit+":"+workorder.StateFile)
	if err != nil {
		return nil, fmt.Errorf("read task state: %w", err)
	}
	return workorder.DecodeState(out, bk.repos.Order.TaskID)
}

// CopyState is a state that can be changed without changing s.
func CopyState(s *workorder.State) *workorder.State {
	c := *s
	c.Attempts, c.Added = slices.Clone(s.Attempts), slices.Clone(s.Added)
	if s.Lease != nil {
		l := *s.Lease
		c.Lease = &l
	}
	return &c
}

// Lease is a lease of ours as of now.
func (bk *Book) Lease() *workorder.Lease {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return &workorder.Lease{
		AttemptID: bk.repos.Order.AttemptID, Incarnation: bk.BoxID, Holder: host, RenewedAt: time.Now().UTC(),
		TTLSeconds: (workorder.LeaseMisses * bk.Renewal()).Seconds(),
	}
}

// Renewal is the time between two signs of life.
func (bk *Book) Renewal() time.Duration {
	return min(bk.repos.Order.CheckpointInterval(), workorder.LeaseRenewal)
}

// A branch that an agent wrote may hold settings, hooks and MCP servers that the next agent would
// obey before it reads its task. While an agent works on a continued task these files are
// those of the base branch. Nothing of that may become a commit: what the branch has is noted in the ledger,
// and whatever is made of the work tree has the branch's version for as long as the agent has not changed the file itself.

// Setting is a file that the branch has otherwise than the base. Entries are "mode id" as git
// has them; "": there is none.
type Setting struct {
	Path   string `json:"path"`
	Base   string `json:"base,omitempty"`   // what we put into the work tree
	Branch string `json:"branch,omitempty"` // what was there
	Start  string `json:"start,omitempty"`  // what the commit has on which the attempt began
}

// A rebase makes commits that are worth nothing until they are all there and were checked. While the branch is held,
// whatever saves or lands (a timer, a signal, rescue in another process) brings what there is to a ref beside it.

// Moved is a rebase that was found to be good.
type Moved struct {
	// Branch and Base are the new base branch and its commit, Head is the new head.
	Branch string `json:"branch"`
	Base   string `json:"base"`
	Head   string `json:"head"`
	// OldHead is what Head replaces, and Backup the ref that keeps it.
	OldHead string `json:"old_head"`
	Backup  string `json:"backup"`

	// Beside is where the branch was held until now.
	Beside string `json:"beside,omitempty"`
}
