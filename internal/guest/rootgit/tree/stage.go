package tree

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/remote"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

// Index is the separate index for the agent's work tree.
type Index struct {
	*Tree

	synced string          // the agent's index when the separate one last had all of its paths
	roots  map[string]bool // the repositories inside the work tree, as last seen
}

const (
	// smallFile is the size, in bytes, up to which files are staged together, chunkBytes and chunkFiles at a time.
	smallFile  = 8 << 20
	chunkBytes = 32 << 20
	chunkFiles = 20_000
	// checkpointFile bounds a file of a checkpoint, in bytes. The final commit includes larger ones.
	checkpointFile = 256 << 20
	// stageShare is staging's share of the time; the rest is for the following steps.
	stageShare = 0.8
	// maxBad bounds the files that are tried one by one.
	maxBad = 50
)

type staged struct {
	*diff
	large []string          // files that are larger than allowed
	left  *UncommittedError // nil if nothing else is missing
	raw   git.Repo          // the work tree without content conversion
}

func (s *staged) skipped() []string {
	out := slices.Clone(s.large)
	if s.left != nil {
		out = append(out, s.left.Paths...)
	}
	return out
}

// add updates t's index to the work tree, small files first, for most of the available time. It leaves out files larger
// than most, unless that is 0. unlock removes the lock of a killed git. names: it stores no content of new files.
func (x *Index) add(ctx context.Context, t git.Repo, most int64, unlock func(), names bool) (*staged, error) {
	if d, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(float64(time.Until(d))*stageShare))
		defer cancel()
	}
	a, err := x.adder(ctx, t, unlock)
	if err != nil {
		return nil, err
	}
	f, err := x.Work.survey(ctx, a.raw)
	if err != nil {
		return nil, err
	}
	s := &staged{diff: f, raw: a.raw}
	files := append(slices.Clone(f.files), x.forcedFiles(f)...)
	if most > 0 {
		files = slices.DeleteFunc(files, func(f File) bool {
			if f.Size > most {
				s.large = append(s.large, f.Path)
			}
			return f.Size > most
		})
	}
	if len(f.drop) > 0 {
		raw := a.raw
		raw.Stdin = strings.Join(f.drop, "\x00") + "\x00"
		if err := raw.Run(ctx, "update-index", "--force-remove", "-z", "--stdin"); err != nil {
			return nil, err
		}
	}
	if names {
		a.names = func(f File) bool { return !s.indexed[f.Path] }
	}
	s.left = a.all(ctx, files)
	return s, s.refused(ctx, a.raw, files)
}

func (x *Index) forcedFiles(f *diff) (files []File) {
	l := x.Work.newPathReader()
	for _, path := range x.forced() {
		if size, is := l.look(path, false); is && !f.indexed[path] {
			files = append(files, File{Path: path, Size: size})
		}
	}
	return files
}

// refused adds the files that git skips silently because of their names (git~1).
func (s *staged) refused(ctx context.Context, t git.Repo, files []File) error {
	missing := map[string]int64{}
	for _, f := range files {
		if !s.indexed[f.Path] {
			missing[strings.TrimSuffix(f.Path, "/")] = f.Size
		}
	}
	if s.left != nil {
		for _, path := range s.left.Paths {
			delete(missing, path)
		}
	}
	if len(missing) == 0 || ctx.Err() != nil {
		return nil
	}
	t.Stdin = ""
	if err := t.Each(ctx, func(path string) { delete(missing, path) }, "ls-files", "-z", "--cached"); err != nil {
		return err
	}
	var left []string
	for path := range missing {
		if _, err := os.Lstat(filepath.Join(t.Dir, path)); err == nil {
			left = append(left, path)
		}
	}
	slices.Sort(left)
	s.left = s.left.addSubmoduleFiles(left, "git does not accept that file name")
	return nil
}

// unfiltered returns t with all content conversion off (git before 2.41 keeps encodings). Every command that writes an
// index may run a filter.
func (x *Index) unfiltered(ctx context.Context, t git.Repo) (git.Repo, error) {
	a, err := x.adder(ctx, t, nil)
	if err != nil {
		return git.Repo{}, err
	}
	return a.raw, nil
}

func (x *Index) adder(ctx context.Context, t git.Repo, unlock func()) (*adder, error) {
	a := &adder{t: t, raw: t, unlock: unlock}
	var set []string
	err := t.Each(ctx, func(name string) {
		a.filters = true
		if strings.HasSuffix(name, ".required") {
			set = append(set, name, "false")
		} else {
			set = append(set, name, "")
		}
	}, "config", "--null", "--name-only", "--get-regexp", `^filter\..*\.(clean|smudge|process|required)$`)
	if err != nil && proc.ExitCode(err) != 1 { // exit code 1: there are none
		return nil, fmt.Errorf("read the filters of the work tree: %w", err)
	}
	a.raw.Env = append(slices.Clone(t.Env), "GIT_ATTR_SOURCE="+x.emptyTree(), "GIT_LFS_SKIP_SMUDGE=1")
	a.raw.Env = append(a.raw.Env, remote.ConfigEnv(set...)...)
	return a, nil
}

func (x *Index) emptyTree() string {
	if x.Ledger.Load() == nil && len(x.Ledger.State.BaseSHA) == 64 {
		return "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321"
	}
	return "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
}

// adder stages files, unfiltered if t's filters fail.
type adder struct {
	t, raw  git.Repo
	filters bool // t has some
	hung    bool // one of them took too long
	// names selects files of which only the name and the id is stored; nil means none.
	names  func(File) bool
	unlock func()
	bad    int
}

func (a *adder) all(ctx context.Context, files []File) *UncommittedError {
	left := &UncommittedError{}
	for len(files) > 0 {
		n, bytes := 0, int64(0)
		for n < len(files) && n < chunkFiles && (n == 0 || files[n].Size <= smallFile && bytes+files[n].Size <= chunkBytes) {
			bytes += files[n].Size
			n++
		}
		a.some(ctx, files[:n], left)
		if left.full && a.unlock != nil {
			a.unlock()
		}
		if ctx.Err() != nil || left.full {
			left.addFiles(nil, files[n:])
			break
		}
		files = files[n:]
	}
	if len(left.Paths) == 0 {
		return nil
	}
	return left
}

// some stages files together. If one of them fails, it stages the others without it.
func (a *adder) some(ctx context.Context, files []File, left *UncommittedError) {
	if len(files) == 0 {
		return
	}
	if ctx.Err() != nil || left.full || a.bad >= maxBad {
		left.addFiles(ctx.Err(), files)
		return
	}
	err := a.update(ctx, files)
	switch {
	case err == nil:
	case len(files) == 1 || ctx.Err() != nil:
		a.bad++
		left.addFiles(errors.Join(ctx.Err(), err), files)
	default:
		a.some(ctx, files[:len(files)/2], left)
		a.some(ctx, files[len(files)/2:], left)
	}
}

func (a *adder) update(ctx context.Context, files []File) error {
	var named, whole strings.Builder
	for _, f := range files {
		b := &whole
		if a.names != nil && a.names(f) {
			b = &named
		}
		b.WriteString(strings.TrimSuffix(f.Path, "/") + "\x00")
	}
	// --remove: a file deleted meanwhile is not an error.
	args := []string{"update-index", "--add", "--remove", "--replace", "-z", "--stdin"}
	if named.Len() > 0 {
		if err := a.git(ctx, named.String(), slices.Insert(slices.Clone(args), 1, "--info-only")); err != nil {
			return err
		}
	}
	if whole.Len() == 0 {
		return nil
	}
	return a.git(ctx, whole.String(), args)
}

// git runs a command that may filter the files in its input, and runs it without filters if they fail.
func (a *adder) git(ctx context.Context, in string, args []string) error {
	if !a.hung {
		first, cancel := ctx, context.CancelFunc(func() {})
		if d, ok := ctx.Deadline(); ok && a.filters {
			first, cancel = context.WithTimeout(ctx, time.Until(d)/2)
		}
		defer cancel()
		a.t.Stdin = in
		err := a.t.Run(first, args...)
		if err == nil {
			return nil
		}
		a.unlock()
		if ctx.Err() != nil || isFull(err) {
			return err
		}
		a.hung = first.Err() != nil
	}
	a.raw.Stdin = in
	err := a.raw.Run(ctx, args...)
	if err != nil {
		a.unlock()
	}
	return err
}
