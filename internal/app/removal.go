package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/forge"
	"github.com/sandbox-agent/sandbox-agent/internal/host/credentials"
	"github.com/sandbox-agent/sandbox-agent/internal/host/gc"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/outcome"
	"github.com/sandbox-agent/sandbox-agent/internal/host/localrepo"
	"github.com/sandbox-agent/sandbox-agent/internal/host/tasks"
	"github.com/sandbox-agent/sandbox-agent/internal/host/taskstore"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Removal is how a task is removed.
type Removal struct {
	// Force also removes a task that runs, is on another engine or has a damaged record.
	Force bool
	// Branch also deletes the task's branch and refs on the remote. Without Force, an open pull request of the branch is
	// an error, and so are commits that exist nowhere else, unless a person agrees.
	Branch bool
}

// RemovedTask is a task that was removed.
type RemovedTask struct {
	TaskID string `json:"removed"`
	// Refs are those that were deleted on the remote, with the objects that they had; those of a further repository begin
	// with its name and a colon.
	Refs map[string]string `json:"refs,omitempty"`
}

// Remove removes a task. It deletes the refs on the remote before the record, so that an interrupted removal can be
// repeated.
func (t *Tasks) Remove(ctx context.Context, id string, r Removal) (done RemovedTask, err error) {
	st, rec, err := t.Find(ctx, id)
	if damaged, ok := errors.AsType[*taskstore.DamagedError](err); ok && r.Force {
		if r.Branch {
			return done, exiterr.New(workorder.ExitGeneral, fmt.Errorf("the damaged record does not say where the branch is: %w", err),
				"remove the record with: sandbox-agent rm --force "+damaged.TaskID+"; then the refs as \"Forget a task\" in docs/tasks.md says")
		}
		done.TaskID = damaged.TaskID
		return done, removeDamaged(ctx, t, st, damaged.TaskID)
	}
	if err != nil {
		return done, err
	}
	done.TaskID = rec.TaskID
	d := deletion{t, st, rec, r.Force}
	var on []taskRefs
	if r.Branch {
		if err := d.mustNotRun(ctx); err != nil {
			return done, err
		}
		if on, err = d.deletable(ctx); err != nil {
			return done, err
		}
	}
	if err := d.discard(ctx); err != nil {
		return done, err
	}
	for _, on := range on {
		if len(on.refs) == 0 {
			continue
		}
		if err := on.remote.DeleteRefs(ctx, on.refs); err != nil {
			return done, err
		}
		if done.Refs == nil {
			done.Refs = map[string]string{}
		}
		for ref, object := range on.refs {
			done.Refs[on.name+ref] = object
		}
	}
	return done, st.Remove(rec)
}

// deletion is the removal of one task that has a record.
type deletion struct {
	*Tasks
	st    *taskstore.Store
	rec   *taskstore.Record
	force bool
}

// mustNotRun returns an error for a task that runs, before anything is asked about it.
func (d deletion) mustNotRun(ctx context.Context) error {
	if d.rec.Collected || d.force {
		return nil
	}
	s, err := d.State(ctx, d.rec)
	if err == nil && slices.Contains([]string{"starting", "running", "collecting"}, s.Status) {
		return runningError(d.rec, fmt.Errorf("task %s: %w", d.rec.TaskID, launch.ErrRunning))
	}
	return err
}

func runningError(rec *taskstore.Record, err error) error {
	return exiterr.New(workorder.ExitGeneral, err,
		"stop it first (`sandbox-agent stop "+rec.TaskID+"`) or remove it at once with: sandbox-agent rm --force "+rec.TaskID)
}

// discard removes the task's boxes.
func (d deletion) discard(ctx context.Context) error {
	if d.rec.Collected && !slices.ContainsFunc(d.rec.Attempts(), func(a taskstore.Attempt) bool { return a.Keep || a.MayStillRun }) {
		return nil
	}
	be, err := d.Engine()
	if err != nil {
		return err
	}
	left, err := d.launcher(be, d.st, nil).Discard(ctx, d.rec, d.force)
	switch {
	case errors.Is(err, launch.ErrRunning):
		return runningError(d.rec, err)
	case err != nil:
		return err
	case !d.rec.Collected:
		// Its own CLI, if it lives, collects now; the directory is removed after that.
		if _, err := d.stopping(d.st).EndBox(ctx, d.rec, 0); err != nil && (!d.force || !errors.Is(err, launch.ErrOtherEngine)) {
			return err
		}
	}
	for _, box := range left {
		d.Warn("left behind: " + box + ": `sandbox-agent gc` with that engine removes it when it has ended")
	}
	return nil
}

// removeDamaged removes the rest of a task whose record is damaged. An output outside of its directory stays, as only
// the record knew its path.
func removeDamaged(ctx context.Context, t *Tasks, st *taskstore.Store, id string) error {
	be, err := t.Engine()
	if err != nil {
		return err
	}
	lock, err := st.TryLock(id)
	if err != nil {
		return exiterr.New(workorder.ExitGeneral, err, "end that command first")
	}
	defer lock.Unlock()
	boxes, err := gc.OwnInstances(ctx, be.Engine, st, map[string]string{workorder.LabelTask: id})
	if err != nil {
		return err
	}
	for _, b := range boxes {
		if err := be.Engine.Remove(ctx, b.ID); err != nil {
			return err
		}
	}
	return st.Remove(&taskstore.Record{TaskID: id})
}

// refRemote is a remote whose refs can be deleted.
type refRemote interface {
	tasks.Git
	DeleteRefs(ctx context.Context, refs map[string]string) error
}

// taskRefs are the refs of a task on its remote.
type taskRefs struct {
	name   string // of a further repository, and a colon
	remote refRemote
	refs   map[string]string // the objects by their full names
}

// deletable returns the refs of a task that may be deleted.
func (d deletion) deletable(ctx context.Context) (all []taskRefs, err error) {
	order, err := outcome.ReadOrder(d.rec.Dir)
	if err != nil {
		order = &workorder.Order{}
	}
	repo := cmp.Or(d.rec.LocalRepo, d.rec.Repo, order.Repo)
	if repo == "" { // it has no repository, so no branch
		return nil, nil
	}
	order.Repo = cmp.Or(order.Repo, repo)
	on, err := d.deletableIn(ctx, repo, order)
	all = append(all, on)
	repos := outcome.FurtherRepos(d.rec)
	for i := range repos {
		of, its := &repos[i], *d.rec
		if its.Repo, its.LocalRepo = of.Repo, ""; filepath.IsAbs(of.Repo) {
			its.LocalRepo = of.Repo
		}
		on, ferr := deletion{d.Tasks, d.st, &its, d.force}.deletableIn(ctx, of.Repo, order.ForRepo(of))
		if on.name = of.Name + ":"; ferr != nil {
			ferr = exiterr.New(exiterr.Code(ferr), fmt.Errorf("repository %s: %w", of.Name, ferr), exiterr.Hint(ferr))
		}
		all, err = append(all, on), errors.Join(err, ferr)
	}
	return all, err
}

func (d deletion) deletableIn(ctx context.Context, repo string, order *workorder.Order) (on taskRefs, err error) {
	var local *localrepo.Repo
	if filepath.IsAbs(repo) {
		if local, err = localrepo.Open(ctx, repo); err != nil {
			return on, err
		}
		on.remote = local
	} else {
		find := credentials.New(d.Getenv)
		cred, err := find.Git(ctx, repo)
		if err != nil {
			return on, err
		}
		on.remote = served{find, repo, cred}
	}
	if on.refs, err = on.remote.TaskRefs(ctx, d.rec.TaskID); err != nil {
		return on, err
	}
	if local != nil {
		if err := local.CheckDelete(ctx, on.refs); err != nil {
			return on, err
		}
	}
	if name := d.rec.TargetBranch; name != "" && !workorder.OwnBranch(d.rec.TaskID, name) {
		d.Warn(fmt.Sprintf("branch %s stays: its name is not that of task %s", name, d.rec.TaskID))
	}
	if d.force {
		return on, nil
	}
	if on.refs[workorder.StateRef(d.rec.TaskID)] != "" {
		state, err := on.remote.State(ctx, d.rec.TaskID)
		if err != nil {
			return on, err
		}
		if state.Lease != nil && !d.rec.Knows(state.Lease.AttemptID) {
			return on, exiterr.New(workorder.ExitGit, fmt.Errorf("another sandbox has task %s (host %s)", d.rec.TaskID, state.Lease.Holder),
				"wait until it ends, or remove it all the same with: sandbox-agent rm --force --branch "+d.rec.TaskID)
		}
	}
	for name, head := range on.refs {
		if branch, ok := strings.CutPrefix(name, workorder.BranchRef("")); ok {
			if err := d.mayDeleteBranch(ctx, order, branch, head); err != nil {
				return on, err
			}
		}
	}
	return on, nil
}

// mayDeleteBranch refuses to delete the head of an open pull request, and the only name of commits unless a person agrees.
func (d deletion) mayDeleteBranch(ctx context.Context, order *workorder.Order, branch, head string) error {
	var pr forge.PR
	res, _ := outcome.ReadResult(d.rec) // one without a result has no pull request of its own
	if credentials.ExpectsPulls(order.Repo, order.PR) || res != nil && res.PR != nil {
		client, err := d.forge(ctx, order)
		if err == nil {
			pr, err = client.PRByHead(ctx, branch)
			err = client.fault(err)
		}
		if err != nil {
			return exiterr.New(exiterr.Code(err), fmt.Errorf("look for an open pull request of %s: %w", branch, err),
				cmp.Or(exiterr.Hint(err), "delete the branch without asking the forge: sandbox-agent rm --force --branch "+d.rec.TaskID))
		}
	}
	switch {
	case pr.State == forge.StateOpen:
		return exiterr.New(workorder.ExitGeneral, fmt.Errorf("pull request #%d of %s is open", pr.Number, branch),
			"close or merge it first, or remove it all the same with: sandbox-agent rm --force --branch "+d.rec.TaskID)
	case pr.State == forge.StateMerged && pr.HeadSHA == head, res != nil && head == res.BaseSHA,
		d.exists(ctx, branch, head):
		return nil
	}
	what := fmt.Sprintf("branch %s (at %.10s) has commits that no other branch on this machine has", branch, head)
	if d.Confirm != nil {
		yes, err := d.Confirm(ctx, what+". Delete it?")
		if err != nil || yes {
			return err
		}
	}
	hint := "merge it with git, in a clone of " + order.Repo
	if res != nil && res.HeadSHA == head {
		hint = "merge them with: sandbox-agent merge " + d.rec.TaskID
	} else if filepath.IsAbs(order.Repo) {
		hint = "merge them with: " + text.Shell("git", "-C", order.Repo, "merge", branch)
	}
	return exiterr.New(workorder.ExitGeneral, errors.New(what), hint+"; delete them with: sandbox-agent rm --force --branch "+d.rec.TaskID)
}

// exists reports whether a ref of the task's repository on this machine, or of the clone that the user is in, has the
// commit, besides the task's own refs.
func (d deletion) exists(ctx context.Context, branch, commit string) bool {
	dir, own := d.rec.LocalRepo, []string{workorder.BranchRef(branch)}
	if dir == "" {
		top, err := d.RepoRoot()
		if err != nil || top == "" || !localrepo.BelongsTo(ctx, d.rec.Repo, top) {
			return false
		}
		dir, own = top, []string{"refs/remotes/*/" + branch}
	}
	args := []string{"rev-list", "--count", commit, "--not"}
	for _, ref := range append(own, workorder.TaskRefs(d.rec.TaskID)+"*") {
		args = append(args, "--exclude="+ref)
	}
	out, err := localrepo.Git(dir).Output(ctx, append(args, "--glob=refs/*", "--")...)
	return err == nil && strings.TrimSpace(string(out)) == "0"
}
