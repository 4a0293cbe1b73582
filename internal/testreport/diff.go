package testreport

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
)

const (
	// maxChanges bounds the files of a diff that are looked at.
	maxChanges = 5000
	// maxBlob bounds one file in bytes: larger ones are no source that people wrote.
	maxBlob = 1 << 20
	// maxBlobs bounds the bytes of all files of a diff, maxBatch those asked for
	// at once, which git.Output can carry.
	maxBlobs = 128 << 20
	maxBatch = 8 << 20
	// renameLimit is the number of files that git compares with each other to find renames.
	renameLimit = 1000
	// flagsTime bounds one pass over a diff.
	flagsTime = 2 * time.Minute
)

// fileChange is a file that differs between the commits. A path is empty on the side where there is none.
type fileChange struct {
	oldPath, newPath string
	oldID, newID     string
	oldText, newText string
}

// change is everything that the rules look at.
type change struct {
	ctx        context.Context // of one call, not kept
	repo       git.Repo
	base, head string
	files      []*fileChange
	texts      map[string]string // by blob
	left       int64
	short      string // why not everything was looked at
}

// diff are the arguments of git for what differs, in a format.
func (c *change) diff(format string) []string {
	return []string{
		"-c", "core.quotePath=false", "diff-tree", "-r", "-z", format, "--no-abbrev", "--no-textconv", "--no-ext-diff",
		"-M50%", fmt.Sprintf("-l%d", renameLimit), c.base, c.head, "--",
	}
}

// listChange lists what differs.
func listChange(ctx context.Context, repo git.Repo, base, head string) (*change, error) {
	c := &change{ctx: ctx, repo: repo, base: base, head: head, texts: map[string]string{}, left: maxBlobs}
	if !git.ValidSHA(base) || !git.ValidSHA(head) {
		return nil, fmt.Errorf("compare the tests of %q and %q: both must be full commit ids", base, head)
	}
	var rec []string
	err := repo.Each(ctx, func(r string) {
		if rec = append(rec, r); len(rec) == fieldsOf(rec[0]) {
			c.record(rec)
			rec = nil
		}
	}, c.diff("--raw")...)
	if err != nil {
		return nil, fmt.Errorf("list what differs between %.12s and %.12s: %w", base, head, err)
	}
	return c, nil
}

// readChange lists what differs and reads it, as objects: attributes, filters
// and the work tree have no say.
func readChange(ctx context.Context, repo git.Repo, base, head string) (*change, error) {
	c, err := listChange(ctx, repo, base, head)
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, f := range c.files {
		if readable(f.oldPath) || readable(f.newPath) {
			ids = append(ids, f.oldID, f.newID)
		}
	}
	if err := c.load(ids); err != nil {
		return nil, err
	}
	for _, f := range c.files {
		f.oldText, f.newText = c.texts[f.oldID], c.texts[f.newID]
	}
	return c, nil
}

// fieldsOf is how many fields a record of --raw -z has: a rename has two paths.
func fieldsOf(head string) int {
	f := strings.Fields(head)
	if len(f) == 5 && (f[4][0] == 'R' || f[4][0] == 'C') {
		return 3
	}
	return 2
}

func (c *change) record(rec []string) {
	f := strings.Fields(strings.TrimPrefix(rec[0], ":"))
	if len(f) != 5 || len(c.files) == maxChanges {
		c.short = fmt.Sprintf("only the first %d changed files were looked at", maxChanges)
		return
	}
	fc := &fileChange{oldPath: rec[1], newPath: rec[len(rec)-1], oldID: f[2], newID: f[3]}
	switch f[4][0] {
	case 'A':
		fc.oldPath = ""
	case 'D':
		fc.newPath = ""
	}
	// Links and submodules have no text of ours.
	if !strings.HasPrefix(f[0], "100") {
		fc.oldID = ""
	}
	if !strings.HasPrefix(f[1], "100") {
		fc.newID = ""
	}
	c.files = append(c.files, fc)
}

// readable says which files are read at all: by their name no pictures, archives and the like.
func readable(p string) bool {
	switch strings.ToLower(path.Ext(p)) {
	case ".png", ".jpg", ".jpeg", ".gif", ".webp", ".ico", ".pdf", ".zip", ".gz", ".xz", ".zst", ".tar", ".jar", ".woff", ".woff2", ".ttf", ".mp4", ".so", ".exe", ".bin", ".svg", ".lock", ".sum", ".map", ".wasm":
		return false
	}
	return p != "" && !strings.HasSuffix(p, ".min.js") && path.Base(p) != "package-lock.json"
}

// load reads blobs that are texts of a bearable size.
func (c *change) load(ids []string) error {
	var ask []string
	known := map[string]bool{}
	for _, id := range ids {
		if _, have := c.texts[id]; have || known[id] || !git.ValidSHA(id) || strings.Trim(id, "0") == "" {
			continue
		}
		known[id] = true
		ask = append(ask, id)
	}
	if len(ask) == 0 {
		return nil
	}
	r := c.repo
	r.Stdin = strings.Join(ask, "\n") + "\n"
	out, err := r.Output(c.ctx, "cat-file", "--batch-check")
	if err != nil {
		return fmt.Errorf("ask for the sizes of changed files: %w", err)
	}
	var batch []string
	var size int64
	flush := func() error {
		err := c.batch(batch)
		batch, size = nil, 0
		return err
	}
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		if len(f) != 3 || f[1] != "blob" {
			continue
		}
		n, err := strconv.ParseInt(f[2], 10, 64)
		if err != nil || n > maxBlob {
			continue
		}
		if n > c.left {
			c.short = fmt.Sprintf("the change has more than %d MiB of text, the rest was not looked at", maxBlobs>>20)
			break
		}
		c.left -= n
		if batch, size = append(batch, f[0]), size+n+128; size > maxBatch {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	return flush()
}

func (c *change) batch(ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	r := c.repo
	r.Stdin = strings.Join(ids, "\n") + "\n"
	out, err := r.Output(c.ctx, "cat-file", "--batch")
	if err != nil {
		return fmt.Errorf("read changed files: %w", err)
	}
	for rest := string(out); rest != ""; {
		head, body, ok := strings.Cut(rest, "\n")
		f := strings.Fields(head)
		if !ok || len(f) != 3 {
			return errors.New("read changed files: git answered something odd")
		}
		n, err := strconv.Atoi(f[2])
		if err != nil || n < 0 || n+1 > len(body) {
			return errors.New("read changed files: git answered less than it announced")
		}
		if text := body[:n]; !strings.Contains(text[:min(n, 8000)], "\x00") {
			c.texts[f[0]] = text
		}
		rest = body[n+1:]
	}
	return nil
}

// treeEntry is a file of a commit.
type treeEntry struct {
	path, id string
	size     int64
}

// tree lists the files of a commit that pass.
func (c *change) tree(commit string, pass func(p string) bool) (list []treeEntry, err error) {
	err = c.repo.Each(c.ctx, func(rec string) {
		head, p, _ := strings.Cut(rec, "\t")
		f := strings.Fields(head)
		if len(f) != 4 || f[1] != "blob" || !strings.HasPrefix(f[0], "100") || !pass(p) {
			return
		}
		n, _ := strconv.ParseInt(f[3], 10, 64)
		list = append(list, treeEntry{path: p, id: f[2], size: n})
	}, "ls-tree", "-r", "-z", "-l", "--full-tree", commit)
	if err != nil {
		return nil, fmt.Errorf("list the files of %.12s: %w", commit, err)
	}
	return list, nil
}
