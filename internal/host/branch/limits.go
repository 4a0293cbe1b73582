package branch

import (
	"context"
	"fmt"
	"strings"
)

const (
	// maxBlob bounds a file, maxObject any other object and the result of a delta, maxTotal all objects of a save, in
	// bytes. save.sh makes no delta of a file above maxLarge.
	maxBlob   = 2 << 30
	maxObject = 32 << 20
	maxTotal  = 16 << 30
	// maxObjects and maxChanged bound the objects and the changed paths of a save, maxDepth the depth of directories: git
	// descends by recursion.
	maxObjects = 5_000_000
	maxChanged = 10_000_000
	maxDepth   = 2048
)

// checkDepth returns an error if a tree from a sandbox is too deep or changes too many paths: a few objects can encode any
// number. It reads only the difference to a tree that was checked.
func (b *repo) checkDepth(ctx context.Context, checked, tree string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	count := 0
	err := b.git().Each(ctx, func(path string) {
		if count++; count > maxChanged || strings.Count(path, "/") > maxDepth {
			cancel(fmt.Errorf("more than %d nested directories, or more than %d changed paths", maxDepth, maxChanged))
		}
	}, "diff-tree", "-r", "-t", "-z", "--no-renames", "--name-only", "--end-of-options", checked, tree)
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}
