package tree

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

// UncommittedError names the part of the work tree that could not be committed.
type UncommittedError struct {
	Paths []string // that only Archive can keep
	// full means that the disk had no room for the files.
	full bool
	// Reason is the first reason, for the user.
	Reason string
}

const maxNamed = 5

func (e *UncommittedError) Error() string {
	return "could not commit " + Named(e.Paths) + " (" + e.Reason + ")"
}

// Named formats the first few of many paths.
func Named(paths []string) string {
	s := strings.Join(paths[:min(len(paths), maxNamed)], ", ")
	if more := len(paths) - maxNamed; more > 0 {
		s += fmt.Sprintf(" and %d more", more)
	}
	return s
}

// addFiles adds files. If err is nil, the others' reason applies.
func (e *UncommittedError) addFiles(err error, files []File) {
	for _, f := range files {
		e.Paths = append(e.Paths, f.Path)
	}
	e.full = e.full || isFull(err)
	why := ""
	switch {
	case e.full:
		why = "no space left on the disk"
	case e.Reason != "" || err == nil && len(files) == 0:
	case err == nil:
		why = "too many files that git does not accept"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		why = "no time left"
	case strings.Contains(err.Error(), "Permission denied"):
		why = "not readable by the agent's user"
	default:
		why = err.Error()
	}
	e.Reason = cmp.Or(why, e.Reason)
}

func (e *UncommittedError) addSubmoduleFiles(paths []string, why string) *UncommittedError {
	if len(paths) == 0 {
		return e
	}
	if e == nil {
		return &UncommittedError{Paths: paths, Reason: why}
	}
	return &UncommittedError{Paths: slices.Concat(e.Paths, paths), full: e.full, Reason: e.Reason + "; " + why}
}

// Parts of scripts that the agent's user runs in the work tree.
const (
	// clearGit deletes files that would block git: locks of a killed git, pipes and sockets in .git, and partial files of a full disk.
	clearGit = `find .git \( ! -type f ! -type d ! -type l -o -xtype p -o -xtype s -o -type f ` +
		`\( -name '*.lock' -o -path '.git/objects/*' -name 'tmp_*' \) \) -exec rm -f {} +
`
	// clearPipes deletes pipes and sockets at the paths of ignore and attribute files, on which git would wait.
	clearPipes = `exec find . -path ./.git -prune -o ` +
		`\( -name .gitignore -o -name .gitattributes -o -name .gitmodules \) \( -type p -o -type s \) -exec rm -f {} +`
	// giveAccess restores the agent's user's access to files whose modes deny it. It continues the find of clearPipes.
	giveAccess = ` -o -type d ! -perm -u=rwx -exec chmod u+rwx {} \; -o -type f ! -perm -u=r -exec chmod u+r {} +`
)

// RemoveLocks deletes files that would block git. After a failure the next git command reports the cause.
func (t *WorkTree) RemoveLocks(ctx context.Context) {
	t.restoreDirAccess()
	t.script(ctx, clearGit+clearPipes)
}

// unblock is RemoveLocks and restoreFileAccess.
func (t *WorkTree) unblock(ctx context.Context) {
	t.restoreDirAccess()
	t.script(ctx, clearGit+clearPipes+giveAccess)
}

func (t *WorkTree) removePipes(ctx context.Context) { t.script(ctx, clearPipes) }

// restoreDirAccess restores the agent's user's access to the work tree's directory, whose parent is root's.
func (t *WorkTree) restoreDirAccess() {
	if st, err := os.Lstat(t.Repos.Workspace); err == nil && st.IsDir() && st.Mode().Perm()&0o700 != 0o700 {
		_ = os.Chmod(t.Repos.Workspace, st.Mode().Perm()|0o700) // git reports an error
	}
}

func (t *WorkTree) restoreFileAccess(ctx context.Context) {
	t.script(ctx, "exec find . -path ./.git -prune"+giveAccess)
}

func (t *WorkTree) script(ctx context.Context, text string) {
	ctx, cancel := context.WithTimeout(ctx, clearTime)
	defer cancel()
	_, _ = t.shell(ctx, text, "")
}

// shell runs a script in the work tree, as the agent's user.
func (t *WorkTree) shell(ctx context.Context, script, stdin string) ([]byte, error) {
	return proc.Output(ctx, proc.Spec{
		Argv: []string{"/bin/sh", "-c", script}, Dir: t.Repos.Workspace, User: t.Repos.User, Stdin: strings.NewReader(stdin),
		Env: []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C.UTF-8"},
	})
}

// clearTime is enough to walk a million files.
const clearTime = 20 * time.Second

func isFull(err error) bool {
	// The second text is git's when it streams a large file.
	return err != nil && (strings.Contains(err.Error(), "No space left on device") || strings.Contains(err.Error(), "Out of diskspace"))
}
