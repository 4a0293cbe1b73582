package gitguard

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

const (
	// appearedTime bounds a search for repositories that a sandbox has made.
	appearedTime = 10 * time.Second
	// batch is how many names of a directory are read at once.
	batch = 1000
)

// Appeared returns what makes repositories of directories in dirs, apart from what is in the read-only paths protected: each .git, whatever it is, and the HEAD of each bare
// repository. It returns at most 100 paths; all is false if there may be more.
func Appeared(ctx context.Context, dirs, protected []string) (found []string, all bool) {
	ctx, cancel := context.WithTimeout(ctx, appearedTime)
	defer cancel()
	rest := slices.Clone(dirs)
	seen := map[string]bool{} // of dirs, which may be in each other
	for len(rest) > 0 {
		dir := rest[len(rest)-1]
		rest = rest[:len(rest)-1]
		if seen[dir] || slices.ContainsFunc(protected, func(p string) bool { return below(dir, p) }) {
			continue
		}
		seen[dir] = slices.Contains(dirs, dir)
		if bare(dir) {
			found = append(found, filepath.Join(dir, "HEAD"))
		}
		repos, inner := names(ctx, dir, protected)
		found, rest = append(found, repos...), append(rest, inner...)
		if ctx.Err() != nil || len(found) > maxPaths {
			slices.Sort(found)
			return found[:min(len(found), maxPaths)], false
		}
	}
	slices.Sort(found)
	return found, true
}

// names returns each .git of a directory that is not protected, and the directories in it.
func names(ctx context.Context, dir string, protected []string) (repos, dirs []string) {
	f, err := os.OpenFile(dir, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil, nil // git cannot read it either
	}
	defer f.Close()
	for ctx.Err() == nil && len(repos) <= maxPaths {
		entries, err := f.ReadDir(batch)
		for _, e := range entries {
			path := filepath.Join(dir, e.Name())
			switch {
			case isGit(e.Name()) && !slices.Contains(protected, path):
				repos = append(repos, path)
			case e.IsDir() && !isGit(e.Name()):
				dirs = append(dirs, path)
			}
		}
		if err != nil {
			break
		}
	}
	return repos, dirs
}
