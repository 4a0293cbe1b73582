package branch

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
)

const (
	// maxBlob bounds a file, maxObject any other object and what a delta makes, maxTotal all that a save brings, in
	// bytes. save.sh makes no delta of a file above maxLarge.
	maxBlob   = 2 << 30
	maxObject = 32 << 20
	maxTotal  = 16 << 30
	// maxObjects and maxChanged bound the objects and the changed paths of a save, maxDepth the directories above a
	// file: git goes through directories by calling itself.
	maxObjects = 5_000_000
	maxChanged = 10_000_000
	maxDepth   = 2048
)

// limited is the pack that a sandbox sends.
func limited(r io.Reader) *git.LimitedPack {
	return git.LimitPack(r, git.PackLimits{Objects: maxObjects, Blob: maxBlob, Object: maxObject, Total: maxTotal})
}

// checkDepth returns an error if a tree that a sandbox sent has too many directories in one another, or too many paths:
// a few objects can make any number. Only what differs from a tree that was checked is looked at.
func (b *repo) checkDepth(ctx context.Context, checked, tree string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	count := 0
	err := b.git().Each(ctx, func(path string) {
		if count++; count > maxChanged || strings.Count(path, "/") > maxDepth {
			cancel(fmt.Errorf("it has more than %d directories in one another, or changes more than %d paths", maxDepth, maxChanged))
		}
	}, "diff-tree", "-r", "-t", "-z", "--no-renames", "--name-only", "--end-of-options", checked, tree)
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}
