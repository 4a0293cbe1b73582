package tree

import (
	"context"
	"fmt"
	"os"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
)

// Stamp identifies the state of a file without reading it.
func Stamp(path string) string {
	st, err := os.Lstat(path)
	if err != nil {
		return ""
	}
	return fmt.Sprint(st.ModTime().UnixNano(), st.Size(), st.Mode())
}

// changes calls f for each path in which a repository's diff-index or diff-tree finds a
// difference, with git's record: ":mode-before mode-now id-before id-now status".
func changes(ctx context.Context, r git.Repo, f func(path, entry string), args ...string) error {
	entry := ""
	return r.Each(ctx, func(field string) {
		if entry == "" {
			entry = field
			return
		}
		f(field, entry)
		entry = ""
	}, args...)
}
