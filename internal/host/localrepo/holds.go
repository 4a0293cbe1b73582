package localrepo

import (
	"context"
	"crypto/sha1" // the ids of git's objects
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
)

const (
	// holdsTimeout bounds the search for a remote's commits: a few reads of a disk, while the user waits for a run to begin.
	holdsTimeout = 20 * time.Second
	// maxTips bounds the ids that are looked up at once, and so the answer.
	maxTips = 10000
	// maxTried bounds the objects that are read, and maxTip the size of each, in bytes: in a clone the first one is good.
	maxTried, maxTip = 8, 1 << 20
)

// Holds reports whether the repository has one of the commits, or tags, as an object of its own. An object cannot be made from its
// id, so the repository's maker had access to a repository with it. Objects borrowed from another repository of this machine prove
// nothing.
func Holds(ctx context.Context, dir string, ids []string) bool {
	ctx, cancel := context.WithTimeout(ctx, holdsTimeout)
	defer cancel()
	if others, err := borrowed(ctx, dir); err != nil || len(others) > 0 {
		return false
	}
	ask := Git(dir)
	for _, id := range ids[:min(len(ids), maxTips)] {
		if git.ValidSHA(id) { // a name would be looked up in the repository
			ask.Stdin += id + "\n"
		}
	}
	out, err := ask.Output(ctx, "cat-file", "--batch-check=%(objectname) %(objecttype) %(objectsize)")
	if err != nil {
		return false
	}
	tried := 0
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		if len(f) != 3 || f[1] != "commit" && f[1] != "tag" {
			continue // it is missing, or of a kind that proves nothing
		}
		if size, err := strconv.Atoi(f[2]); err != nil || size > maxTip {
			continue
		}
		if tried++; tried > maxTried {
			return false
		}
		// git takes a file that is named after an id for the object. Only its content proves it.
		if content, err := gitOut(ctx, dir, "cat-file", f[1], f[0]); err == nil && objectID(f[1], content) == f[0] {
			return true
		}
	}
	return false
}

// objectID is git's id of an object.
func objectID(kind, content string) string {
	sum := sha1.Sum(fmt.Appendf(nil, "%s %d\x00%s", kind, len(content), content))
	return hex.EncodeToString(sum[:])
}
