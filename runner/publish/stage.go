package publish

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
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

const (
	// smallFile is the size, in bytes, up to which files are staged together, chunkBytes and chunkFiles at a time: what is
	// staged stays staged, so that a landing of 4 s brings most of what no time would be enough for. Larger ones follow alone.
	smallFile  = 8 << 20
	chunkBytes = 32 << 20
	chunkFiles = 20_000
	// checkpointFile bounds a file of a checkpoint, in bytes: hashing a larger one
	// every interval costs the agent more than it is worth. It is committed in the end.
	checkpointFile = 256 << 20
	// stageShare is the part of the time that staging may have: the rest is for what is made of it.
	stageShare = 0.8
	// maxBad bounds the files that are tried one by one.
	maxBad = 50
)

// staged is what came of staging a work tree.
type staged struct {
	*found
	// large are the files that are larger than allowed.
	large []string
	left  *LeftError // nil: nothing else is missing
}

// add brings t's index up to the work tree, small files first, for most of the time that there is. A
// larger file than most, where that is not 0, is left out. unlock takes away the lock
// that a killed git may have left.
func (p *Publisher) add(ctx context.Context, t git.Repo, most int64, unlock func()) (*staged, error) {
	if d, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(float64(time.Until(d))*stageShare))
		defer cancel()
	}
	a, err := p.adder(ctx, t, unlock)
	if err != nil {
		return nil, err
	}
	f, err := p.survey(ctx, a.raw)
	if err != nil {
		return nil, err
	}
	s := &staged{found: f}
	files := append(slices.Clone(f.files), p.forcedFiles(f)...)
	if most > 0 {
		files = slices.DeleteFunc(files, func(f file) bool {
			if f.size > most {
				s.large = append(s.large, f.path)
			}
			return f.size > most
		})
	}
	if len(f.drop) > 0 {
		raw := a.raw
		raw.Stdin = strings.Join(f.drop, "\x00") + "\x00"
		if err := raw.Run(ctx, "update-index", "--force-remove", "-z", "--stdin"); err != nil {
			return nil, err
		}
	}
	s.left = a.all(ctx, files)
	return s, s.refused(ctx, a.raw, files)
}

// forcedFiles are those that git would pass over because they are ignored.
func (p *Publisher) forcedFiles(f *found) (files []file) {
	l := looker{root: p.Workspace, dirs: map[string]bool{}}
	for _, path := range p.forced() {
		if size, is := l.look(path, false); is && !f.indexed[path] {
			files = append(files, file{path, size})
		}
	}
	return files
}

// refused adds the files that git passes over without a word, for their names (git~1).
func (s *staged) refused(ctx context.Context, t git.Repo, files []file) error {
	missing := map[string]int64{}
	for _, f := range files {
		if !s.indexed[f.path] {
			missing[strings.TrimSuffix(f.path, "/")] = f.size
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
	s.left = s.left.beyond(left, "git takes no file of that name")
	return nil
}

// unfiltered is t with everything off that would make something else of a file's content than it is. On
// a git older than 2.41 attributes that name no filter (an encoding) stay. Whatever writes an index may
// run a filter, for a file that is as young as the index.
func (p *Publisher) unfiltered(ctx context.Context, t git.Repo) (git.Repo, error) {
	a, err := p.adder(ctx, t, nil)
	if err != nil {
		return git.Repo{}, err
	}
	return a.raw, nil
}

// adder looks at what filters t has.
func (p *Publisher) adder(ctx context.Context, t git.Repo, unlock func()) (*adder, error) {
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
	if err != nil && proc.ExitCode(err) != 1 { // 1: there are none
		return nil, fmt.Errorf("read the filters of the work tree: %w", err)
	}
	a.raw.Env = append(slices.Clone(t.Env), "GIT_ATTR_SOURCE="+p.emptyTree(), "GIT_LFS_SKIP_SMUDGE=1")
	a.raw.Env = append(a.raw.Env, settings(set...)...)
	return a, nil
}

// emptyTree is the id that git gives to a tree without files.
func (p *Publisher) emptyTree() string {
	if p.load() == nil && len(p.led.State.BaseSHA) == 64 {
		return "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321"
	}
	return "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
}

// settings is the environment that sets keys of git's configuration, beside those that
// keep rules out that are not in the repository: what is ignored by them would be lost.
func settings(pairs ...string) (env []string) {
	pairs = append([]string{"core.excludesFile", "/dev/null", "core.attributesFile", "/dev/null"}, pairs...)
	env = append(env, fmt.Sprintf("GIT_CONFIG_COUNT=%d", len(pairs)/2))
	for i := 0; i+1 < len(pairs); i += 2 {
		env = append(env, fmt.Sprintf("GIT_CONFIG_KEY_%d=%s", i/2, pairs[i]), fmt.Sprintf("GIT_CONFIG_VALUE_%d=%s", i/2, pairs[i+1]))
	}
	return env
}

// adder stages files, as they are where t's filters cannot.
type adder struct {
	t, raw  git.Repo
	filters bool // t has some
	hung    bool // one of them took too long
	unlock  func()
	bad     int
}

// all stages files, and says which ones it could not and why.
func (a *adder) all(ctx context.Context, files []file) *LeftError {
	left := &LeftError{}
	for len(files) > 0 {
		n, bytes := 0, int64(0)
		for n < len(files) && n < chunkFiles && (n == 0 || files[n].size <= smallFile && bytes+files[n].size <= chunkBytes) {
			bytes += files[n].size
			n++
		}
		a.some(ctx, files[:n], left)
		if left.Full && a.unlock != nil {
			a.unlock()
		}
		if ctx.Err() != nil || left.Full {
			left.miss(nil, files[n:])
			break
		}
		files = files[n:]
	}
	if len(left.Paths) == 0 {
		return nil
	}
	return left
}

// some stages files together and, where one of them cannot be, the others without it.
func (a *adder) some(ctx context.Context, files []file, left *LeftError) {
	if len(files) == 0 {
		return
	}
	if ctx.Err() != nil || left.Full || a.bad >= maxBad {
		left.miss(ctx.Err(), files)
		return
	}
	err := a.update(ctx, files)
	switch {
	case err == nil:
	case len(files) == 1 || ctx.Err() != nil:
		a.bad++
		left.miss(errors.Join(ctx.Err(), err), files)
	default:
		a.some(ctx, files[:len(files)/2], left)
		a.some(ctx, files[len(files)/2:], left)
	}
}

func (a *adder) update(ctx context.Context, files []file) error {
	var b strings.Builder
	for _, f := range files {
		b.WriteString(strings.TrimSuffix(f.path, "/") + "\x00")
	}
	// --remove: a file that is gone in this moment is no error.
	args := []string{"update-index", "--add", "--remove", "--replace", "-z", "--stdin"}
	if !a.hung {
		first, cancel := ctx, context.CancelFunc(func() {})
		if d, ok := ctx.Deadline(); ok && a.filters {
			first, cancel = context.WithTimeout(ctx, time.Until(d)/2)
		}
		defer cancel()
		a.t.Stdin = b.String()
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
	a.raw.Stdin = b.String()
	err := a.raw.Run(ctx, args...)
	if err != nil {
		a.unlock()
	}
	return err
}

func isFull(err error) bool {
	// The second is what git says where it streams a large file.
	return err != nil && (strings.Contains(err.Error(), "No space left on device") || strings.Contains(err.Error(), "Out of diskspace"))
}
