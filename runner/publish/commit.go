package publish

import (
	"archive/tar"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/internal/untrusted"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// LeftError says that some of the work tree could not be committed.
type LeftError struct {
	Paths []string
	// Full: the disk had no room for them.
	Full bool
	// Why is the first reason, for people.
	Why string
}

// Left are the paths that only Archive can keep.
func (e *LeftError) Left() []string { return e.Paths }

// maxNamed bounds the paths in a message.
const maxNamed = 5

func (e *LeftError) Error() string {
	return "could not commit " + named(e.Paths) + " (" + e.Why + ")"
}

// named names the first few of many paths.
func named(paths []string) string {
	s := strings.Join(paths[:min(len(paths), maxNamed)], ", ")
	if more := len(paths) - maxNamed; more > 0 {
		s += fmt.Sprintf(" and %d more", more)
	}
	return s
}

// miss adds files. err nil: for the reason that others have.
func (e *LeftError) miss(err error, files []file) {
	for _, f := range files {
		e.Paths = append(e.Paths, f.path)
	}
	e.Full = e.Full || isFull(err)
	why := ""
	switch {
	case e.Full:
		why = "no space left on the disk"
	case e.Why != "" || err == nil && len(files) == 0:
	case err == nil:
		why = "there are too many that git cannot take"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		why = "there was no time left for it"
	case strings.Contains(err.Error(), "Permission denied"):
		why = "not readable for the agent's user"
	default:
		why = err.Error()
	}
	e.Why = cmp.Or(why, e.Why)
}

// beyond adds changed files of submodules.
func (e *LeftError) beyond(paths []string, why string) *LeftError {
	if len(paths) == 0 {
		return e
	}
	if e == nil {
		return &LeftError{Paths: paths, Why: why}
	}
	return &LeftError{Paths: slices.Concat(e.Paths, paths), Full: e.Full, Why: e.Why + "; " + why}
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
	_ = p.handOver(ctx) // else everything is read again
	added, err := p.add(ctx, p.tree(), largestFile, func() { p.clear(ctx) })
	if err != nil {
		return err
	}
	left := added.left.beyond(added.large, tooLarge)
	t, err := p.unfiltered(ctx, p.tree())
	if err != nil {
		return err
	}
	settings, err := p.settingsWanted(ctx, t, "HEAD")
	if err != nil {
		return err
	}
	if err := p.unstage(ctx, t, settings); err != nil {
		return err
	}
	staged := false
	if err := t.Each(ctx, func(string) { staged = true }, "diff-index", "--cached", "--name-only", "-z", "HEAD", "--"); err != nil {
		return err
	}
	if staged {
		if err := t.Run(ctx, "commit", "--quiet", "--no-verify", "--no-gpg-sign", "--message", message); err != nil {
			return err
		}
	}
	if err := p.giveBack(ctx, settings); err != nil {
		p.Emit(workorder.Event{Type: workorder.EventWarning, Text: err.Error()})
	}
	left = left.beyond(added.outside, "changed in a submodule, or in another work tree, whose files are no part of this repository")
	objects, n := p.lfsObjects(ctx)
	if left = left.beyond(objects, fmt.Sprintf("%d objects of Git LFS are not on the remote", n)); left != nil {
		return left
	}
	return nil
}

// uncommitted lists the paths in which the work tree differs from HEAD, small files first.
func (p *Publisher) uncommitted(ctx context.Context) ([]string, error) {
	t, err := p.unfiltered(ctx, p.tree())
	if err != nil {
		return nil, err
	}
	f, err := p.survey(ctx, t)
	if err != nil {
		return nil, err
	}
	base, err := p.asBase(ctx)
	if err != nil {
		return nil, err
	}
	var list []string
	for _, file := range f.files {
		if !base[file.path] {
			list = append(list, file.path)
		}
	}
	err = t.Each(ctx, func(path string) {
		if p.present(path) && !base[path] {
			list = append(list, path)
		}
	}, "diff-index", "--cached", "--name-only", "--no-renames", "-z", "HEAD", "--")
	objects, _ := p.lfsObjects(ctx)
	return slices.Concat(list, f.outside, objects), err
}

// clear takes away what would block git for ever: lock files of a git that was
// killed with the agent (which is gone, so nobody holds them), and pipes and sockets in .git that
// git would wait on; and what a git that found the disk full began to write, which is
// what fills it. It is done as the agent, whose folders may lead anywhere; a failure shows in what git says next.
func (p *Publisher) clear(ctx context.Context) {
	p.enter()
	p.script(ctx, `find .git \( ! -type f ! -type d ! -type l -o -xtype p -o -xtype s \) -delete
find .git -path .git/objects -prune -o -name '*.lock' -type f -exec rm -f {} +
rm -f .git/objects/pack/tmp_* .git/objects/tmp_* .git/objects/??/tmp_obj_*`)
	p.unpipe(ctx)
}

// unpipe takes away pipes and sockets where git looks for rules: it would wait on them.
func (p *Publisher) unpipe(ctx context.Context) {
	p.script(ctx, `find . -path ./.git -prune -o \( -name .gitignore -o -name .gitattributes -o -name .gitmodules \) \( -type p -o -type s \) -exec rm -f {} +`)
}

// enter gives the agent's user the work tree's folder back, which as that user nobody
// can. The folder above is ours, so it is no link.
func (p *Publisher) enter() {
	if st, err := os.Lstat(p.Workspace); err == nil && st.IsDir() && st.Mode().Perm()&0o700 != 0o700 {
		_ = os.Chmod(p.Workspace, st.Mode().Perm()|0o700) // git says what is wrong
	}
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
	// shorter than that has half of its time for files, the other half is the bundle's.
	archiveTime = 60 * time.Second
)

const (
	// archiveLimit bounds what an archive of what could not be committed holds, in bytes before it is compressed: small files first.
	archiveLimit = 512 << 20
	// largestFile bounds a file that a landing commits or archives by itself, in bytes, whether it takes that much of the disk or is
	// sparse: no forge takes one that large, and reading it costs the landing of all others. What the agent commits is not bounded.
	largestFile = 512 << 20
)

// tooLarge is why such a file is left out.
const tooLarge = "larger than 512 MiB: it was neither read nor kept; commit it, or let .gitignore name it"

// Archive keeps files as a compressed tar file: those that Commit could not
// commit or, with whole and where git cannot tell, all of the work tree with .git. It reads them as
// the agent's user, in time of its own: the landing's may be used up.
func (p *Publisher) Archive(ctx context.Context, path string, whole bool) error {
	limit := archiveTime
	if p.hurried(ctx, archiveTime) {
		limit = p.filesTime() / 2
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	p.enter()
	list, listed := context.WithTimeout(ctx, min(listTime, limit/2))
	paths, tooMuch, err := p.archived(list, whole)
	listed()
	if err != nil {
		return err
	}
	recursion := "--recursion" // a repository inside the work tree, or the objects of LFS, are a folder
	if whole {
		recursion = "--no-recursion" // the list has all, without what is too large
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o644)
	if err != nil {
		return fmt.Errorf("keep uncommitted files: %w", err)
	}
	tail := proc.NewTail(1 << 10)
	err = proc.Run(ctx, proc.Spec{
		Argv: archiver(recursion),
		Dir:  p.Workspace, User: p.User, Stdin: strings.NewReader(strings.Join(paths, "\x00")),
		Stdout: &limitWriter{w: f, left: archiveLimit}, Stderr: tail,
		Env: []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C.UTF-8"},
	})
	if proc.ExitCode(err) == 1 {
		err = nil // a file changed while it was read: it is in, as far as it went
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = holdsAny(path)
	}
	if err != nil {
		_ = os.Remove(path)
		if tooMuch && errors.Is(err, errEmpty) {
			return ErrLarge
		}
		return fmt.Errorf("keep uncommitted files: %w: %s", err, strings.TrimSpace(tail.String()))
	}
	return nil
}

// archiver makes an archive of the names on its standard input. What cannot be read is left out; the rest counts.
func archiver(recursion string) []string {
	return []string{"tar", "--create", "--gzip", recursion, "--ignore-failed-read", "--null", "--verbatim-files-from", "--files-from=-"}
}

// errEmpty: tar could read none of the files, which it takes for success.
var errEmpty = errors.New("none of them can be read")

// holdsAny reports an error when a compressed archive is empty.
func holdsAny(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return err
	}
	if _, err := tar.NewReader(z).Next(); errors.Is(err, io.EOF) {
		return errEmpty
	} else if err != nil {
		return err
	}
	return nil
}

// ErrLarge is returned when nothing is to be archived but files that are too large, or whose paths are too long.
var ErrLarge = errors.New("keep uncommitted files: " + tooLarge)

// archived lists what an archive gets: the paths that differ from HEAD or, with whole and where git cannot tell, everything. Large files are
// left out, and what is too much in all, which large reports; paths that no program can open are named.
func (p *Publisher) archived(ctx context.Context, whole bool) (_ []string, large bool, _ error) {
	var paths []string
	all := true
	if !whole {
		left, err := p.uncommitted(ctx)
		if paths, all = left, err != nil; !all && len(left) == 0 {
			return nil, false, errors.New("keep uncommitted files: there are none that can be named")
		}
	}
	if all {
		if _, err := os.Lstat(p.Workspace); err != nil {
			return nil, false, fmt.Errorf("keep uncommitted files: %w", err)
		}
		var cut bool
		if paths, cut = p.inTree(ctx, archiveNames); cut {
			p.Emit(workorder.Event{Type: workorder.EventWarning, Text: fmt.Sprintf("the work tree has more than %d files: those beyond are not in the archive of what could not be committed", archiveNames)})
		}
	}
	sizes := map[string]int64{}
	for _, path := range paths {
		if st, err := os.Lstat(filepath.Join(p.Workspace, path)); err == nil && st.Mode().IsRegular() {
			sizes[path] = st.Size()
		}
	}
	slices.SortStableFunc(paths, func(a, b string) int { return cmp.Compare(sizes[a], sizes[b]) })
	room, long := int64(archiveLimit), 0
	kept := slices.DeleteFunc(paths, func(path string) bool {
		if len(path) >= unix.PathMax {
			long++
			return true
		}
		if size := sizes[path]; size > largestFile || size > room {
			large = true
			return true
		}
		room -= sizes[path]
		return false
	})
	if long > 0 {
		p.Emit(workorder.Event{Type: workorder.EventWarning, Text: fmt.Sprintf("%d files are not kept: their paths are longer than %d bytes, which no program can open", long, unix.PathMax)})
	}
	if len(kept) == 0 && (large || long > 0) {
		return nil, large, ErrLarge
	}
	return kept, large, nil
}

// archiveNames bounds the files of an archive that is made without git's help: their names are held in memory.
const archiveNames = 200_000

// inTree lists what is in the work tree, up to a number. What cannot be read is left out; the rest counts.
func (p *Publisher) inTree(ctx context.Context, most int) (paths []string, cut bool) {
	_ = untrusted.Walk(p.Workspace, func(path string, _ fs.FileInfo, err error) error {
		if err == nil && path != p.Workspace {
			if cut = len(paths) == most; cut {
				return fs.SkipAll
			}
			paths = append(paths, "."+strings.TrimPrefix(path, p.Workspace))
		}
		return ctx.Err()
	})
	return paths, cut
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
