package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/branch"
)

// ErrMergeConflict means that the commits of a Branch conflict with the branch that is checked out in the repository.
var ErrMergeConflict = branch.ErrConflict

// Commit is a commit of a Branch.
type Commit struct {
	ID       string
	Time     time.Time
	Subject  string
	Commands []CommandRecord // those whose changes the commit has, and later ones that changed nothing
}

// stored returns the branch as Save stores it. It is empty before the first Save.
func (b *Branch) stored() (*branch.Branch, error) {
	spec, all := b.in.current(), b.clones()
	switch len(all) {
	case 0:
		return nil, fmt.Errorf("sandbox %s: %w", spec.Name, ErrNoClone)
	case 1:
		return b.in.c.branchOf(spec, all[0].Repo), nil
	}
	return nil, fmt.Errorf("sandbox %s: %w: it has %d: choose one with Branch.In", spec.Name, ErrInvalidSpec, len(all))
}

// target returns the local repository that the sandbox was created from, with the branch's commits.
func (b *Branch) target(ctx context.Context) (*branch.Target, error) {
	stored, err := b.stored()
	if err != nil {
		return nil, err
	}
	return stored.Target(ctx, stored.Repo)
}

// Log returns the commits of the branch that the local repository did not have when the sandbox was created, newest first.
// The oldest has no changes: the first Save made it. Log does not save.
func (b *Branch) Log(ctx context.Context) (commits []Commit, err error) {
	stored, err := b.stored()
	if err != nil {
		return nil, err
	}
	entries, err := stored.Log(ctx)
	for _, e := range entries {
		c := Commit{ID: e.Commit, Time: e.Time, Subject: e.Subject}
		for _, ran := range e.Ran {
			c.Commands = append(c.Commands, CommandRecord(ran))
		}
		commits = append(commits, c)
	}
	return commits, err
}

// Diff writes the saved changes since the branch's base as a patch for git apply.
func (b *Branch) Diff(ctx context.Context, out io.Writer) error {
	t, err := b.target(ctx)
	if err != nil {
		return err
	}
	return t.Diff(ctx, out, "--binary")
}

// Merge merges the branch into the branch that is checked out in the local repository, in a commit with the message. It
// reports false if there is nothing to merge. Uncommitted changes are stashed meanwhile. After an ErrMergeConflict the conflicts
// are in the files, as git leaves them.
func (b *Branch) Merge(ctx context.Context, message string) (merged bool, err error) {
	t, err := b.target(ctx)
	if err != nil {
		return false, err
	}
	upToDate, err := t.Merge(ctx, message)
	return !upToDate && err == nil, err
}

// Apply merges the saved changes into the work tree and the index of the local repository, without a commit, and returns the
// changed files. After an error, such as ErrMergeConflict, it has changed nothing.
func (b *Branch) Apply(ctx context.Context) (files []string, err error) {
	t, err := b.target(ctx)
	if err != nil {
		return nil, err
	}
	return t.Apply(ctx)
}

// Tag adds a commit to the branch and a tag SANDBOX/NAME to the internal repository, which both stay when the branch is
// deleted. It returns the commit. A tag of that name is an ErrExists.
func (b *Branch) Tag(ctx context.Context, name string) (commit string, err error) {
	stored, err := b.stored()
	if err != nil {
		return "", err
	}
	commit, err = stored.Tag(ctx, name)
	if errors.Is(err, branch.ErrTagExists) {
		err = &kindError{ErrExists, err}
	}
	return commit, err
}
