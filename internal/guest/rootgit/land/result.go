package land

import (
	"context"
	"errors"
	"fmt"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/remote"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/tree"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// RecordAttempt returns how to record an attempt that has these commits.
type RecordAttempt func(commits []workorder.Commit, head string) workorder.Attempt

// Result is the outcome of a landing.
type Result struct {
	Head    string // the commit that is, or should be, on the branch; equals base if there are no commits
	Commits []workorder.Commit
	Pushed  bool
	Bundle  string // file of the output with the commits that could not be pushed
	Archive string // file of the output with the changes that could not be committed
	Lost    bool   // some of the work could not be kept anywhere
	Large   bool   // the files that remain are too large to be kept
	// Checkpoint is still on the remote, because it has work that the branch does not have.
	Checkpoint *workorder.Checkpoint
	Warnings   []string
	// Unresolved describes the conflicts that the agent left in the commits; empty if none.
	Unresolved string
	// Repos are the outcomes in further repositories, and RepoReasons why the work of some is not on their remotes.
	Repos       []workorder.RepoResult
	RepoReasons workorder.Reasons
	// files are those of further repositories that are kept in the output.
	files []workorder.Evidence
	// Err is why the work is not on the remote; Bundle may still contain it.
	Err error
}

func (l *Result) warn(format string, args ...any) {
	l.Warnings = append(l.Warnings, fmt.Sprintf(format, args...))
}

// ArchiveLeftovers archives work that is in no landed commit: the files that left names, or the whole work tree if the
// commits could not be read. archive returns the file's path in the output.
func (l *Result) ArchiveLeftovers(
	ctx context.Context, left error, archive func(ctx context.Context, whole bool) (path string, err error),
) {
	whole := l.Err != nil && l.Bundle == ""
	if left == nil && !whole {
		return
	}
	if left != nil {
		l.warn("%v", left)
	}
	var err error
	if l.Archive, err = archive(ctx, whole); err != nil {
		// Commits stay in the box; a file that is too large is left out on purpose.
		l.Archive, l.Large = "", errors.Is(err, tree.ErrTooLarge)
		l.Lost = !l.Large && (left != nil || !l.commitsInBox())
		l.warn("%v", err)
	}
}

// Add adds the outcome in a further repository.
func (l *Result) Add(is workorder.RepoResult, of Result) {
	l.Repos = append(l.Repos, is)
	for _, w := range of.Warnings {
		l.warn("%s: %s", is.Name, w)
	}
	add := func(code workorder.ReasonCode, detail string) {
		l.RepoReasons = append(l.RepoReasons, workorder.Reason{Code: code, Detail: is.Name + ": " + detail})
	}
	if why, failed := of.Failed(); failed {
		if why.Code == workorder.ReasonLeft {
			why.Code, l.Lost = workorder.ReasonPush, true
		}
		add(why.Code, why.Detail)
	}
	switch {
	case of.Lost:
		l.Lost = true
	case of.Large:
		add(workorder.ReasonUncommitted, "files that the agent left are too large to be committed or kept: the warnings name them")
	case of.Archive != "":
		add(workorder.ReasonUncommitted, "files that could not be committed are kept in "+of.Archive)
	}
	if of.Unresolved != "" && l.Unresolved == "" {
		l.Unresolved = is.Name + ": " + of.Unresolved
	}
	l.files = append(l.files, of.evidence()...)
}

// CommitCount is the number of commits in all repositories.
func (l *Result) CommitCount() int {
	n := len(l.Commits)
	for i := range l.Repos {
		n += len(l.Repos[i].Commits)
	}
	return n
}

// evidence lists the files that keep work.
func (l *Result) evidence() (files []workorder.Evidence) {
	if l.Bundle != "" {
		files = append(files, workorder.Evidence{Name: "commits that could not be pushed", Path: l.Bundle, Kind: "git-bundle"})
	}
	if l.Archive != "" {
		files = append(files, workorder.Evidence{Name: "files that could not be committed", Path: l.Archive, Kind: "tar+gzip"})
	}
	return files
}

// commitsInBox reports whether readable commits could neither be pushed nor bundled; the host takes them from the box.
func (l *Result) commitsInBox() bool { return l.Err != nil && l.Bundle == "" && len(l.Commits) > 0 }

// Failed returns why the work is not on the remote, and where it is.
func (l *Result) Failed() (workorder.Reason, bool) {
	if l.Err == nil {
		return workorder.Reason{}, false
	}
	why := workorder.Reason{Code: workorder.ReasonLanding, Detail: l.Err.Error()}
	switch {
	case l.Bundle != "":
		switch {
		case remote.SecretIn(l.Err) != nil:
			why.Code = workorder.ReasonSecret
		case len(l.Commits) > 0:
			why.Code = workorder.ReasonPush
		}
		why.Detail += "; the commits are kept in " + l.Bundle
	case l.commitsInBox():
		why.Code = workorder.ReasonLeft
		why.Detail += "; there was no time to keep the commits as a file: they are copied out of the sandbox after it has stopped"
	}
	return why, true
}

// CopyTo copies the outcome into the attempt's result.
func (l *Result) CopyTo(r *workorder.Result) {
	r.Commits, r.Pushed, r.Checkpoint, r.Uncommitted = l.Commits, l.Pushed, l.Checkpoint, l.Lost
	if l.Head != "" {
		r.HeadSHA = l.Head
	}
	if !l.Pushed {
		r.Branch = ""
	}
	r.Warnings = append(r.Warnings, l.Warnings...)
	if l.Repos != nil {
		r.Repos = l.Repos
	}
	r.Evidence = append(append(r.Evidence, l.evidence()...), l.files...)
}
