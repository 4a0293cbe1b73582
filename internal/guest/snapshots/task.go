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
		note, err = t.Store.Lay(ctx, Want{
			Project: t.Order.Repo, Branch: base, Image: t.Order.ImageID, Key: t.at.Key, Tree: t.at.Tree, Installs: t.installs(t.at) == len(t.Order.Setup),
		})
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
func (t *Task) Keeps() bool { return len(t.laid) > 0 && !t.fits && !t.emptied }

// Over reports whether an earlier setup's files are in the work tree or the home.
func (t *Task) Over() bool { return t.under != nil }

// Begin is called before setup. It returns how many of its commands, from the first on, need not run. In a rebase all run: the work tree is no
// longer the commit that was looked at.
func (t *Task) Begin(ctx context.Context) int {
	if t.Keeps() {
		t.note(ctx)
	}
	if t.Order.Mode == workorder.ModeRebase {
		return 0
	}
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
	n = t.installs(c)
	if n < len(t.Order.Setup) && t.under.Scratch {
		return 0 // the temporary files that a command left are not there for those that run
	}
	return n
}

// installs is how many setup commands, from the first on, only install.
func (t *Task) installs(c Commit) (n int) {
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
	all   bool // none need run
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
	n := t.done(c)
	return Side{Index: t.Index(), Done: n, fits: true, all: n == len(t.Order.Setup)}, nil
}

// Fresh makes a place for a side once more, bare with nothing but the image's files.
func (t *Task) Fresh(path string, s Side, bare bool) (at string, remove func(context.Context) error, ok bool, err error) {
	return t.Store.Fresh(path, s.fits, s.all, bare)
}
