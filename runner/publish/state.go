package publish

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// ledger is what we believe of the remote and hold of the task. It is a file of
// root's, so that rescue, another process, pushes with the same belief as boot.
type ledger struct {
	// State is the task as the remote has it, under the commit Refs[StateRef].
	State *workorder.State `json:"state"`
	// Refs are the task's refs on the remote by full name: what a push may replace.
	Refs map[string]string `json:"refs"`
	// Checkpoint is the one among them, or nil.
	Checkpoint *workorder.Checkpoint `json:"checkpoint,omitempty"`
	// Pending is what a push under way makes of all that. It is written before the push:
	// whoever finds it has to ask the remote whether the push came to its end.
	Pending *aim `json:"pending,omitempty"`
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
	Settings []setting `json:"settings,omitempty"`
	// Committed: nothing but commits is left of what the agent did.
	Committed bool `json:"committed,omitempty"`
	// Hold is the ref that what would be the branch's goes to; empty: the branch is not held.
	Hold string `json:"hold,omitempty"`
	// Incarnation is this box's, for every process of it.
	Incarnation string `json:"incarnation,omitempty"`
	// Moved is the rebase whose commits are the branch's from now on.
	Moved *Moved `json:"moved,omitempty"`
}

// aim is what a push makes of the remote.
type aim struct {
	State      *workorder.State      `json:"state"`
	Refs       map[string]string     `json:"refs"` // "": deleted
	Checkpoint *workorder.Checkpoint `json:"checkpoint,omitempty"`
}

func (p *Publisher) ledgerFile() string { return filepath.Join(p.Dir, "ledger.json") }

var errUnclaimed = errors.New("the task's lease was never taken in this box")

// load reads the ledger of the run, once.
func (p *Publisher) load() error {
	if p.led != nil {
		return nil
	}
	b, err := os.ReadFile(p.ledgerFile())
	if errors.Is(err, os.ErrNotExist) {
		return errUnclaimed
	}
	if err != nil {
		return fmt.Errorf("read what the remote has: %w", err)
	}
	var l ledger
	if err := json.Unmarshal(b, &l); err != nil {
		return fmt.Errorf("read what the remote has: %w", err)
	}
	if l.State == nil || l.Refs == nil {
		return fmt.Errorf("read what the remote has: %s is not complete", p.ledgerFile())
	}
	p.led, p.incarnation = &l, l.Incarnation
	p.pulse.sending(l.Sent...)
	if l.Lost {
		p.pulse.lose(l.State.Lease, func() {}) // whoever wrote the ledger has said it
	}
	return nil
}

// store writes the ledger; a reader sees the old or the new one.
func (p *Publisher) store() error {
	b, err := json.Marshal(p.led)
	if err != nil {
		return fmt.Errorf("note what the remote has: %w", err)
	}
	f := p.ledgerFile()
	write := func() error {
		if err := os.WriteFile(f+".new", b, 0o600); err != nil {
			return err
		}
		return os.Rename(f+".new", f)
	}
	if err = write(); err != nil && p.unreserve() {
		err = write()
	}
	if err != nil {
		return fmt.Errorf("note what the remote has: %w", err)
	}
	return nil
}

// jot is store where work is at stake, which counts more than what we note of it: the
// remote can be asked again.
func (p *Publisher) jot() {
	if err := p.store(); err != nil {
		p.jotted.Do(func() {
			p.Emit(workorder.Event{Type: workorder.EventWarning, Text: err.Error() + "; the work is pushed all the same"})
		})
	}
}

// number is our attempt's.
func (p *Publisher) number() int {
	if a := p.led.State.Find(p.Order.AttemptID); a != nil {
		return a.Number
	}
	return 0
}

// branch is the task's branch. A continued task's is what the remote knows,
// whatever the order calls it.
func (p *Publisher) branch() string {
	if p.led != nil {
		return p.led.State.TargetBranch
	}
	return p.Order.TargetBranch
}

func (p *Publisher) outbox() git.Repo {
	return git.Repo{Dir: p.outboxDir(), Bare: true, Env: []string{
		"GIT_AUTHOR_NAME=" + signer, "GIT_AUTHOR_EMAIL=" + signer + "@localhost",
		"GIT_COMMITTER_NAME=" + signer, "GIT_COMMITTER_EMAIL=" + signer + "@localhost",
	}}
}

// signer is the author of states and checkpoints.
const signer = "sandbox-agent"

// record makes the commit of a state. It has no parent: a task of thousand
// saves leaves one commit on the remote.
func (p *Publisher) record(ctx context.Context, s *workorder.State) (string, error) {
	b, err := s.Encode()
	if err != nil {
		return "", err
	}
	commit, err := p.writeState(ctx, s.TaskID, b)
	if err != nil && p.unreserve() {
		commit, err = p.writeState(ctx, s.TaskID, b)
	}
	return commit, err
}

func (p *Publisher) writeState(ctx context.Context, taskID string, b []byte) (string, error) {
	r := p.outbox()
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

// readState reads the state that a commit of a repository of ours holds.
func (p *Publisher) readState(ctx context.Context, r git.Repo, commit string) (*workorder.State, error) {
	out, err := r.Output(ctx, "cat-file", "blob", commit+":"+workorder.StateFile)
	if err != nil {
		return nil, fmt.Errorf("read task state: %w", err)
	}
	return workorder.DecodeState(out, p.Order.TaskID)
}

// clean masks secrets in what leaves the box.
func (p *Publisher) clean(s string) string {
	if p.Clean == nil {
		return s
	}
	return p.Clean(s)
}

// copyState is a state that can be changed without changing s.
func copyState(s *workorder.State) *workorder.State {
	c := *s
	c.Attempts, c.Added = slices.Clone(s.Attempts), slices.Clone(s.Added)
	if s.Lease != nil {
		l := *s.Lease
		c.Lease = &l
	}
	return &c
}

// lease is a lease of ours as of now.
func (p *Publisher) lease() *workorder.Lease {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return &workorder.Lease{
		AttemptID: p.Order.AttemptID, Incarnation: p.incarnation, Holder: host, RenewedAt: time.Now().UTC(),
		TTLSeconds: (workorder.LeaseMisses * p.renewal()).Seconds(),
	}
}

// renewal is the time between two signs of life.
func (p *Publisher) renewal() time.Duration {
	return min(p.Order.CheckpointInterval(), workorder.LeaseRenewal)
}

// ended puts the end of our attempt into a state and gives the lease back.
func (p *Publisher) ended(s *workorder.State, end workorder.Attempt) {
	end.ID = p.Order.AttemptID
	end.Reason, end.Agent.Final, end.Plan = p.clean(end.Reason), p.clean(end.Agent.Final), p.clean(end.Plan)
	if a := s.Find(end.ID); a != nil {
		end.Number, end.Mode, end.StartedAt, end.Incarnation = a.Number, a.Mode, a.StartedAt, a.Incarnation
		*a = end
	} else {
		s.Attempts = append(s.Attempts, end)
	}
	s.Lease = nil
	if p.Answered {
		p.answered(s, end.HeadSHA)
	}
}

// taskRefs lists the refs of the task that a repository or remote has: the output of
// ls-remote or for-each-ref with "id<white space>name" per line.
func taskRefs(out []byte, taskID, branch string) map[string]string {
	refs := map[string]string{}
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		if len(f) == 2 && git.ValidSHA(f[0]) && (strings.HasPrefix(f[1], workorder.TaskRefs(taskID)) || f[1] == workorder.BranchRef(branch)) {
			refs[f[1]] = f[0]
		}
	}
	return refs
}
