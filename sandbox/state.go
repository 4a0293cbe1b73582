package sandbox

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/branch"
	"github.com/sandbox-agent/sandbox-agent/internal/host/localrepo"
	"github.com/sandbox-agent/sandbox-agent/internal/host/wireclient"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Ran is the command whose changes are saved.
type CommandRecord struct {
	Command  string // as typed in a shell; "" if none
	ExitCode int
	Started  time.Time
	Duration time.Duration
	Reason   string // the caller's reason
	Subject  string // first line of the commit message if no command ran
}

// Saved is the outcome of Save.
type SaveResult struct {
	// Commit is the new commit; "" if nothing has changed.
	Commit string
	// Left are paths that were not committed: large untracked files, unreadable files, names that git refuses, and
	// submodules with own files or commits. From SaveLast they include branches and stashes that exist only in the
	// clone. Unsaved has the reasons, in the same order.
	Left    []string
	Unsaved []Unsaved
	// Unmerged are the paths of unresolved conflicts, which are committed with their markers.
	Unmerged []string
	// Notice, if not empty, says how commits made in the sandbox were saved other than one by one.
	Notice string
	// Earlier is the ref of earlier commits if the clone was recreated since the last save.
	PreviousRef string
}

// Unsaved is a path or branch of the clone that is not saved, with the reason.
type Unsaved struct{ Path, Reason string }

func (u Unsaved) String() string { return u.Path + ": " + u.Reason }

// ErrNoClone means that a sandbox has no clone of a local repository.
var ErrNoClone = errors.New("no clone of a local repository")

// CloneDir is the directory of the clone of Spec.Repo, and of a lease.
const CloneDir = workorder.Workspace

// Save commits the changes in the sandbox's clone since the last Save to the sandbox's branch. The branch is in an
// internal repository, which the user's repository has as the remote `sandbox`, with the branch sandbox/NAME. The first
// Save creates it. The user is the author, and the message is the command. Ignored files are left out. Saves of one
// repository run one after another. A sandbox without a clone returns ErrNoClone.
func (sb *Sandbox) Save(ctx context.Context, ran CommandRecord) (SaveResult, error) {
	spec := sb.Spec()
	repo := spec.BranchOf()
	if repo == "" {
		return SaveResult{}, fmt.Errorf("sandbox %s: %w", spec.Name, ErrNoClone)
	}
	// A repair needs the lock that a save holds, so it comes first.
	if err := sb.use(ctx, func(*wireclient.Client) error { return nil }); err != nil {
		return SaveResult{}, err
	}
	b := branch.New(sb.m.state).Of(spec.Name, repo)
	s, err := b.Save(ctx, sb.inside, CloneDir, spec.Title, branch.CommandRecord(ran))
	if spec.Worktree != "" && (err == nil || errors.Is(err, branch.ErrNotShown)) {
		if err != nil { // the worktree's own branch shows it
			err = b.Lend(ctx)
		}
		if err == nil {
			err = sb.moveWorktree(ctx, b, s.Commit != "")
		}
	}
	saved := SaveResult{Commit: s.Commit, Unmerged: s.Unmerged, Notice: s.Notice, PreviousRef: s.PreviousRef}
	for _, l := range s.Left {
		saved.leave(Unsaved(l))
	}
	return saved, err
}

func (s *SaveResult) leave(u Unsaved) {
	s.Left, s.Unsaved = append(s.Left, u.Path), append(s.Unsaved, u)
}

// saveAll is Save, with branches and stashes that exist only in the clone added to Left.
func (sb *Sandbox) saveAll(ctx context.Context) (SaveResult, error) {
	saved, err := sb.Save(ctx, CommandRecord{})
	if errors.Is(err, branch.ErrNotShown) { // it is saved nevertheless
		err = nil
	}
	if err != nil {
		return saved, err
	}
	spec := sb.Spec()
	aside, err := branch.New(sb.m.state).Of(spec.Name, spec.BranchOf()).Aside(ctx, sb.inside, CloneDir)
	for _, name := range aside {
		saved.leave(Unsaved{name, "exists only in the clone: check it out there, or delete it"})
	}
	return saved, err
}

// lost returns an error if a removal of the sandbox would lose files.
func (s SaveResult) lost() error {
	if len(s.Left) == 0 {
		return nil
	}
	var all []string
	for _, u := range s.Unsaved {
		all = append(all, u.String())
	}
	return fmt.Errorf("not committed: %s (fix or remove it, have git ignore it, or copy it out with `sandbox-agent cp`)",
		strings.Join(all, "; "))
}

// SaveLast saves changes that no command has committed, such as those of background commands. It starts a stopped
// sandbox. A missing sandbox has no changes.
func (sb *Sandbox) SaveLast(ctx context.Context) (SaveResult, error) {
	s := sb.Spec()
	// In an incomplete sandbox no command has run.
	if s.BranchOf() == "" || s.Lifetime == LifetimeEphemeral || s.Worktree == "" && sb.incomplete() != nil {
		return SaveResult{}, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, saveLastTime, fmt.Errorf("files not saved within %s", saveLastTime))
	defer cancel()
	there, err := sb.m.find(ctx, s.Name)
	if errors.Is(err, ErrNotFound) {
		return SaveResult{}, nil
	}
	if err != nil {
		return SaveResult{}, err
	}
	defer there.drop()
	return there.saveAll(ctx)
}

// SaveRunning is Save for a running sandbox; it does not start a stopped one.
func (sb *Sandbox) SaveRunning(ctx context.Context, ran CommandRecord) (SaveResult, error) {
	there, err := sb.m.GetRunning(ctx, sb.spec.Name)
	if err != nil {
		return SaveResult{}, err
	}
	defer there.drop()
	return there.Save(ctx, ran)
}

// saveLastTime bounds SaveLast, including the start of a box.
const saveLastTime = 3 * time.Minute

// BranchOf returns the local repository to which Save commits; "" if there is none.
func (s Spec) BranchOf() string {
	switch {
	case s.Worktree != "":
		return s.Worktree
	case filepath.IsAbs(s.Repo):
		return s.Repo
	}
	return ""
}

// cloned records the commit at which the sandbox's clone begins.
func (m *Manager) cloned(ctx context.Context, s Spec, base string) error {
	if m.state == "" || s.BranchOf() == "" {
		return nil
	}
	return branch.New(m.state).Of(s.Name, s.BranchOf()).Cloned(ctx, base)
}

// inside runs an internal command for branch.Inside. An exit code other than 0 is an error with the command's output.
func (sb *Sandbox) inside(ctx context.Context, argv []string, in io.Reader, out io.Writer) error {
	p, err := sb.Start(ctx, Command{Argv: argv, Stdin: in, Dir: "/", Unrecorded: true})
	if err != nil {
		return err
	}
	defer p.Close()
	const most = 4 << 10
	said := text.NewEnds(most)
	r, err := p.Wait(ctx, out, said)
	switch why := strings.TrimSpace(text.Clean(string(said.Bytes()))); {
	case err != nil:
		return err
	case r.OutOfMemory:
		return fmt.Errorf("memory limit of the sandbox reached (%d MiB): set a higher one with --memory: %s",
			sb.Spec().Limits.MemoryBytes>>20, why)
	case r.Reason != "":
		return errors.New(r.Reason)
	case r.ExitCode != 0:
		return fmt.Errorf("exit code %d: %s", r.ExitCode, why)
	}
	return nil
}

//go:embed clone.sh
var cloneScript string

// cloneTime is enough for gigabytes.
const cloneTime = 15 * time.Minute

// clone clones a bundle of the user's branches and tags in the sandbox. A box clones at boot instead.
func (sb *Sandbox) clone(ctx context.Context, bundle string) error {
	if bundle == "" || sb.spec.Runtime == RuntimeBox || sb.from != "" { // a snapshot contains the clone
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, cloneTime, fmt.Errorf("repository not cloned within %s", cloneTime))
	defer cancel()
	f, err := os.Open(bundle)
	if err != nil {
		return err
	}
	defer f.Close()
	name, email := localrepo.Identity(ctx, sb.spec.Repo)
	argv := []string{"sh", "-c", cloneScript, "sh", CloneDir, sb.spec.Ref, name, email, sb.spec.Name}
	if err := sb.inside(ctx, argv, f, io.Discard); err != nil {
		return fmt.Errorf("sandbox %s: clone %s: %w", sb.spec.Name, sb.spec.Repo, err)
	}
	return nil
}
