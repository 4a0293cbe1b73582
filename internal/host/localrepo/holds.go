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
	// holdsTimeout bounds the look for a remote's commits: a few questions to a disk, while the user waits for a run to begin.
	holdsTimeout = 20 * time.Second
	// maxTips bounds the ids that are looked for at once, and so the answer.
	maxTips = 10000
	// maxTried bounds the objects that are read, and maxTip each of them, in bytes: the first one of a clone is good.
	maxTried, maxTip = 8, 1 << 20
)

// Holds reports whether the repository has one of the commits, or tags of them, as its own: nobody can make one from its id, so who
// made the repository had it from where it lies. Objects borrowed from another repository of this machine show nothing.
func Holds(ctx context.Context, dir string, ids []string) bool {
	ctx, cancel := context.WithTimeout(ctx, holdsTimeout)
	defer cancel()
	if others, err := borrowed(ctx, dir); err != nil || len(others) > 0 {
		return false
	}
	ask := repoAt(dir)
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
			continue // not there, or none that says anything of its own
		}
		if size, err := strconv.Atoi(f[2]); err != nil || size > maxTip {
			continue
		}
		if tried++; tried > maxTried {
			return false
		}
		// git believes a file that is named for an id to be the object. Only its content shows it.
		if content, err := gitOut(ctx, dir, "cat-file", f[1], f[0]); err == nil && objectID(f[1], content) == f[0] {
			return true
		}
	}
	return false
}

// objectID is what git calls an object.
func objectID(kind, content string) string {
	sum := sha1.Sum(fmt.Appendf(nil, "%s %d\x00%s", kind, len(content), content))
	return hex.EncodeToString(sum[:])
}
