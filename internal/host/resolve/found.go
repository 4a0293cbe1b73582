package resolve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/sandbox-agent/sandbox-agent/internal/host/detect"
	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/internal/host/localrepo"
	"github.com/sandbox-agent/sandbox-agent/internal/host/trust"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/projects"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// fromRepository makes a project of the files of a repository, at the commit that the run starts from. none is the error of looking for
// a project file, and is returned where there is no such repository either.
func (f *Resolver) fromRepository(ctx context.Context, s *Flags, none error) (*projects.Project, *detect.Draft, error) {
	at := s.Values["repo"]
	if at == "" {
		dir, err := os.Getwd()
		if err != nil {
			return nil, nil, fmt.Errorf("find the current folder: %w", err)
		}
		at = dir
	} else if t, err := projects.RepoTransport(at); err != nil || t == projects.TransportNone {
		return nil, nil, none
	} else if t != projects.TransportLocal {
		return f.fromRemote(ctx, at, cmp.Or(s.Values["branch"], s.TaskBase))
	}
	if !inRepository(at) {
		return nil, nil, fault.New(workorder.ExitNoProject, fmt.Errorf("%w; and %s is in no git repository", none, at),
			"go to a repository, or make this folder one (git init, and a first commit); --repo takes a path or a URL, --project a project file")
	}
	repo, err := localrepo.Open(ctx, at)
	if err != nil {
		return nil, nil, err
	}
	base, err := repo.Base(ctx, cmp.Or(s.Values["branch"], s.TaskBase))
	if err != nil {
		return nil, nil, err
	}
	commit, err := repo.Commit(ctx, base)
	if err != nil {
		return nil, nil, err
	}
	tree, err := repo.Tree(ctx, commit)
	if err != nil {
		return nil, nil, err
	}
	return fromTree(ctx, tree, filepath.Base(repo.Path), repo.Path, repo.Path)
}

// fromTree makes a project of files. name is the repository's, where says what has them, and dir is where relative paths begin.
func fromTree(ctx context.Context, tree fs.FS, name, where, dir string) (*projects.Project, *detect.Draft, error) {
	draft := detect.Detect(ctx, tree, name)
	p, err := projects.Detected(dir, []byte(draft.YAML()))
	if err != nil {
		return nil, nil, fmt.Errorf("make a project of what %s has: %w", where, err)
	}
	// What is found is never trusted by the user, so that it may ask for nothing of this machine. A draft has no such key; a repository that
	// brings one into it found a hole.
	if asks := trust.Asks(p, trust.User{Gives: func(string) bool { return false }, Own: func(string) bool { return true }}); len(asks) > 0 {
		return nil, nil, fault.New(workorder.ExitInvalid, fmt.Errorf("make a project of what %s has: it asks for %s (%s), which no finding may", where, asks[0].Key, text.Printable(asks[0].Value)), "write a project file: `sandbox-agent project init`, and look it over")
	}
	return p, draft, nil
}

// inRepository reports whether a folder lies in a work tree, or is a bare repository.
func inRepository(dir string) bool {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return false
	}
	if _, err := os.Stat(filepath.Join(abs, "objects")); err == nil {
		return true
	}
	for ; ; abs = filepath.Dir(abs) {
		if _, err := os.Stat(filepath.Join(abs, ".git")); err == nil {
			return true
		}
		if abs == filepath.Dir(abs) {
			return false
		}
	}
}

// isNone reports whether no project was named and none was found.
func isNone(s *Flags, err error) bool {
	e, none := errors.AsType[*projects.NotFoundError](err)
	return none && e.Ref == "" && s.Project == ""
}
