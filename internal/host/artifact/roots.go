package artifact

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/lockfile"
)

// Beside a root folder, by its name: the lock, and the artifacts that have a link to it.
const (
	rootsDir  = "roots"
	lockOf    = ".lock"
	usersOf   = ".users"
	userLines = "\n"
)

// newRoot is how the name of a root folder begins that is not whole yet.
const newRoot = ".new-"

// young is longer than the rest of a build takes.
const young = time.Hour

// noteUser notes that an artifact has a link to a root folder. The caller has the root's lock.
func noteUser(root, artifact string) error {
	f, err := os.OpenFile(root+usersOf, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(artifact + userLines)
	return errors.Join(err, f.Close())
}

// Unused are the root folders in a state folder to which no artifact has a link any more. One that was copied with the folder's content needs none.
func Unused(state string) (roots []string, err error) {
	list, err := os.ReadDir(filepath.Join(state, rootsDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range list {
		root := filepath.Join(state, rootsDir, e.Name())
		if e.IsDir() && !used(root) {
			roots = append(roots, root)
		}
	}
	return roots, err
}

// used reports whether an artifact that was built here has a link to a root folder, or whether that is being made.
func used(root string) bool {
	if strings.HasPrefix(filepath.Base(root), newRoot) {
		st, err := os.Stat(root)
		return err == nil && time.Since(st.ModTime()) < young // a build that was killed has left an older one
	}
	st, err := os.Stat(root + usersOf)
	if err == nil && time.Since(st.ModTime()) < young {
		return true // an artifact that is being built comes to its place later
	}
	b, err := os.ReadFile(root + usersOf)
	if err != nil {
		return false // who makes it has its lock
	}
	for dir := range strings.SplitSeq(strings.TrimSuffix(string(b), userLines), userLines) {
		if to, err := os.Readlink(filepath.Join(dir, rootLink)); err == nil && to == root {
			return true
		}
	}
	return false
}

// RemoveUnused removes one of Unused, unless an artifact has a link to it by now.
func RemoveUnused(ctx context.Context, root string) error {
	lock, err := lockfile.Take(ctx, root+lockOf)
	if err != nil {
		return fmt.Errorf("remove the root folder %s: %w", root, err)
	}
	if used(root) {
		lock.Release()
		return nil
	}
	err = errors.Join(os.RemoveAll(root), os.RemoveAll(root+usersOf))
	lock.Remove()
	if err != nil {
		return fmt.Errorf("remove the root folder %s: %w", root, err)
	}
	return nil
}
