package localrepo

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

// Submodule is a repository within a repository's tree.
type Submodule struct {
	Path   string // below the top
	Commit string
	// Dir is its work tree on this machine, which has the commit; "" where it has not.
	Dir string
}

// Submodules are those of a base. Submodules of submodules are not among them.
func (r *Repo) Submodules(ctx context.Context, base string) (all []Submodule, err error) {
	ctx, cancel := context.WithTimeout(ctx, gitTimeout)
	defer cancel()
	commit, err := r.Commit(ctx, base)
	if err != nil {
		return nil, err
	}
	err = Git(r.Path).Each(ctx, func(record string) {
		head, path, ok := strings.Cut(record, "\t")
		fields := strings.Fields(head)
		const gitlink, parts = "160000", 3
		if !ok || len(fields) < parts || fields[0] != gitlink {
			return
		}
		s := Submodule{Path: path, Commit: fields[2]}
		if dir := filepath.Join(r.Path, path); !r.Bare && filepath.IsLocal(path) && bounds(ctx, dir) == nil && has(ctx, dir, s.Commit) {
			s.Dir = dir
		}
		all = append(all, s)
	}, "ls-tree", "-r", "-z", "--full-tree", "--end-of-options", commit)
	if err != nil {
		return nil, fmt.Errorf("look for submodules of %s: %w", r.Path, err)
	}
	return all, nil
}

// has reports whether the repository of a work tree itself, and not one around it, has a commit.
func has(ctx context.Context, dir, commit string) bool {
	top, err := gitOut(ctx, dir, "rev-parse", "--show-toplevel")
	if err != nil || resolved(strings.TrimSuffix(top, "\n")) != resolved(dir) {
		return false
	}
	_, err = gitOut(ctx, dir, "cat-file", "-e", commit+"^{commit}")
	return err == nil
}

// Bundle writes what a clone at the submodule's commit needs to a file.
func (s Submodule) Bundle(ctx context.Context, file string) error {
	ctx, cancel := context.WithTimeout(ctx, bundleTimeout)
	defer cancel()
	if s.Dir == "" {
		return errors.New("it is not checked out on this machine: `git submodule update --init` brings it")
	}
	// A bundle has refs alone: HEAD is the commit where the submodule is up to date.
	if err := bundle(ctx, s.Dir, file, "HEAD"); err != nil {
		return fmt.Errorf("copy the commits of %s: %w", s.Dir, err)
	}
	return nil
}
