package surface

import (
	"bytes"
	"context"
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
)

// Empty trees, for a base that does not exist. git knows them without having them.
const (
	emptyTreeSHA1   = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
	emptyTreeSHA256 = "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321"
)

// objects reads a repository.
type objects struct {
	repo git.Repo
	left int64 // bytes that may still be read
	seen int   // large files that were looked into
}

// newObjects sees to it that an object is what its name says: replacements are the
// repository's own configuration, and nothing is fetched from a remote on the way.
func newObjects(repo git.Repo) *objects {
	repo.Env = append(append([]string{}, repo.Env...), "GIT_NO_REPLACE_OBJECTS=1", "GIT_NO_LAZY_FETCH=1")
	repo.Auth = nil
	return &objects{repo: repo, left: maxTotal}
}

// changes lists the paths that differ, and how many more there are than are kept.
func (o *objects) changes(ctx context.Context, base, head string) (cs []*change, more int, err error) {
	var meta []string
	err = o.repo.Each(ctx, func(record string) {
		if meta == nil {
			if meta = strings.Fields(strings.TrimPrefix(record, ":")); len(meta) != 5 {
				meta = make([]string, 5)
			}
			return
		}
		c := newChange(record)
		c.oldMode, c.newMode, c.oldID, c.newID = meta[0], meta[1], meta[2], meta[3]
		meta = nil
		c.rule = classify(c.lower)
		if len(cs) >= maxEntries && (c.rule == nil || len(cs) >= 2*maxEntries) {
			more++
			return
		}
		cs = append(cs, c)
	}, "diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-abbrev", "--ignore-submodules=none", "--end-of-options", base, head)
	if err != nil {
		return nil, 0, fmt.Errorf("list the changes from %.12s to %.12s: %w", base, head, err)
	}
	return cs, more, nil
}

// links finds the links of head that stand in the place of settings: what they lead to counts as these.
func (o *objects) links(ctx context.Context, head string) (map[string]string, error) {
	var names, ids []string
	err := o.repo.Each(ctx, func(record string) {
		meta, name, _ := strings.Cut(record, "\t")
		f := strings.Fields(meta)
		if len(f) == 3 && f[0] == modeLink && len(ids) < maxLinks && settingsPlace(strings.ToLower(name)) {
			names, ids = append(names, name), append(ids, f[2])
		}
	}, "ls-tree", "-r", "-z", "--full-tree", "--end-of-options", head)
	if err != nil {
		return nil, fmt.Errorf("list the links of %.12s: %w", head, err)
	}
	sizes, err := o.sizes(ctx, ids)
	if err != nil {
		return nil, err
	}
	var small []string
	for _, id := range ids {
		if n := sizes[id]; n > 0 && n <= maxPath {
			small = append(small, id)
		}
	}
	contents, err := o.contents(ctx, small)
	if err != nil {
		return nil, err
	}
	m := map[string]string{}
	for i, name := range names {
		if target := string(contents[ids[i]]); target != "" && !path.IsAbs(target) {
			m[strings.ToLower(path.Join(path.Dir(name), target))] = strings.ToLower(name)
		}
	}
	return m, nil
}

// sizes asks for the sizes of blobs. One that is missing has none.
func (o *objects) sizes(ctx context.Context, ids []string) (map[string]int64, error) {
	m := make(map[string]int64, len(ids))
	for len(ids) > 0 {
		n := min(len(ids), sizeObjects)
		r := o.repo
		r.Stdin = strings.Join(ids[:n], "\n") + "\n"
		out, err := r.Output(ctx, "cat-file", "--batch-check")
		if err != nil {
			return nil, fmt.Errorf("read the sizes of changed files: %w", err)
		}
		for l := range strings.Lines(string(out)) {
			if f := strings.Fields(l); len(f) == 3 && f[1] == "blob" {
				if size, err := strconv.ParseInt(f[2], 10, 64); err == nil {
					m[f[0]] = size
				}
			}
		}
		ids = ids[n:]
	}
	return m, nil
}

// contents reads blobs; the caller has seen to their sizes.
func (o *objects) contents(ctx context.Context, ids []string) (map[string][]byte, error) {
	m := make(map[string][]byte, len(ids))
	if len(ids) == 0 {
		return m, nil
	}
	r := o.repo
	r.Stdin = strings.Join(ids, "\n") + "\n"
	out, err := r.Output(ctx, "cat-file", "--batch")
	if err != nil {
		return nil, fmt.Errorf("read changed files: %w", err)
	}
	for len(out) > 0 {
		head, rest, _ := bytes.Cut(out, []byte("\n"))
		f := strings.Fields(string(head))
		if len(f) != 3 {
			out = rest // "<id> missing"
			continue
		}
		n, err := strconv.Atoi(f[2])
		if err != nil || n < 0 || n >= len(rest) {
			return nil, fmt.Errorf("read changed files: git cat-file answered %s", quote(string(head)))
		}
		m[f[0]], out = rest[:n:n], rest[n+1:]
	}
	return m, nil
}

// beginning is the first bytes of a file of any size. The pipe ends git as soon as head has them;
// what runs is fixed, and the id is one that git itself gave.
func (o *objects) beginning(ctx context.Context, id string) ([]byte, error) {
	if !git.ValidSHA(id) || o.seen >= maxSniffs {
		return nil, nil
	}
	o.seen++
	alias := fmt.Sprintf(`alias.beginning=!f() { git cat-file blob "$1" 2>/dev/null | head -c %d; }; f`, sniffBytes)
	out, err := o.repo.Output(ctx, "-c", alias, "beginning", id)
	if err != nil {
		return nil, fmt.Errorf("read the beginning of %.12s: %w", id, err)
	}
	return out, nil
}

// load fills in the contents of changes, batch by batch, and calls f for each when it has them.
func (o *objects) load(ctx context.Context, cs []*change, f func(*change)) error {
	var ids []string
	for _, c := range cs {
		ids = append(ids, blobs(c)...)
	}
	sizes, err := o.sizes(ctx, ids)
	if err != nil {
		return err
	}
	for len(cs) > 0 {
		var batch []*change
		var want []string
		for total := int64(0); len(cs) > 0 && total < batchBytes && len(want) < batchObjects; cs = cs[1:] {
			c := cs[0]
			batch = append(batch, c)
			n := o.admit(c, sizes)
			if c.why == "" {
				want = append(want, blobs(c)...)
				total += n
			}
		}
		got, err := o.contents(ctx, want)
		if err != nil {
			return err
		}
		for _, c := range batch {
			o.fill(c, got)
			f(c)
			c.old, c.new, c.added, c.removed = "", "", nil, nil
		}
	}
	return nil
}

// admit decides whether a change is read, and says how much that is.
func (o *objects) admit(c *change, sizes map[string]int64) int64 {
	c.oldSize, c.newSize = sizes[c.oldID], sizes[c.newID]
	n := c.oldSize + c.newSize
	switch {
	case c.newSize > maxFile || c.oldSize > maxFile:
		c.why = "it has " + bytesText(max(c.oldSize, c.newSize))
	case n > o.left:
		c.why = "the change is too large"
	default:
		o.left -= n
		return n
	}
	return 0
}

func (o *objects) fill(c *change, got map[string][]byte) {
	if c.why != "" {
		return
	}
	for _, id := range blobs(c) {
		if _, ok := got[id]; !ok {
			c.why = "the repository does not have it"
			return
		}
	}
	c.read = true
	if hasBlob(c.oldMode) {
		c.old = text(got[c.oldID])
	}
	if hasBlob(c.newMode) {
		c.new = text(got[c.newID])
	}
}

func hasBlob(mode string) bool { return mode != modeNone && mode != modeSubmodule }

func blobs(c *change) (ids []string) {
	if hasBlob(c.oldMode) {
		ids = append(ids, c.oldID)
	}
	if hasBlob(c.newMode) {
		ids = append(ids, c.newID)
	}
	return ids
}
