package sandbox

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/branch"
)

// CommandRecord is the command whose changes are saved.
type CommandRecord struct {
	Command  string // as typed in a shell; "" if none
	ExitCode int
	Started  time.Time
	Duration time.Duration
	Reason   string // the caller's reason
	Subject  string // first line of the commit message if no command ran
}

// SaveResult is the outcome of Save.
type SaveResult struct {
	Commit string // the new commit; "" if nothing has changed
	// Unsaved are paths that were not committed: large untracked files, unreadable files, names that git refuses, and submodules with own
	// files or commits. From SaveUncommitted they include branches and stashes that exist only in the clone.
	Unsaved  []Unsaved
	Unmerged []string // the paths of unresolved conflicts, which are committed with their markers
	// Notice, if not empty, says how commits made in the sandbox were saved other than one by one.
	Notice      string
	PreviousRef string // the ref of earlier commits if the clone was recreated since the last save
}

// Unsaved is a path or branch of the clone that is not saved, with the reason.
type Unsaved struct{ Path, Reason string }

func (u Unsaved) String() string { return u.Path + ": " + u.Reason }

// ErrNoClone means that a sandbox has no clone of a local repository.
var ErrNoClone = errors.New("no clone of a local repository")

// Branch has the commits of a sandbox's clone, or worktree, of a local repository.
type Branch struct {
	in   *instance
	repo string // the one of Spec.Repos that is meant; "" means all
}

// In returns the branch in one repository of the host, for a sandbox with Spec.Repos. Save and Restore of another Branch
// are about all repositories; its other methods need a sandbox with one repository.
func (b *Branch) In(repo string) *Branch { return &Branch{b.in, repo} }

// Save commits the changes in the sandbox's clone since the last Save to the sandbox's branch. The branch is in an
// internal repository, which the user's repository has as the remote `sandbox`, with the branch sandbox/NAME. The first
// Save creates it. The user is the author, and the message is the command. Ignored files are left out. Saves of one
// repository run one after another. A sandbox without a clone returns ErrNoClone.
func (b *Branch) Save(ctx context.Context, ran CommandRecord) (SaveResult, error) {
	return b.save(ctx, ran, false)
}

// save saves in each repository. With last it adds branches and stashes that exist only in a clone to Unsaved, and commits that the user's
// repository does not show are no error.
func (b *Branch) save(ctx context.Context, ran CommandRecord, last bool) (all SaveResult, err error) {
	spec := b.in.current()
	clones := b.clones()
	if len(clones) == 0 {
		return all, fmt.Errorf("sandbox %s: %w", spec.Name, ErrNoClone)
	}
	// A repair needs the lock that a save holds, so it comes first.
	if err := b.in.resume(ctx); err != nil {
		return all, err
	}
	var errs []error
	for _, c := range clones {
		s, err := b.saveOne(ctx, c, ran)
		if last && errors.Is(err, branch.ErrNotPublished) { // the commits are saved
			err = nil
		}
		if last && err == nil {
			var aside []string
			aside, err = b.of(c).UnsavedRefs(ctx)
			for _, name := range aside {
				s.Unsaved = append(s.Unsaved, Unsaved{name, "exists only in the clone: check it out there, or delete it"})
			}
		}
		if len(clones) > 1 && err != nil {
			err = fmt.Errorf("%s: %w", c.Dir, err)
		}
		all.add(s, c.Dir)
		errs = append(errs, err)
	}
	return all, errors.Join(errs...)
}

// add adds the outcome of a clone, with its paths relative to CloneDir.
func (s *SaveResult) add(one SaveResult, dir string) {
	below := strings.TrimPrefix(strings.TrimPrefix(dir, CloneDir), "/")
	for _, u := range one.Unsaved {
		s.Unsaved = append(s.Unsaved, Unsaved{path.Join(below, u.Path), u.Reason})
	}
	for _, name := range one.Unmerged {
		s.Unmerged = append(s.Unmerged, path.Join(below, name))
	}
	s.Commit, s.Notice = cmp.Or(s.Commit, one.Commit), cmp.Or(s.Notice, one.Notice)
	s.PreviousRef = cmp.Or(s.PreviousRef, one.PreviousRef)
}

func (b *Branch) saveOne(ctx context.Context, c Clone, ran CommandRecord) (SaveResult, error) {
	spec := b.in.current()
	to := b.of(c)
	s, err := to.Save(ctx, spec.Title, branch.CommandRecord(ran))
	if spec.Worktree != "" && (err == nil || errors.Is(err, branch.ErrNotPublished)) {
		if err != nil { // the worktree's own branch shows it
			err = to.Lend(ctx)
		}
		if err == nil {
			err = b.moveWorktree(ctx, to.Branch, s.Commit != "")
		}
	}
	saved := SaveResult{Commit: s.Commit, Unmerged: s.Unmerged, Notice: s.Notice, PreviousRef: s.PreviousRef}
	for _, u := range s.Unsaved {
		saved.Unsaved = append(saved.Unsaved, Unsaved(u))
	}
	return saved, err
}

// saveAll is Save, with branches and stashes that exist only in the clone added to Unsaved.
func (b *Branch) saveAll(ctx context.Context) (SaveResult, error) {
	return b.save(ctx, CommandRecord{}, true)
}

// lost returns an error if a removal of the sandbox would lose files.
func (s SaveResult) lost() error {
	if len(s.Unsaved) == 0 {
		return nil
	}
	var all []string
	for _, u := range s.Unsaved {
		all = append(all, u.Path+": "+u.Reason)
	}
	return fmt.Errorf("not committed: %s (fix or remove it, have git ignore it, or copy it out with `sandbox-agent cp`)",
		strings.Join(all, "; "))
}

// SaveUncommitted saves changes that no command has committed, such as those of background commands. It starts a stopped
// sandbox. A missing sandbox has no changes.
func (b *Branch) SaveUncommitted(ctx context.Context) (SaveResult, error) {
	s := b.in.current()
	// In an incomplete sandbox no command has run.
	if s.BranchOf() == "" || s.Lifetime == LifetimeEphemeral || s.Worktree == "" && b.in.incomplete() != nil {
		return SaveResult{}, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, saveLastTime, fmt.Errorf("files not saved within %s", saveLastTime))
	defer cancel()
	now, err := b.in.c.find(ctx, s.Name)
	if errors.Is(err, ErrNotFound) {
		return SaveResult{}, nil
	}
	if err != nil {
		return SaveResult{}, err
	}
	defer now.conn.drop()
	return (&Branch{in: now}).saveAll(ctx)
}

// SaveForRemoval is SaveUncommitted. It returns ErrUnsaved if a removal would lose files. A stopped sandbox is stopped again.
func (b *Branch) SaveForRemoval(ctx context.Context) error {
	stopped := b.in.info().State == StateStopped
	saved, err := b.SaveUncommitted(ctx)
	if err = cmp.Or(err, saved.lost()); err == nil {
		return nil
	}
	if stopped {
		err = errors.Join(err, b.in.stop(context.WithoutCancel(ctx)))
	}
	return &kindError{ErrUnsaved, fmt.Errorf("sandbox %s stays: uncommitted changes cannot be saved: %w", b.in.spec.Name, err)}
}

// SaveIfRunning is Save for a running sandbox; it does not start a stopped one.
func (b *Branch) SaveIfRunning(ctx context.Context, ran CommandRecord) (SaveResult, error) {
	now, err := b.in.c.find(ctx, b.in.spec.Name)
	if err != nil {
		return SaveResult{}, err
	}
	now.noAutoStart = true
	defer now.conn.drop()
	return (&Branch{in: now}).Save(ctx, ran)
}

// Restore restores the work that Save saved last into the clone of a recreated sandbox, so that its branch
// continues. It reports whether it did so: not if something was saved in the clone since, or if Reset recreated it.
// Commands on a missing sandbox restore its work before they begin.
func (b *Branch) Restore(ctx context.Context) (restored bool, err error) {
	if !b.in.current().clonesLocal() {
		return false, nil
	}
	for _, c := range b.clones() {
		one, err := b.of(c).Restore(ctx)
		if err != nil {
			return restored, err
		}
		restored = restored || one
	}
	return restored, nil
}

// saveLastTime bounds SaveUncommitted, including the start of a box.
const saveLastTime = 3 * time.Minute

//go:embed clone.sh
var cloneScript string

const cloneTime = 15 * time.Minute // for gigabytes

// cloneAll makes the clones of a sandbox.
func (b *Branch) cloneAll(ctx context.Context, all []cloneSource) error {
	if b.in.from != "" { // a snapshot contains the clones
		return nil
	}
	for _, s := range all {
		if b.in.spec.Runtime == RuntimeBox && s.Dir == CloneDir { // a box makes it at boot
			continue
		}
		if err := b.clone(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// clone clones a bundle of the user's branches and tags in the sandbox.
func (b *Branch) clone(ctx context.Context, s cloneSource) error {
	ctx, cancel := context.WithTimeoutCause(ctx, cloneTime, fmt.Errorf("repository not cloned within %s", cloneTime))
	defer cancel()
	f, err := os.Open(s.file)
	if err != nil {
		return err
	}
	defer f.Close()
	name, email := b.in.spec.author(ctx, s.Repo)
	argv := []string{"sh", "-c", cloneScript, "sh", s.Dir, s.Ref, name, email, b.in.spec.Name}
	if err := b.in.exec(ctx, argv, f, io.Discard); err != nil {
		return fmt.Errorf("sandbox %s: clone %s: %w", b.in.spec.Name, s.Repo, err)
	}
	return nil
}
