package git

import (
	"context"
	"fmt"
	"strconv"
	"strings"
)

// FileChange is one file of a commit. A binary file has no line counts.
type FileChange struct {
	Path           string
	Added, Deleted int
	Binary         bool
}

// Changes lists the files that the newest limit commits of head beyond base change, at most most files per commit. A
// merge has none.
func (r Repo) Changes(ctx context.Context, base, head string, limit, most int) (map[string][]FileChange, error) {
	args := []string{
		"log", "-z", "--numstat", "--no-renames", "--no-textconv", "--no-ext-diff", "--format=%x01%H", fmt.Sprintf("--max-count=%d", limit), head,
	}
	if base != "" {
		args = append(args, "^"+base)
	}
	all, sha := map[string][]FileChange{}, ""
	err := r.Each(ctx, func(field string) {
		field = strings.TrimPrefix(field, "\n")
		if id, ok := strings.CutPrefix(field, "\x01"); ok && ValidSHA(id) {
			sha = id
			return
		}
		f := strings.SplitN(field, "\t", 3)
		if len(f) != 3 || sha == "" || len(all[sha]) >= most {
			return
		}
		c := FileChange{Path: strings.ToValidUTF8(f[2], "\uFFFD"), Binary: f[0] == "-"}
		if !c.Binary {
			var errs [2]error
			c.Added, errs[0] = strconv.Atoi(f[0])
			c.Deleted, errs[1] = strconv.Atoi(f[1])
			if errs[0] != nil || errs[1] != nil {
				return
			}
		}
		all[sha] = append(all[sha], c)
	}, append(args, "--")...)
	return all, err
}
