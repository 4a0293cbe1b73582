package setupcache

import (
	"context"
	"fmt"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Task is a task's use of the snapshots: it knows the task's commit and which setup commands need not run.
type Task struct {
	*Store
	Order *workorder.Order
	// Say receives a line for people.
	Say func(text string)

	at   Commit // the commit that the work tree started from
	room Commit // that of the last clean checkout with files of an earlier setup; zero if it had none
}

// Mount mounts a fitting snapshot for a commit below a work tree without files, and returns git's index of it. Call it
// once. base is the task's branch. A run continues without a snapshot after an error.
func (t *Task) Mount(ctx context.Context, repo git.Repo, base, commit string) (index []byte, err error) {
	note := ""
	if t.at, err = Look(ctx, repo, commit, &t.Order.BoxSpec); err == nil {
		note, err = t.Store.Mount(ctx, Key{
			Project: t.Order.Repo, Branch: base + t.Order.SetupCache, Image: t.Order.ImageID, Digest: t.at.Key, Tree: t.at.Tree,
			Installs: t.installs(t.at) == len(t.Order.Setup),
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

// WouldSave reports whether Keep would store anything.
func (t *Task) WouldSave() bool { return t.Mounted() && !t.matches && !t.emptied }

// Restored reports whether an earlier setup's files are in the work tree or the home.
func (t *Task) Restored() bool { return t.under != nil }

// Skippable returns how many of setup's first commands need not run. In a rebase all run.
func (t *Task) Skippable(ctx context.Context) int {
	if t.WouldSave() {
		t.note(ctx)
	}
	if t.Order.Mode == workorder.ModeRebase {
		return 0
	}
	return t.done(t.at)
}

// done returns Skippable for a commit. If setup changed nothing outside the stored directories, all commands count for
// the same files; otherwise only installing ones for the same lock files, up to the first other command.
func (t *Task) done(c Commit) (n int) {
	fits, same := t.Matches()
	if !fits || c.Key != t.at.Key {
		return 0
	}
	if same && c.Tree == t.at.Tree {
		return len(t.Order.Setup)
	}
	n = t.installs(c)
	if n < len(t.Order.Setup) && t.under.Scratch {
		return 0 // commands that run must not find temporary files of earlier ones
	}
	return n
}

// installs returns how many setup commands, from the first on, only install.
func (t *Task) installs(c Commit) (n int) {
	for n < len(t.Order.Setup) && c.installsOnly(t.Order.Setup[n]) {
		n++
	}
	return n
}

// CheckoutStart describes the start of a clean checkout of a commit.
type CheckoutStart struct {
	Index []byte // git's index of the existing files; nil if there are none
	Done  int    // number of setup commands that need not run
	fits  bool
	all   bool // none need run
}

// CheckoutStart examines a commit. If its dependencies differ from those at the task's start, it starts empty.
func (t *Task) CheckoutStart(ctx context.Context, repo git.Repo, commit string) (CheckoutStart, error) {
	t.room = Commit{}
	if !t.Mounted() {
		return CheckoutStart{}, nil
	}
	c, err := Look(ctx, repo, commit, &t.Order.BoxSpec)
	if fits, _ := t.Matches(); err != nil || !fits || c.Key != t.at.Key {
		return CheckoutStart{}, err
	}
	t.room = c
	n := t.done(c)
	return CheckoutStart{Index: t.Index(), Done: n, fits: true, all: n == len(t.Order.Setup)}, nil
}

// KeepRoom adds what the checks wrote in the last clean checkout to its snapshot, unless that has such files already.
// why is the reason if nothing was stored.
func (t *Task) KeepRoom(ctx context.Context) (why, err error) {
	if t.room.Tree == "" || t.under.Warm {
		return nil, nil
	}
	return t.KeepFresh(ctx, t.room.Tree)
}

// Fresh recreates a directory for a clean checkout; bare with only the image's files.
func (t *Task) Fresh(path string, s CheckoutStart, bare bool) (at string, remove func(context.Context) error, ok bool, err error) {
	return t.Store.Fresh(path, s.fits, s.all, bare)
}
