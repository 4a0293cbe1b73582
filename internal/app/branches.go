package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/host/branch"
	"github.com/sandbox-agent/sandbox-agent/internal/host/localrepo"
	"github.com/sandbox-agent/sandbox-agent/internal/host/sandboxstore"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Branches are the use cases of sandboxes' branches.
type Branches struct{ *Env }

// Branches returns the use cases of sandboxes' branches.
func (e *Env) Branches() Branches { return Branches{e} }

// Branch is the branch of a sandbox.
type Branch = branch.Branch

// BranchName returns the name of a sandbox's branch in the user's repository.
func BranchName(sandbox string) string { return branch.Remote + "/" + sandbox }

// Find returns the branch of a sandbox, which may have been removed. The error is branch.ErrNotFound if it has no branch.
func (r Branches) Find(ctx context.Context, name string) (*branch.Branch, error) {
	if err := CheckTask(name); err != nil { // a task's ID has no branch here
		return nil, err
	}
	if !sandbox.ValidName(name) {
		return nil, branch.ErrNotFound
	}
	all, err := r.BranchStore()
	if err != nil {
		return nil, err
	}
	top, err := r.RepoRoot()
	if err != nil {
		return nil, err
	}
	b, err := all.Find(ctx, name, top)
	if errors.Is(err, branch.ErrSeveral) {
		err = exiterr.New(workorder.ExitUsage, err, "go to one, and run the command again")
	}
	return b, err
}

// Handoff returns the repository that has the work of a sandbox: the work tree of it that the user is in, or else the one that the sandbox
// was created from.
func (r Branches) Handoff(ctx context.Context, b *branch.Branch) (*branch.Target, error) {
	repo := b.Repo
	if top, err := r.RepoRoot(); err == nil && top != "" && localrepo.Same(ctx, top, repo) {
		repo = top
	}
	return b.Target(ctx, repo)
}

// Current returns the one sandbox's branch that descends from the HEAD of the repository in the current directory; nil if
// there is none, or outside of any repository. It considers branches that were created after since and that want
// accepts. Several are a usage error.
func (r Branches) Current(ctx context.Context, since time.Time, want func(*branch.Branch) bool) (*branch.Branch, error) {
	top, err := r.RepoRoot()
	if err != nil || top == "" {
		return nil, err
	}
	head, err := localrepo.Git(top).Resolve(ctx, "HEAD")
	if err != nil {
		return nil, err
	}
	all, err := r.BranchStore()
	if err != nil {
		return nil, err
	}
	list, err := all.List(ctx)
	if err != nil {
		return nil, err
	}
	var found *branch.Branch
	var names []string
	for _, i := range list {
		if i.Repo == top && i.Created.After(since) && i.DescendsFrom(ctx, head) && want(i.Branch) {
			found = i.Branch
			names = append(names, i.Name)
		}
	}
	if len(names) > 1 {
		err = fmt.Errorf("the branches of several sandboxes descend from the current checkout: %s", strings.Join(names, ", "))
		return nil, exiterr.New(workorder.ExitUsage, err, "name one")
	}
	return found, nil
}

// CheckInTree returns a usage error unless the user is in a work tree of the repository that a verb changes: a verb changes only what the
// user sees.
func (r Branches) CheckInTree(ctx context.Context, verb, of, repo, ref string) error {
	if _, err := os.Stat(filepath.Join(repo, ".git")); errors.Is(err, fs.ErrNotExist) {
		return exiterr.New(workorder.ExitUsage, fmt.Errorf("%s needs a work tree, and %s is a bare repository", verb, text.Clean(repo)),
			"take the work in a clone of it: git fetch "+text.Shell(repo, ref)+" && git merge FETCH_HEAD")
	}
	top, err := r.RepoRoot()
	if err != nil || top != "" && (top == repo || localrepo.Same(ctx, top, repo)) {
		return err
	}
	err = fmt.Errorf("%s changes a work tree of %s, which the current directory is not in", verb, text.Clean(repo))
	return exiterr.New(workorder.ExitUsage, err, "go there: cd "+text.Shell(repo)+" && sandbox-agent "+verb+" "+of)
}

// SavedHandoff commits what no command has committed, and returns Handoff. If the sandbox is deleted afterwards, what cannot be
// committed is an error.
func (r Branches) SavedHandoff(ctx context.Context, verb string, b *branch.Branch, deleted bool) (*branch.Target, error) {
	if err := r.CheckInTree(ctx, verb, b.Sandbox, b.Repo, "refs/remotes/"+BranchName(b.Sandbox)); err != nil {
		return nil, err
	}
	left, err := r.saveLast(ctx, b, deleted)
	if err != nil {
		unsaved := fmt.Errorf("%s nothing: what changed in sandbox %s since its last commit cannot be saved: %w", verb, b.Sandbox, err)
		return nil, exiterr.New(exiterr.Code(err), unsaved,
			cmp.Or(exiterr.Hint(err), "fix that first; the saved commits are on "+BranchName(b.Sandbox)))
	}
	if len(left) > 0 {
		uncommitted := fmt.Errorf("no commit of sandbox %s has %s", b.Sandbox, strings.Join(left, "; "))
		err := exiterr.New(workorder.ExitGeneral, uncommitted,
			"copy it out with: sandbox-agent cp; or run git add in the sandbox; nothing was deleted")
		if deleted {
			return nil, err
		}
		r.Warn(err.Error())
	}
	return r.Handoff(ctx, b)
}

// saveLast commits what no command has committed in a sandbox, and returns what cannot be committed, with reasons. A sandbox that was
// stopped is stopped again unless it can be deleted.
func (r Branches) saveLast(ctx context.Context, b *branch.Branch, deleted bool) (left []string, err error) {
	m, err := r.Manager(false)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	sb, err := m.Get(ctx, b.Sandbox)
	if r.gone(b.Sandbox, err) {
		return nil, nil
	}
	if err != nil {
		return nil, SandboxError(err)
	}
	defer sb.Close()
	if !sb.Spec().HasBranchIn(b.Repo) {
		return nil, nil
	}
	saved, err := sb.Branch().SaveUncommitted(ctx)
	if refused := err != nil || len(saved.Unsaved) > 0; sb.Info().State == sandbox.StateStopped && (!deleted || refused) {
		err = errors.Join(err, sb.Stop(context.WithoutCancel(ctx)))
	}
	for _, u := range saved.Unsaved {
		left = append(left, u.String())
	}
	return left, SandboxError(err)
}

// gone reports whether an error of Get means that the sandbox does not exist. If a runtime does not answer, the record decides.
func (r Branches) gone(name string, err error) bool {
	if errors.Is(err, sandbox.ErrNotFound) || err == nil {
		return err != nil
	}
	st, serr := r.Store()
	if serr != nil {
		return false
	}
	_, kerr := sandboxstore.New(st.Dir()).Load(name)
	return errors.Is(kerr, fs.ErrNotExist)
}

// Deletion is how a branch is deleted.
type Deletion struct {
	// Force also deletes commits that exist nowhere else, and files that cannot be saved.
	Force bool
	// Head is the branch's last commit as it was judged; the branch stays where it has another one by then. "" is any.
	Head string
	// Merged says that the work until head is elsewhere now.
	Merged bool
}

// Delete removes a branch with its sandbox, if that is there.
func (r Branches) Delete(ctx context.Context, m *sandbox.Manager, b *branch.Branch, d Deletion) (head string, err error) {
	sb, err := m.Get(ctx, b.Sandbox)
	if err != nil && !r.gone(b.Sandbox, err) {
		return "", SandboxError(err)
	}
	if err != nil || !sb.Spec().HasBranchIn(b.Repo) { // one of that name may be of another repository
		sb = nil
	}
	if sb != nil && !d.Force {
		if sb.Info().State == sandbox.StateStopped { // saving starts it; a sandbox that stays is as it was
			defer func() {
				if err != nil {
					err = errors.Join(err, SandboxError(sb.Stop(context.WithoutCancel(ctx))))
				}
			}()
		}
		if err := sb.Branch().SaveForRemoval(ctx); err != nil {
			return "", deleteError(b.Sandbox, err)
		}
	}
	was := b.Head(ctx)
	if d.Head != "" && was != d.Head {
		return "", exiterr.New(workorder.ExitGeneral, fmt.Errorf("the branch of sandbox %s stays: it has a commit since", b.Sandbox),
			"merge it again with: sandbox-agent merge "+b.Sandbox+"; or delete it with: sandbox-agent delete "+b.Sandbox)
	}
	if err := r.mayDelete(ctx, b, was, d); err != nil {
		return "", err
	}
	switch {
	case sb == nil:
	case d.Force:
		err = sb.Remove(ctx, sandbox.RemoveOptions{Discard: true})
	default:
		err = sb.Remove(ctx, sandbox.RemoveOptions{})
	}
	if sb != nil && err != nil {
		return "", deleteError(b.Sandbox, err)
	}
	if sb != nil {
		r.Sandboxes().WarnOfRepositories(ctx, sb)
	}
	if now := b.Head(ctx); !d.Force && now != was {
		return "", exiterr.New(workorder.ExitGeneral, fmt.Errorf("the branch of sandbox %s stays: it has a commit since", b.Sandbox),
			"merge it with: sandbox-agent merge "+b.Sandbox+"; or delete it with: sandbox-agent delete "+b.Sandbox)
	}
	if err := b.Delete(ctx); err != nil {
		return "", err
	}
	return was, nil
}

// deleteError is SandboxError, of a command that deletes the branch, too.
func deleteError(name string, err error) error {
	if errors.Is(err, sandbox.ErrUnsaved) {
		return exiterr.New(workorder.ExitGeneral, err, "delete it without saving: sandbox-agent delete --force "+name)
	}
	return SandboxError(err)
}

// mayDelete refuses to delete the only name of commits, unless a person agrees.
func (r Branches) mayDelete(ctx context.Context, b *branch.Branch, head string, d Deletion) error {
	if d.Force || d.Merged {
		return nil
	}
	only, err := b.Unmerged(ctx)
	if err != nil || !only {
		return err
	}
	what := fmt.Sprintf("the branch of sandbox %s (at %.10s) has commits that exist nowhere else", b.Sandbox, head)
	if r.Confirm != nil {
		yes, err := r.Confirm(ctx, what+". Delete it?")
		if err != nil || yes {
			return err
		}
	}
	return exiterr.New(workorder.ExitGeneral, errors.New(what),
		"merge them with: sandbox-agent merge "+b.Sandbox+"; delete them with: sandbox-agent delete --force "+b.Sandbox)
}

// DeleteMerged removes a branch whose work until head is elsewhere now, with its sandbox.
func (r Branches) DeleteMerged(ctx context.Context, b *branch.Branch, head string) (string, error) {
	m, err := r.Manager(false)
	if err != nil {
		return "", err
	}
	defer m.Close()
	return r.Delete(ctx, m, b, Deletion{Head: head, Merged: true})
}

// DeleteNamed is Delete by the name of a sandbox. If the sandbox is gone, its branch is looked for in the current repository first.
func (r Branches) DeleteNamed(ctx context.Context, m *sandbox.Manager, name string, d Deletion) (string, error) {
	sb, err := m.Get(ctx, name)
	switch {
	case errors.Is(err, sandbox.ErrName):
		return "", SandboxError(err)
	case err == nil && sb.Spec().BranchOf() != "":
		all, err := r.BranchStore()
		if err != nil {
			return "", err
		}
		return r.deleteEach(ctx, m, sb, all, d)
	case err == nil:
		if err := removeSandbox(ctx, sb, d.Force); err != nil {
			return "", deleteError(name, err)
		}
		return "", nil
	case !r.gone(name, err):
		return "", SandboxError(err)
	}
	b, berr := r.Find(ctx, name)
	if errors.Is(berr, branch.ErrNotFound) {
		return "", r.UnknownName(ctx, name, err)
	}
	if berr != nil {
		return "", berr
	}
	return r.Delete(ctx, m, b, d)
}

// deleteEach deletes a sandbox with the branches in all of its repositories, or nothing if one has work that exists nowhere else.
func (r Branches) deleteEach(
	ctx context.Context, m *sandbox.Manager, sb *sandbox.Sandbox, all *branch.Store, d Deletion,
) (head string, err error) {
	clones := sb.Spec().Clones()
	if len(clones) > 1 && !d.Force {
		if err := sb.Branch().SaveForRemoval(ctx); err != nil {
			return "", deleteError(sb.Name(), err)
		}
		for _, c := range clones[1:] { // Delete looks at the first before it removes the sandbox
			b := all.Of(sb.Name(), c.Repo)
			if err := r.mayDelete(ctx, b, b.Head(ctx), d); err != nil {
				return "", err
			}
		}
	}
	for i, c := range clones {
		one := d
		one.Merged = d.Merged || i > 0
		at, err := r.Delete(ctx, m, all.Of(sb.Name(), c.Repo), one)
		if err != nil {
			return head, err
		}
		head = cmp.Or(head, at)
	}
	return head, nil
}

// DeleteAll deletes the named sandboxes with their branches, or without a name all that have a branch. It calls report for each and
// returns what report returns.
func (r Branches) DeleteAll(ctx context.Context, names []string, d Deletion, report func(name, head string, err error) error) error {
	m, err := r.Manager(false)
	if err != nil {
		return err
	}
	defer m.Close()
	var errs []error
	for _, name := range names {
		head, err := r.DeleteNamed(ctx, m, name, d)
		errs = append(errs, report(name, head, err))
	}
	if len(names) > 0 {
		return errors.Join(errs...)
	}
	list, err := r.List(ctx, true)
	errs = append(errs, err)
	for _, i := range list {
		head, err := r.Delete(ctx, m, i.Branch, d)
		errs = append(errs, report(i.Name, head, err))
	}
	return errors.Join(errs...)
}

// Prune deletes sandboxes with a branch that do not run and have not changed for the given time, with their branches. It calls report for
// each, or with dryRun for each that it would delete.
func (r Branches) Prune(
	ctx context.Context, unchanged time.Duration, dryRun bool, d Deletion, report func(i BranchRow, head string, err error),
) error {
	rows, err := r.List(ctx, true)
	if err != nil {
		return err
	}
	m, err := r.Manager(false)
	if err != nil {
		return err
	}
	defer m.Close()
	for _, row := range rows {
		switch {
		case row.State.Live() || time.Since(row.Updated) < unchanged:
		case dryRun:
			report(row, "", nil)
		default:
			head, err := r.Delete(ctx, m, row.Branch, Deletion{Head: row.Head, Force: d.Force})
			report(row, head, err)
		}
	}
	return nil
}

// BranchRow is a sandbox with a branch.
type BranchRow struct {
	branch.Info
	State sandbox.State `json:"state"`
}

// List returns the sandboxes with a branch of the current repository, or all, the last changed first. If an engine does not answer, it
// returns all of them together with the error. Without all, the current directory must be in a repository.
func (r Branches) List(ctx context.Context, all bool) ([]BranchRow, error) {
	store, err := r.BranchStore()
	if err != nil {
		return nil, err
	}
	top, err := r.RepoRoot()
	if err != nil {
		return nil, err
	}
	if !all && top == "" {
		return nil, exiterr.New(workorder.ExitNoProject, errors.New("the current directory is not in a git repository"),
			"go to one, or list the sandboxes of all repositories with --all")
	}
	list, err := store.List(ctx)
	if err != nil {
		return nil, err
	}
	var there []sandbox.Info
	var unseen error
	if len(list) > 0 {
		m, err := r.Manager(false)
		if err != nil {
			return nil, err
		}
		defer m.Close()
		there, err = m.List(ctx)
		unseen = SandboxError(err)
	}
	rows, unknown := []BranchRow{}, false
	for _, row := range branchRows(list, there) {
		if !all && row.Repo != top {
			continue
		}
		unknown = unknown || row.State == sandbox.StateUnknown
		rows = append(rows, row)
	}
	if !unknown && errors.Is(unseen, sandbox.ErrUnavailable) { // an engine that none of them is on
		unseen = nil
	}
	return rows, unseen
}

// branchRows adds the states of sandboxes to their branches.
func branchRows(list []branch.Info, there []sandbox.Info) (rows []BranchRow) {
	states := map[[2]string]sandbox.State{} // by name and repository, which is not known of a damaged sandbox if nothing of it can be read
	for _, i := range there {
		for _, c := range i.Spec.Clones() {
			states[[2]string{i.Name, c.Repo}] = i.State
		}
		if i.Spec.BranchOf() == "" && i.State == sandbox.StateDamaged {
			states[[2]string{i.Name, ""}] = i.State
		}
	}
	for _, i := range list {
		rows = append(rows, BranchRow{i, cmp.Or(states[[2]string{i.Name, i.Repo}], states[[2]string{i.Name, ""}], sandbox.StateMissing)})
	}
	return rows
}

// CheckLocalName returns a usage error for the name of a local branch that git refuses, or that means something else as
// well: names below sandbox/ are those of sandboxes' own branches.
func (r Branches) CheckLocalName(ctx context.Context, name string) error {
	const hint = "for example: sandbox-agent checkout NAME -b try"
	switch {
	case !workorder.ValidRefName(name) || name == "HEAD":
		return exiterr.New(workorder.ExitUsage, fmt.Errorf("branch: %.80q is not a valid name of a branch", name), hint)
	case git.ValidSHA(name) || strings.HasPrefix(name, "refs/") || strings.HasPrefix(name, "sandbox/"):
		return exiterr.New(workorder.ExitUsage, fmt.Errorf("branch: %.80q already means something else in git or for this program", name), hint)
	}
	top, err := r.RepoRoot()
	if err != nil || top == "" {
		return err
	}
	remote, err := localrepo.Git(top).Resolve(ctx, "refs/remotes/"+name)
	if err == nil && remote != "" {
		err = exiterr.New(workorder.ExitUsage, fmt.Errorf("branch: %.80q is the name of a remote's branch", name), hint)
	}
	return err
}
