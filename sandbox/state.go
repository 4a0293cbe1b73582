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
)

// Ran is a command whose changes are saved.
type Ran struct {
	Command  string // as a person would type it; "" is none
	ExitCode int
	Started  time.Time
	Duration time.Duration
	Why      string // what whoever ran it says about it
	Subject  string // the commit's first line where no command ran
}

// Saved is what Save has found.
type Saved struct {
	// Commit is the new commit; "" where nothing has changed.
	Commit string
	// Left are files that are not committed, since they are large and git does not know them, cannot be read, have a name that git refuses, or are a submodule with files or commits of its own.
	// Of SaveLast they are also branches and stashes that nothing but the clone has. Unsaved says why, in the same order.
	Left    []string
	Unsaved []Unsaved
	// Unmerged are the paths of unresolved conflicts, which are committed with their markers.
	Unmerged []string
	// Notice, if not empty, says how commits made in the sandbox arrived otherwise than one by one.
	Notice string
	// Earlier is the ref of the commits of before, where the clone was made anew since the last save.
	Earlier string
}

// Unsaved is a path of the clone that no commit has, or one of its branches, and why.
type Unsaved struct{ Path, Reason string }

func (u Unsaved) String() string { return u.Path + ": " + u.Reason }

// ErrNoClone means that a sandbox has no clone of a repository of this machine.
var ErrNoClone = errors.New("it has no clone of a repository of this machine")

// CloneDir is where the clone of Spec.Repo is.
const CloneDir = "/workspace"

// Save commits what has changed in the sandbox's clone since the last Save to the branch of its name in a repository of ours, which is the remote `sandbox` of the user's: there it is
// sandbox/NAME. The commit is the user's, and its text the command; what of files git ignores is left out. The first Save makes the branch. Saves of one repository are one after
// the other. A sandbox without a clone is ErrNoClone.
func (sb *Sandbox) Save(ctx context.Context, ran Ran) (Saved, error) {
	spec := sb.Spec()
	repo := spec.BranchOf()
	if repo == "" {
		return Saved{}, fmt.Errorf("sandbox %s: %w", spec.Name, ErrNoClone)
	}
	// What has to be repaired first needs the lock that a save holds.
	if err := sb.use(ctx, func(*wireclient.Client) error { return nil }); err != nil {
		return Saved{}, err
	}
	b := branch.New(sb.m.state).Of(spec.Name, repo)
	s, err := b.Save(ctx, sb.inside, CloneDir, spec.Title, branch.Ran(ran))
	if spec.Worktree != "" && (err == nil || errors.Is(err, branch.ErrNotShown)) {
		if err != nil { // the worktree's own branch shows it
			err = b.Lend(ctx)
		}
		if err == nil {
			err = sb.moveWorktree(ctx, b, s.Commit != "")
		}
	}
	saved := Saved{Commit: s.Commit, Unmerged: s.Unmerged, Notice: s.Notice, Earlier: s.Earlier}
	for _, l := range s.Left {
		saved.leave(Unsaved(l))
	}
	return saved, err
}

func (s *Saved) leave(u Unsaved) {
	s.Left, s.Unsaved = append(s.Left, u.Path), append(s.Unsaved, u)
}

// saveAll is Save, and Left has what the clone's own branches and stashes alone have, too.
func (sb *Sandbox) saveAll(ctx context.Context) (Saved, error) {
	saved, err := sb.Save(ctx, Ran{})
	if errors.Is(err, branch.ErrNotShown) { // it is saved all the same
		err = nil
	}
	if err != nil {
		return saved, err
	}
	spec := sb.Spec()
	aside, err := branch.New(sb.m.state).Of(spec.Name, spec.BranchOf()).Aside(ctx, sb.inside, CloneDir)
	for _, name := range aside {
		saved.leave(Unsaved{name, "only the clone has it: check it out there, or delete it"})
	}
	return saved, err
}

// lost is an error where something would be lost with a sandbox.
func (s Saved) lost() error {
	if len(s.Left) == 0 {
		return nil
	}
	var all []string
	for _, u := range s.Unsaved {
		all = append(all, u.String())
	}
	return fmt.Errorf("not committed: %s (mend or remove it, have git ignore it, or take it out with `sandbox-agent cp`)", strings.Join(all, "; "))
}

// SaveLast saves what no command has committed, as of the background or of other programs. One that has ended is started for that, and runs then; one that is gone has nothing.
func (sb *Sandbox) SaveLast(ctx context.Context) (Saved, error) {
	s := sb.Spec()
	if s.BranchOf() == "" || s.Lifetime == Session || s.Worktree == "" && sb.incomplete() != nil { // of one that is not complete no command has changed anything
		return Saved{}, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, saveLastTime, fmt.Errorf("its files were not saved within %s", saveLastTime))
	defer cancel()
	there, err := sb.m.find(ctx, s.Name)
	if errors.Is(err, ErrNotFound) {
		return Saved{}, nil
	}
	if err != nil {
		return Saved{}, err
	}
	defer there.drop()
	return there.saveAll(ctx)
}

// SaveRunning is Save of a sandbox that runs; one that does not is not started.
func (sb *Sandbox) SaveRunning(ctx context.Context, ran Ran) (Saved, error) {
	there, err := sb.m.Peek(ctx, sb.spec.Name)
	if err != nil {
		return Saved{}, err
	}
	defer there.drop()
	return there.Save(ctx, ran)
}

// saveLastTime bounds SaveLast, with the start of a box.
const saveLastTime = 3 * time.Minute

// BranchOf is the repository of this machine to which Save commits; "" where there is none.
func (s Spec) BranchOf() string {
	switch {
	case s.Worktree != "":
		return s.Worktree
	case filepath.IsAbs(s.Repo):
		return s.Repo
	}
	return ""
}

// cloned records the commit that the sandbox's clone begins at.
func (m *Manager) cloned(ctx context.Context, s Spec, base string) error {
	if m.state == "" || s.BranchOf() == "" {
		return nil
	}
	return branch.New(m.state).Of(s.Name, s.BranchOf()).Cloned(ctx, base)
}

// inside is branch.Inside: it runs a command of ours; an exit code other than 0 is an error, with what the command said.
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
		return fmt.Errorf("the sandbox's memory limit of %d MiB was reached: set a higher one with --memory: %s", sb.Spec().Limits.MemoryBytes>>20, why)
	case r.Reason != "":
		return errors.New(r.Reason)
	case r.ExitCode != 0:
		return fmt.Errorf("exit code %d: %s", r.ExitCode, why)
	}
	return nil
}

//go:embed clone.sh
var cloneScript string

// cloneTime bounds a clone of gigabytes.
const cloneTime = 15 * time.Minute

// clone makes the clone in a sandbox that is no box, whose own boot does it: of a bundle of the user's branches and tags.
func (sb *Sandbox) clone(ctx context.Context, bundle string) error {
	if bundle == "" || sb.spec.Runtime == KindBox || sb.from != "" { // files of a snapshot have it
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, cloneTime, fmt.Errorf("the repository was not there within %s", cloneTime))
	defer cancel()
	f, err := os.Open(bundle)
	if err != nil {
		return err
	}
	defer f.Close()
	name, email := localrepo.Identity(ctx, sb.spec.Repo)
	if err := sb.inside(ctx, []string{"sh", "-c", cloneScript, "sh", CloneDir, sb.spec.Ref, name, email, sb.spec.Name}, f, io.Discard); err != nil {
		return fmt.Errorf("sandbox %s: clone %s: %w", sb.spec.Name, sb.spec.Repo, err)
	}
	return nil
}
