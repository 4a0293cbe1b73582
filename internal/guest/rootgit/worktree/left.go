package worktree

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

// LeftError names the part of the work tree that could not be committed.
type LeftError struct {
	Paths []string
	// Full means that the disk had no room for the files.
	Full bool
	// Why is the first reason, for the user.
	Why string
}

// Left returns the paths that only Archive can keep.
func (e *LeftError) Left() []string { return e.Paths }

// maxNamed bounds the paths in a message.
const maxNamed = 5

func (e *LeftError) Error() string {
	return "could not commit " + Named(e.Paths) + " (" + e.Why + ")"
}

// Named formats the first few of many paths.
func Named(paths []string) string {
	s := strings.Join(paths[:min(len(paths), maxNamed)], ", ")
	if more := len(paths) - maxNamed; more > 0 {
		s += fmt.Sprintf(" and %d more", more)
	}
	return s
}

// Miss adds files. If err is nil, the others' reason applies.
func (e *LeftError) Miss(err error, files []File) {
	for _, f := range files {
		e.Paths = append(e.Paths, f.Path)
	}
	e.Full = e.Full || IsFull(err)
	why := ""
	switch {
	case e.Full:
		why = "no space left on the disk"
	case e.Why != "" || err == nil && len(files) == 0:
	case err == nil:
		why = "too many files that git does not accept"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		why = "no time left"
	case strings.Contains(err.Error(), "Permission denied"):
		why = "not readable by the agent's user"
	default:
		why = err.Error()
	}
	e.Why = cmp.Or(why, e.Why)
}

// Beyond adds changed files of submodules.
func (e *LeftError) Beyond(paths []string, why string) *LeftError {
	if len(paths) == 0 {
		return e
	}
	if e == nil {
		return &LeftError{Paths: paths, Why: why}
	}
	return &LeftError{Paths: slices.Concat(e.Paths, paths), Full: e.Full, Why: e.Why + "; " + why}
}

// Clear deletes files that would block git forever: lock files of a git that was killed with the agent (which
// is gone, so they are stale), and pipes and sockets in .git on which git would wait. It also deletes partial
// files of a git that ran into the full disk, which fill it. It runs as the agent's user, whose directories
// may lead anywhere; after a failure the next git command reports the cause.
func (t *Tree) Clear(ctx context.Context) {
	t.Enter()
	t.script(ctx, `find .git \( ! -type f ! -type d ! -type l -o -xtype p -o -xtype s \) -delete
find .git -path .git/objects -prune -o -name '*.lock' -type f -exec rm -f {} +
rm -f .git/objects/pack/tmp_* .git/objects/tmp_* .git/objects/??/tmp_obj_*`)
	t.Unpipe(ctx)
}

// Unpipe deletes pipes and sockets at the paths of ignore and attribute files, on which git would wait.
func (t *Tree) Unpipe(ctx context.Context) {
	t.script(
		ctx,
		`find . -path ./.git -prune -o \( -name .gitignore -o -name .gitattributes -o -name .gitmodules \) \( -type p -o -type s \) -exec `+
			`rm -f {} +`,
	)
}

// Enter restores the agent's user's access to the work tree's directory, which that user may lack. Root owns
// the parent directory, so the work tree is not a link.
func (t *Tree) Enter() {
	if st, err := os.Lstat(t.repos.Workspace); err == nil && st.IsDir() && st.Mode().Perm()&0o700 != 0o700 {
		_ = os.Chmod(t.repos.Workspace, st.Mode().Perm()|0o700) // git reports an error
	}
}

// Open restores the agent's user's access to files whose modes deny it.
func (t *Tree) Open(ctx context.Context) {
	t.script(ctx, `find . -path ./.git -prune -o -type d ! -perm -u=rwx -exec chmod u+rwx {} \; -o -type f ! -perm -u=r -exec chmod u+r {} \;`)
}

func (t *Tree) script(ctx context.Context, text string) {
	ctx, cancel := context.WithTimeout(ctx, clearTime)
	defer cancel()
	_ = proc.Run(ctx, proc.Spec{Argv: []string{"/bin/sh", "-c", text}, Dir: t.repos.Workspace, User: t.repos.User})
}

// clearTime is enough to walk a million files.
const clearTime = 20 * time.Second

// IsFull reports whether git failed because the disk is full.
func IsFull(err error) bool {
	// The second text is git's when it streams a large file.
	return err != nil && (strings.Contains(err.Error(), "No space left on device") || strings.Contains(err.Error(), "Out of diskspace"))
}
