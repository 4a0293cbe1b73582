package publish

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/workorder"
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
	err := p.commit(ctx, message)
	if p.load() == nil {
		p.led.Committed = err == nil
		err = errors.Join(err, p.store())
	}
	return err
}

func (p *Publisher) commit(ctx context.Context, message string) error {
	p.clear(ctx)
	p.open(ctx)
	t := p.tree()
	forced := slices.DeleteFunc(slices.Clone(p.forced()), func(path string) bool { return !p.present(path) })
	dirty, err := t.Dirty(ctx)
	if err != nil || !dirty && len(forced) == 0 {
		return err
	}
	_ = p.handOver(ctx) // else everything is read again
	addErr := p.add(ctx, t, func() { p.clear(ctx) })
	if ctx.Err() != nil {
		return addErr
	}
	if len(forced) > 0 {
		add := t
		add.Stdin = strings.Join(forced, "\x00") + "\x00"
		addErr = errors.Join(addErr, add.Run(ctx, "update-index", "--add", "-z", "--stdin"))
	}
	setup, err := p.baseline(ctx)
	if err == nil {
		err = p.unstage(ctx, setup)
	}
	if err != nil {
		return err
	}
	staged := false
	if err := t.Each(ctx, func(string) { staged = true }, "diff-index", "--cached", "--name-only", "-z", "HEAD"); err != nil {
		return err
	}
	if !staged && addErr == nil {
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
	var paths []string
	err := p.tree().Each(ctx, func(entry string) {
		if len(entry) > 3 { // two letters and a space
			paths = append(paths, entry[3:])
		}
	}, "status", "--porcelain", "-z", "--no-renames", "--untracked-files=all", "--ignore-submodules=dirty")
	return paths, err
}

// add stages everything in t's index. A filter that the agent configured may hang: what has
// not been added in half of the time is added without filters; unlock first
// takes away the lock that the first try may have left.
func (p *Publisher) add(ctx context.Context, t git.Repo, unlock func()) error {
	first, cancel := ctx, func() {}
	if d, ok := ctx.Deadline(); ok {
		first, cancel = context.WithTimeout(ctx, time.Until(d)/2)
	}
	defer cancel()
	err := t.Run(first, "add", "--all", "--ignore-errors")
	if first.Err() == nil || ctx.Err() != nil {
		return err
	}
	unlock()
	out, err := t.Output(ctx, "config", "--null", "--name-only", "--get-regexp", `^filter\..*\.(clean|process|required)$`)
	if err != nil {
		return fmt.Errorf("adding the files takes too long: %w", err)
	}
	var args []string
	for name := range strings.SplitSeq(string(out), "\x00") {
		switch {
		case strings.HasSuffix(name, ".required"):
			args = append(args, "-c", name+"=false")
		case name != "":
			args = append(args, "-c", name+"=")
		}
	}
	return t.Run(ctx, append(args, "add", "--all", "--ignore-errors")...)
}

// clear takes away what would block git for ever: lock files of a git that was
// killed with the agent (which is gone, so nobody holds them), and pipes and sockets in .git that
// git would wait on. It looks at .git only, so it is short however large the work
// tree is. It is done as the agent, whose folders may lead anywhere; a failure shows in what git says next.
func (p *Publisher) clear(ctx context.Context) {
	p.script(ctx, `find .git ! -type f ! -type d ! -type l -delete
find .git -path .git/objects -prune -o -name '*.lock' -type f -exec rm -f {} +`)
}

// open gives the agent's own user back what its modes shut out.
func (p *Publisher) open(ctx context.Context) {
	p.script(ctx, `find . -path ./.git -prune -o -type d ! -perm -u=rwx -exec chmod u+rwx {} \; -o -type f ! -perm -u=r -exec chmod u+r {} \;`)
}

func (p *Publisher) script(ctx context.Context, text string) {
	ctx, cancel := context.WithTimeout(ctx, clearTime)
	defer cancel()
	_ = proc.Run(ctx, proc.Spec{Argv: []string{"/bin/sh", "-c", text}, Dir: p.Workspace, User: p.User})
}

const (
	// clearTime is enough to walk a million files.
	clearTime = 20 * time.Second
	// listTime bounds asking git for the list of files to archive: a repository
	// that cannot say it in that time is archived whole.
	listTime = 5 * time.Second
	// archiveTime is enough to compress some hundred megabytes; a landing that is
	// shorter than that has workorder.BundleGrace instead.
	archiveTime = 60 * time.Second
)

// archiveLimit bounds an archive of what could not be committed, in bytes.
const archiveLimit = 512 << 20

// Archive keeps files as a compressed tar file: those that Commit could not
// commit or, with whole and where git cannot tell, all of the work tree with .git. It reads them as
// the agent's user, in time of its own: the landing's may be used up.
func (p *Publisher) Archive(ctx context.Context, path string, whole bool) error {
	limit := archiveTime
	if d, ok := ctx.Deadline(); ok && time.Until(d) < archiveTime {
		limit = workorder.BundleGrace
	}
	ctx = context.WithoutCancel(ctx)
	paths := []string{"."}
	if !whole {
		list, cancel := context.WithTimeout(ctx, min(listTime, limit))
		left, err := p.uncommitted(list)
		cancel()
		if err == nil {
			if len(left) == 0 {
				return errors.New("keep uncommitted files: there are none that can be named")
			}
			paths = left
		}
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o644)
	if err != nil {
		return fmt.Errorf("keep uncommitted files: %w", err)
	}
	tail := proc.NewTail(1 << 10)
	err = proc.Run(ctx, proc.Spec{
		// What cannot be read even now is left out; the rest counts.
		Argv: []string{"tar", "--create", "--gzip", "--ignore-failed-read", "--null", "--verbatim-files-from", "--files-from=-"},
		Dir:  p.Workspace, User: p.User, Stdin: strings.NewReader(strings.Join(paths, "\x00")),
		Stdout: &limitWriter{w: f, left: archiveLimit}, Stderr: tail,
		Env: []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C.UTF-8"},
	})
	if proc.ExitCode(err) == 1 {
		err = nil // a file changed while it was read: it is in, as far as it went
	}
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
