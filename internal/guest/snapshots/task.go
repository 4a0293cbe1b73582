package snapshots

import (
	"context"
	"fmt"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Task is a task's use of the snapshots: which commit it has, and which setup commands need not run.
type Task struct {
	*Store
	Order *workorder.Order
	// Say takes a line for people.
	Say func(text string)

	at Commit // the commit that the work tree began with
}

// Lay puts what fits a commit, of a task that began on the branch base, below a work tree that has no files yet, and returns git's index of
// it. Call it once. A run goes on without what cannot be laid.
func (t *Task) Lay(ctx context.Context, repo git.Repo, base, commit string) (index []byte, err error) {
	note := ""
	if t.at, err = Look(ctx, repo, commit, &t.Order.Spec); err == nil {
		note, err = t.Store.Lay(ctx, Want{Project: t.Order.Repo, Branch: base, Image: t.Order.ImageID, Key: t.at.Key, Tree: t.at.Tree})
	}
	if err != nil {
		note = fmt.Sprintf("not used: %v", err)
	}
	if len(t.Order.Setup) > 0 || err != nil {
		t.Say("setup cache: " + note)
	}
	return t.Index(), ctx.Err()
}

// Keeps reports whether Keep would keep anything.
func (t *Task) Keeps() bool { return len(t.kept()) > 0 && !t.fits && !t.emptied }

// Over reports whether an earlier setup's files are in the work tree.
func (t *Task) Over() bool { return t.fits }

// Begin is called before setup. It returns how many of its commands, from the first on, need not run.
func (t *Task) Begin() int {
	t.note()
	return t.done(t.at)
}

// done is Done for a commit. Where setup did nothing beside the folders that were kept, all of it counts for the same files; else a command
// that only installs what the same lock files name. One that runs may undo what a later one did, so that later ones run, too.
func (t *Task) done(c Commit) (n int) {
	fits, same := t.Fits()
	if !fits || c.Key != t.at.Key {
		return 0
	}
	if same && c.Tree == t.at.Tree {
		return len(t.Order.Setup)
	}
	for n < len(t.Order.Setup) && c.installsOnly(t.Order.Setup[n]) {
		n++
	}
	return n
}

// Side is what a clean checkout of a commit begins with.
type Side struct {
	Index []byte // git's, of the files that are there; nil if there are none
	Done  int    // how many setup commands need not run
	fits  bool
}

// Side looks at a commit. Where it names other dependencies than the task's beginning, its work tree begins with nothing.
func (t *Task) Side(ctx context.Context, repo git.Repo, commit string) (Side, error) {
	if !t.Laid() {
		return Side{}, nil
	}
	c, err := Look(ctx, repo, commit, &t.Order.Spec)
	if fits, _ := t.Fits(); err != nil || !fits || c.Key != t.at.Key {
		return Side{}, err
	}
	return Side{Index: t.Index(), Done: t.done(c), fits: true}, nil
}

// Fits reports whether the work tree has its layers.
func (s Side) Fits() bool { return s.fits }
