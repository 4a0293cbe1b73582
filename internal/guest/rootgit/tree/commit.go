package tree

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

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/internal/safeopen"
)

// Committer commits and archives as the agent's user.
type Committer struct {
	*Tree

	conflicts *Conflicts // conflicts found by the last commit of leftovers; nil if none
}

// Commit commits the agent's uncommitted changes with untracked files, as the agent's user and without hooks. A
// *UncommittedError names files that cannot be added; the others are committed. Without changes it returns nil. message
// receives the conflicts that the agent left, nil if none.
func (c *Committer) Commit(ctx context.Context, message func(*Conflicts) string) error {
	err := c.commit(ctx, message)
	if c.Ledger.Load() == nil {
		c.Ledger.Committed = err == nil
		err = errors.Join(err, c.Ledger.Store())
	}
	return err
}

func (c *Committer) commit(ctx context.Context, message func(*Conflicts) string) error {
	c.Work.unblock(ctx)
	conflicts := c.unmerged(ctx)
	_ = c.Index.replaceAgentIndex(ctx) // otherwise git reads all files again
	added, err := c.Index.add(ctx, c.Repos.Tree(), largestFile, func() { c.Work.RemoveLocks(ctx) }, false)
	if err != nil {
		return err
	}
	left := added.left.addSubmoduleFiles(added.large, tooLarge)
	t := added.raw
	settings, err := c.Config.entriesFor(ctx, t, "HEAD")
	if err != nil {
		return err
	}
	if err := c.Checkpoints.unstage(ctx, t, settings); err != nil {
		return err
	}
	old, err := asHead(ctx, t, "HEAD", added.skipped())
	if err != nil {
		return err
	}
	if old != "" {
		if t, err = c.Index.with(ctx, t, old); err != nil {
			return err
		}
	}
	was, err := c.Checkpoints.setupRecord()
	if err != nil {
		return err
	}
	staged := false
	var setup []string
	if err := t.Each(ctx, func(path string) {
		staged = true
		if isNew(was[path]) {
			setup = append(setup, path)
		}
	}, "diff-index", "--cached", "--name-only", "-z", "HEAD", "--"); err != nil {
		return err
	}
	if len(setup) > 0 {
		c.Repos.Warn("files that setup made and the agent changed are committed: %s", Named(setup))
	}
	c.nameExcluded(ctx)
	if staged {
		if old == "" {
			err = t.Run(ctx, "commit", "--quiet", "--no-verify", "--no-gpg-sign", "--message", message(conflicts))
		} else {
			err = commitIndex(ctx, t, message(conflicts))
		}
		if err != nil {
			return err
		}
	}
	c.noteConflicts(ctx, t, conflicts)
	if err := c.Config.restore(ctx, settings); err != nil {
		c.Repos.Warn("%v", err)
	}
	left = left.addSubmoduleFiles(added.outside, "changed "+
		"in a submodule, or in another work tree, whose files are not part of this repository")
	objects, n := c.Work.lfsObjects(ctx)
	if left = left.addSubmoduleFiles(objects, fmt.Sprintf("%d objects of Git LFS are not on the remote", n)); left != nil {
		return left
	}
	return nil
}

// nameExcluded warns of files that are not committed because they are in a directory that setup made.
func (c *Committer) nameExcluded(ctx context.Context) {
	file := c.Checkpoints.baselineFile() + excludedDirs
	list, err := os.ReadFile(file)
	if err != nil || len(list) == 0 { // there are none, or setup's files were not recorded
		return
	}
	st, err := os.Stat(file)
	if err != nil {
		return
	}
	fresh, err := c.Work.newFiles(ctx, strings.Split(string(list), "\x00"), st.ModTime())
	if err != nil {
		c.Repos.Warn("new files in directories that setup made are not committed, and cannot be listed: %v", err)
	}
	if len(fresh) > 0 {
		c.Repos.Warn("new files in directories that setup made are not committed unless `git add --force` adds them: %s", Named(fresh))
	}
}

// commitIndex commits an index as it is: `git commit` would examine all files first.
func commitIndex(ctx context.Context, t git.Repo, message string) error {
	tree, err := t.Output(ctx, "write-tree")
	if err != nil {
		return err
	}
	commit, err := t.Output(ctx, "commit-tree", "-p", "HEAD", "-m", message, strings.TrimSpace(string(tree)))
	if err != nil {
		return err
	}
	return t.Run(ctx, "update-ref", "HEAD", strings.TrimSpace(string(commit)))
}

// Uncommitted lists the paths in which the work tree differs from HEAD, small files first.
func (c *Committer) Uncommitted(ctx context.Context) ([]string, error) {
	t, err := c.Index.unfiltered(ctx, c.Repos.Tree())
	if err != nil {
		return nil, err
	}
	f, err := c.Work.survey(ctx, t)
	if err != nil {
		return nil, err
	}
	base, err := c.Config.unchangedSinceBase(ctx)
	if err != nil {
		return nil, err
	}
	var list []string
	for _, file := range f.files {
		if !base[file.Path] {
			list = append(list, file.Path)
		}
	}
	err = t.Each(ctx, func(path string) {
		if c.Index.present(path) && !base[path] {
			list = append(list, path)
		}
	}, "diff-index", "--cached", "--name-only", "--no-renames", "-z", "HEAD", "--")
	objects, _ := c.Work.lfsObjects(ctx)
	return slices.Concat(list, f.outside, objects), err
}

const (
	// listTime bounds the query for the files to archive. If git is slower, the whole repository is archived.
	listTime = 5 * time.Second
	// archiveTime is enough to compress some hundred megabytes.
	archiveTime = 60 * time.Second
)

const (
	// archiveLimit bounds the contents of an archive of uncommitted files, in bytes before compression: small files first.
	archiveLimit = 512 << 20
	// largestFile bounds a file that a landing itself commits or archives, in bytes: no forge accepts a larger one.
	largestFile = 512 << 20
)

const tooLarge = "larger than 512 MiB: neither read nor kept; commit it, or add it to .gitignore"

// Archive saves files as a compressed tar file: those that Commit could not commit or, if whole is set and git cannot
// list them, the whole work tree with .git. It reads them as the agent's user, within its own time limit.
func (c *Committer) Archive(ctx context.Context, path string, whole bool) error {
	limit := archiveTime
	if c.Stop.LessThan(ctx, archiveTime) {
		limit = c.Stop.FileBudget() / 2
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	c.Work.restoreDirAccess()
	paths, tooMuch, err := c.archived(ctx, min(listTime, limit/2), whole)
	if err != nil {
		return err
	}
	recursion := "--recursion" // a repository inside the work tree, or the directory of LFS objects, is one entry
	if whole {
		recursion = "--no-recursion" // the list is complete and omits files that are too large
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o644)
	if err != nil {
		return fmt.Errorf("keep uncommitted files: %w", err)
	}
	tail := proc.NewTail(1 << 10)
	err = proc.Run(ctx, proc.Spec{
		Argv: archiver(recursion),
		Dir:  c.Repos.Workspace, User: c.Repos.User, Stdin: strings.NewReader(strings.Join(paths, "\x00")),
		Stdout: &limitWriter{w: f, left: archiveLimit}, Stderr: tail,
		Env: []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C.UTF-8"},
	})
	if proc.ExitCode(err) == 1 {
		err = nil // a file changed while it was read: the archive has the part that was read
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = holdsAny(path)
	}
	if err != nil {
		_ = os.Remove(path)
		if tooMuch && errors.Is(err, errEmpty) {
			return ErrTooLarge
		}
		return fmt.Errorf("keep uncommitted files: %w: %s", err, strings.TrimSpace(tail.String()))
	}
	return nil
}

func archiver(recursion string) []string {
	return []string{"tar", "--create", "--gzip", recursion, "--ignore-failed-read", "--null", "--verbatim-files-from", "--files-from=-"}
}

// errEmpty means that tar could read none of the files, which tar itself reports as success.
var errEmpty = errors.New("none of them can be read")

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

// ErrTooLarge is returned if all files to archive are too large or have too long paths.
var ErrTooLarge = errors.New("keep uncommitted files: " + tooLarge)

// archived lists the files for an archive: the paths that differ from HEAD or, if whole is set and git cannot list
// them within limit, all files. It leaves out files beyond the limits, which large reports.
func (c *Committer) archived(ctx context.Context, limit time.Duration, whole bool) (_ []string, large bool, _ error) {
	var paths []string
	all := true
	if !whole {
		list, listed := context.WithTimeout(ctx, limit)
		left, err := c.Uncommitted(list)
		listed()
		if paths, all = left, err != nil; !all && len(left) == 0 {
			return nil, false, errors.New("keep uncommitted files: none has a usable name")
		}
	}
	if all {
		if _, err := os.Lstat(c.Repos.Workspace); err != nil {
			return nil, false, fmt.Errorf("keep uncommitted files: %w", err)
		}
		var cut bool
		if paths, cut = inTree(ctx, c.Repos.Workspace, archiveNames); cut {
			c.Repos.Warn("the work tree has more than %d files: the archive of uncommitted files lacks the others", archiveNames)
		}
	}
	sizes := map[string]int64{}
	for _, path := range paths {
		if st, err := os.Lstat(filepath.Join(c.Repos.Workspace, path)); err == nil && st.Mode().IsRegular() {
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
		c.Repos.Warn("%d files are not kept: their paths are longer than %d bytes, which no program can open", long, unix.PathMax)
	}
	if len(kept) == 0 && (large || long > 0) {
		return nil, large, ErrTooLarge
	}
	return kept, large, nil
}

// archiveNames bounds the files of an archive that is created without git, because their names are in memory.
const archiveNames = 200_000

// inTree lists up to a number of files below a directory. It leaves out unreadable ones.
func inTree(ctx context.Context, root string, most int) (paths []string, cut bool) {
	_ = safeopen.Walk(root, func(path string, _ fs.FileInfo, err error) error {
		if err == nil && path != root {
			if cut = len(paths) == most; cut {
				return fs.SkipAll
			}
			paths = append(paths, "."+strings.TrimPrefix(path, root))
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
