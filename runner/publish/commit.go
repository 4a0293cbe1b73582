package publish

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

// LeftError says that some of the work tree could not be committed.
type LeftError struct {
	Paths []string
	// Full: the disk had no room for them.
	Full bool
}

// Left are the paths that only Archive can keep.
func (e *LeftError) Left() []string { return e.Paths }

// maxNamed bounds the paths in a message.
const maxNamed = 5

func (e *LeftError) Error() string {
	named := e.Paths[:min(len(e.Paths), maxNamed)]
	s := "could not commit " + strings.Join(named, ", ")
	if more := len(e.Paths) - len(named); more > 0 {
		s += fmt.Sprintf(" and %d more", more)
	}
	if e.Full {
		return s + " (no space left on the disk)"
	}
	return s + " (a repository of its own without a commit, or not readable for the agent's user)"
}

// Commit commits what the agent left uncommitted, untracked files that are not
// ignored included, as the agent's user and with hooks off. What cannot be added does not keep the
// rest from being committed; it is named by a *LeftError. Nothing to commit is no error.
func (p *Publisher) Commit(ctx context.Context, message string) error {
	t := p.tree()
	dirty, err := t.Dirty(ctx)
	if err != nil || !dirty {
		return err
	}
	p.unlock(ctx)
	addErr := t.Run(ctx, "add", "--all", "--ignore-errors")
	if ctx.Err() != nil {
		return addErr
	}
	setup, err := p.baseline(ctx)
	if err == nil {
		err = p.unstage(ctx, setup)
	}
	if err != nil {
		return err
	}
	staged, err := t.Output(ctx, "diff-index", "--cached", "--name-only", "-z", "HEAD")
	if err != nil {
		return err
	}
	if len(staged) == 0 && addErr == nil {
		return nil // nothing but what setup left, or ignored dirt in submodules
	}
	commitErr := t.Run(ctx, "commit", "--quiet", "--no-verify", "--no-gpg-sign", "--message", message)
	left, err := p.uncommitted(ctx)
	left = slices.DeleteFunc(left, func(path string) bool { return slices.Contains(setup, path) })
	switch {
	case err != nil:
		return errors.Join(addErr, commitErr, err)
	case len(left) == 0:
		return nil
	case addErr == nil && commitErr != nil:
		return commitErr
	}
	full := addErr != nil && strings.Contains(addErr.Error(), "No space left on device")
	return &LeftError{Paths: left, Full: full}
}

// uncommitted lists the paths in which the work tree differs from HEAD.
func (p *Publisher) uncommitted(ctx context.Context) ([]string, error) {
	out, err := p.tree().Output(ctx, "status", "--porcelain", "-z", "--no-renames", "--untracked-files=all", "--ignore-submodules=dirty")
	if err != nil {
		return nil, err
	}
	var paths []string
	for entry := range strings.SplitSeq(string(out), "\x00") {
		if len(entry) > 3 { // two letters and a space
			paths = append(paths, entry[3:])
		}
	}
	return paths, nil
}

// unlock removes the lock files of a git that was killed with the agent: of the
// index, of HEAD, of a branch. The agent is gone, so nobody holds them; each would block the commit. It is
// done as the agent, whose folder may lead anywhere. A failure shows in the commit.
func (p *Publisher) unlock(ctx context.Context) {
	_ = proc.Run(ctx, proc.Spec{
		Argv: []string{"find", ".git", "-path", ".git/objects", "-prune", "-o", "-name", "*.lock", "-type", "f", "-exec", "rm", "-f", "{}", "+"},
		Dir:  p.Workspace, User: p.User,
	})
}

// archiveLimit bounds an archive of what could not be committed, in bytes.
const archiveLimit = 512 << 20

// Archive keeps what Commit could not commit as a compressed tar file, or the
// whole work tree without .git where git cannot tell. It reads the files as the agent's user.
func (p *Publisher) Archive(ctx context.Context, path string) error {
	paths, err := p.uncommitted(ctx)
	if err != nil {
		paths = []string{"."}
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o644)
	if err != nil {
		return fmt.Errorf("keep uncommitted files: %w", err)
	}
	tail := proc.NewTail(1 << 10)
	err = proc.Run(ctx, proc.Spec{
		// What cannot be read even now is left out; the rest counts.
		Argv: []string{"tar", "--create", "--gzip", "--exclude=./.git", "--ignore-failed-read", "--null", "--files-from=-"},
		Dir:  p.Workspace, User: p.User, Stdin: strings.NewReader(strings.Join(paths, "\x00")),
		Stdout: &limitWriter{w: f, left: archiveLimit}, Stderr: tail,
		Env: []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C.UTF-8"},
	})
	if err = errors.Join(err, f.Close()); err != nil {
		_ = os.Remove(path)
		return fmt.Errorf("keep uncommitted files: %w: %s", err, strings.TrimSpace(tail.String()))
	}
	return nil
}

type limitWriter struct {
	w    io.Writer
	left int64
}

func (l *limitWriter) Write(b []byte) (int, error) {
	if l.left -= int64(len(b)); l.left < 0 {
		return 0, fmt.Errorf("more than %d bytes", int64(archiveLimit))
	}
	return l.w.Write(b)
}
