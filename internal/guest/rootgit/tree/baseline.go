package tree

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
)

// Files that setup leaves in the work tree are not the agent's work: the agent's git ignores them, and Commit leaves them out
// unless the agent changed them. The record is a file, so that rescue can read it, too.

// excludedDirs is the suffix of the file that lists the directories whose new files Commit names.
const excludedDirs = "-dirs"

func (s *Checkpointer) baselineFile() string { return filepath.Join(s.Repos.Dir, "baseline") }

// RecordSetupFiles records how the work tree differs from HEAD now. It returns tracked files whose changes the agent's git does not
// show. Restored changes, and files from an archive, are the agent's work.
func (s *Checkpointer) RecordSetupFiles(ctx context.Context) (hidden []string, err error) {
	if err := s.Ledger.Lock(ctx); err != nil {
		return nil, err
	}
	defer s.Ledger.Unlock()
	if err := s.Work.clearFlags(ctx); err != nil {
		return nil, err
	}
	// The agent's git ignores settings that have the base's version.
	if s.Ledger.Load() != nil || len(s.Ledger.Settings) == 0 {
		t := s.Repos.Tree()
		if dirty, err := t.Dirty(ctx); err != nil || !dirty {
			return nil, err
		}
	}
	if err := s.Index.prepareSide(); err != nil {
		return nil, err
	}
	restored, err := s.RestoredPaths(ctx)
	if err != nil {
		return nil, err
	}
	unpacked, err := unpackedPaths(s.Tree)
	if err != nil {
		return nil, err
	}
	named, err := s.Work.excludeDirs(ctx, s.Repos.Tree(), restored, unpacked)
	if err != nil {
		return nil, err
	}
	// Setup's files are in no commit of the task, except for an earlier attempt's work or a setting.
	if len(restored)+len(unpacked) == 0 && len(s.Ledger.Settings) == 0 {
		err = s.Index.stageNames(ctx)
	} else {
		_, err = s.Index.stage(ctx, 0)
	}
	if err != nil {
		return nil, err
	}
	noted := map[string]string{}
	if err := changes(
		ctx, s.Index.repo(), func(path, entry string) { noted[path] = entry }, "diff-index", "--cached", "--no-renames", "-z", "HEAD", "--",
	); err != nil {
		return nil, err
	}
	base, err := s.Config.unchangedSinceBase(ctx)
	if err != nil {
		return nil, err
	}
	for path := range base {
		if base[path] {
			delete(noted, path)
		}
	}
	for _, path := range slices.Concat(restored, unpacked) {
		delete(noted, path)
	}
	var b strings.Builder
	var untracked []string
	for _, path := range slices.Sorted(maps.Keys(noted)) {
		b.WriteString(noted[path] + "\x00" + path + "\x00")
		if isNew(noted[path]) {
			untracked = append(untracked, path)
		}
	}
	if err := errors.Join(
		os.WriteFile(s.baselineFile()+excludedDirs, []byte(strings.Join(named, "\x00")), 0o600),
		os.WriteFile(s.baselineFile(), []byte(b.String()), 0o600),
	); err != nil {
		return nil, fmt.Errorf("record the files of setup: %w", err)
	}
	if err := s.Work.exclude(ctx, untracked); err != nil {
		return nil, err
	}
	if _, err := s.Work.unstageSetup(ctx, noted); err != nil {
		return nil, err
	}
	return s.Work.hideChanges(ctx, noted)
}

// isNew reports whether an entry of the record is a file that HEAD does not have.
func isNew(entry string) bool { return strings.HasSuffix(entry, " A") }

// packageDirs are names of directories that only package managers and compilers write to.
var packageDirs = []string{
	"node_modules", ".pnpm-store", ".yarn", ".venv", "venv", ".bundle", "__pycache__", ".tox", ".nox", ".gradle", ".m2", ".cargo", ".cache",
	"_build", "elm-stuff", ".stack-work", "dist-newstyle", ".dart_tool", "bower_components", "Pods",
}

// mixedDirs are such directories, too, but projects keep files of their own in directories of the same name.
var mixedDirs = []string{"target", "out"}

// ManyFiles is the number of files from which an untracked directory is excluded as a whole: git compares each
// untracked file with each pattern.
const ManyFiles = 200

// excludeDirs makes git ignore directories of packages and repositories that setup made, also files added to them later. It returns
// those whose later files Commit names. A directory with restored files is none of them, nor a directory of mixed files with unpacked
// ones. An archive of a work tree that git could not read has the packages, too.
func (t *WorkTree) excludeDirs(ctx context.Context, repo git.Repo, restored, unpacked []string) (named []string, err error) {
	var files []string
	tops, tagged := map[string]bool{}, map[string]bool{}
	list := []string{"ls-files", "-z", "--others", "--exclude-standard"}
	err = repo.Each(ctx, func(path string) { tops[path] = true }, append(list, "--directory", "--no-empty-directory")...)
	if err != nil {
		return nil, err
	}
	err = repo.Each(ctx, func(path string) {
		files = append(files, path)
		if dir, ok := strings.CutSuffix(path, "/CACHEDIR.TAG"); ok {
			tagged[dir+"/"] = true
		}
	}, list...)
	if err != nil {
		return nil, err
	}
	packages, mixed, many := map[string]bool{}, map[string]bool{}, map[string]int{}
	for _, file := range files {
		top := ""
		for i := range file {
			if file[i] != '/' {
				continue
			}
			dir := file[:i+1]
			if dir == file { // a repository inside the work tree is listed without its files
				mixed[dir] = true
				break
			}
			if top == "" && !tops[dir] {
				continue
			}
			top = cmp.Or(top, dir)
			name := filepath.Base(dir)
			if tagged[dir] || slices.Contains(packageDirs, name) || strings.HasSuffix("/"+dir, "/vendor/bundle/") {
				packages[dir], top = true, ""
				break
			}
			if slices.Contains(mixedDirs, name) {
				mixed[dir], top = true, ""
				break
			}
		}
		many[top]++
	}
	for dir, n := range many {
		if dir != "" && n >= ManyFiles {
			mixed[dir] = true
		}
	}
	hasAny := func(work []string) func(dir string) bool {
		return func(dir string) bool {
			return slices.ContainsFunc(work, func(p string) bool { return strings.HasPrefix(p, dir) })
		}
	}
	named = slices.DeleteFunc(slices.Sorted(maps.Keys(mixed)), hasAny(slices.Concat(restored, unpacked)))
	dirs := slices.DeleteFunc(slices.Sorted(maps.Keys(packages)), hasAny(restored))
	return named, t.exclude(ctx, append(dirs, named...))
}

// newFiles lists some files that changed since a time in directories that are excluded as a whole.
func (t *WorkTree) newFiles(ctx context.Context, dirs []string, since time.Time) ([]string, error) {
	if len(dirs) == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, clearTime)
	defer cancel()
	newer := fmt.Sprintf("-newermt @%d.%09d", since.Unix(), since.Nanosecond())
	find := `xargs -0 sh -c 'find "$@" -type f ` + newer + ` -print0' sh | head -z -n 100`
	out, err := t.shell(ctx, find, "./"+strings.Join(dirs, "\x00./")+"\x00")
	files := strings.FieldsFunc(string(out), func(r rune) bool { return r == 0 })
	for i := range files {
		files[i] = strings.TrimPrefix(files[i], "./")
	}
	return files, err
}

// exclude makes git ignore untracked paths of the work tree.
func (t *WorkTree) exclude(ctx context.Context, paths []string) error {
	if len(paths) == 0 {
		return nil
	}
	var patterns strings.Builder
	for _, path := range paths {
		patterns.WriteString("/" + excludable.Replace(path) + "\n")
	}
	_, err := t.shell(ctx, "mkdir -p .git/info && cat >>.git/info/exclude", patterns.String())
	return err
}

// setupRecord returns the entries, by path, in which the work tree differed from HEAD after setup.
func (s *Checkpointer) setupRecord() (map[string]string, error) {
	noted, err := os.ReadFile(s.baselineFile())
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the files of setup: %w", err)
	}
	was := map[string]string{}
	for fields := strings.Split(string(noted), "\x00"); len(fields) > 1; fields = fields[2:] {
		was[fields[1]] = fields[0]
	}
	return was, nil
}

// asSetupLeft returns the entries, by path, in which an index differs from head and that are unchanged since
// setup.
func (s *Checkpointer) asSetupLeft(ctx context.Context, t git.Repo, head string) (map[string]string, error) {
	was, err := s.setupRecord()
	if err != nil {
		return nil, err
	}
	if len(was) == 0 {
		return nil, nil
	}
	same := map[string]string{}
	err = changes(ctx, t, func(path, now string) {
		if was[path] == now {
			same[path] = now
		}
	}, "diff-index", "--cached", "--no-renames", "-z", head, "--")
	return same, err
}

// setupEntries returns the input of `update-index --index-info` that restores head's entries for setup's files.
func (s *Checkpointer) setupEntries(ctx context.Context, t git.Repo, head string) (string, error) {
	same, err := s.asSetupLeft(ctx, t, head)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for path, entry := range same {
		// ":mode-before mode-now id-before id-now status"; mode 0 removes.
		if f := strings.Fields(strings.TrimPrefix(entry, ":")); len(f) == 5 {
			fmt.Fprintf(&b, "%s %s\t%s\x00", strings.TrimPrefix(f[0], "00000"), f[2], path)
		}
	}
	return b.String(), nil
}

// unstage removes setup's leftovers and the base's agent settings from the agent's index; the files stay.
func (s *Checkpointer) unstage(ctx context.Context, t git.Repo, settings *configEntries) error {
	setup, err := s.setupEntries(ctx, t, "HEAD")
	if err != nil {
		return err
	}
	if t.Stdin = settings.info() + setup; t.Stdin == "" {
		return nil
	}
	return t.Run(ctx, "update-index", "--replace", "-z", "--index-info")
}
