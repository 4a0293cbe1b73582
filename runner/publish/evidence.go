package publish

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const (
	// maxEvidenceFile and maxEvidence bound what goes to the remote beside the branch, in bytes: every
	// clone of all refs has it. A video is some 500 kB, a page's picture 100 kB; GitHub shows files up to 10 MB.
	maxEvidenceFile = 8 << 20
	maxEvidence     = 24 << 20
	// maxEvidenceFiles bounds their number.
	maxEvidenceFiles = 400
)

// Evidence brings files of root to the remote, in a commit on a ref of the task's own, at their paths. The
// commit's parent is that of the attempt before. left are those that are not in it: too large, too many, gone or not
// regular files. It is called after Land. Nothing to bring is an empty commit id and no error.
func (p *Publisher) Evidence(ctx context.Context, root fs.FS, paths []string) (commit string, left []string, err error) {
	if err := p.load(); err != nil {
		return "", nil, fmt.Errorf("keep the evidence: %w", err)
	}
	b := &bag{p: p}
	paths = slices.Clone(paths)
	slices.Sort(paths)
	for _, name := range slices.Compact(paths) {
		if err := b.take(ctx, root, name); err != nil {
			return "", nil, fmt.Errorf("keep the evidence %s: %w", name, err)
		}
	}
	if b.files == 0 {
		return "", b.left, nil
	}
	ref := workorder.EvidenceRef(p.Order.TaskID)
	parent := p.led.Refs[ref]
	if parent != "" && p.outbox().Run(ctx, "cat-file", "-e", parent+"^{commit}") != nil {
		parent = ""
	}
	if commit, err = b.commit(ctx, fmt.Sprintf("Evidence of task %s, attempt %d", p.Order.TaskID, p.number()), parent); err != nil {
		return "", b.left, fmt.Errorf("keep the evidence: %w", err)
	}
	if _, err := p.send(ctx, []change{{ref, commit}}, false); err != nil {
		return "", b.left, fmt.Errorf("push the evidence to %s: %w", p.Order.Repo, err)
	}
	p.led.Refs[ref] = commit
	p.jot()
	return commit, b.left, nil
}

// bag are files for a ref of their own, within the bounds of evidence.
type bag struct {
	p       *Publisher
	entries strings.Builder
	bytes   int
	files   int
	left    []string // what there was no room for, or could not be read
}

// take puts a file of root into the bag, or notes it as left.
func (b *bag) take(ctx context.Context, root fs.FS, name string) error {
	content, ok := evidenceFile(root, name, b.room())
	if !ok || b.files >= maxEvidenceFiles {
		b.left = append(b.left, name)
		return nil
	}
	return b.put(ctx, name, content)
}

// room is how large the next file may be.
func (b *bag) room() int { return max(0, min(maxEvidenceFile, maxEvidence-b.bytes)) }

// put puts a file into the bag, whatever its size.
func (b *bag) put(ctx context.Context, name, content string) error {
	out := b.p.outbox()
	out.Stdin = content
	id, err := out.Output(ctx, "hash-object", "-w", "--stdin")
	if err != nil {
		return err
	}
	fmt.Fprintf(&b.entries, "100644 %s\t%s\x00", bytes.TrimSpace(id), name)
	b.bytes, b.files = b.bytes+len(content), b.files+1
	return nil
}

// commit makes a commit of what is in the bag. parent "": it has none.
func (b *bag) commit(ctx context.Context, message, parent string) (string, error) {
	r := b.p.outbox()
	file := filepath.Join(b.p.Dir, "evidence-index")
	r.Env, r.Stdin = append(r.Env, "GIT_INDEX_FILE="+file), b.entries.String()
	_ = os.Remove(file) // of a try before
	defer func() { _ = os.Remove(file) }()
	if err := r.Run(ctx, "update-index", "-z", "--add", "--index-info"); err != nil {
		return "", err
	}
	r.Stdin = ""
	tree, err := r.Output(ctx, "write-tree")
	if err != nil {
		return "", err
	}
	args := []string{"commit-tree", "-m", message}
	if parent != "" {
		args = append(args, "-p", parent)
	}
	out, err := b.p.outbox().Output(ctx, append(args, string(bytes.TrimSpace(tree)))...)
	return string(bytes.TrimSpace(out)), err
}

// evidenceFile reads a regular file of at most limit bytes.
func evidenceFile(root fs.FS, name string, limit int) (content string, ok bool) {
	if !fs.ValidPath(name) || strings.ContainsAny(name, "\x00\n") {
		return "", false
	}
	st, err := fs.Stat(root, name)
	if err != nil || !st.Mode().IsRegular() || st.Size() > int64(limit) {
		return "", false
	}
	f, err := root.Open(name)
	if err != nil {
		return "", false
	}
	defer f.Close()
	var b strings.Builder
	if n, err := io.Copy(&b, io.LimitReader(f, int64(limit)+1)); err != nil || n > int64(limit) {
		return "", false
	}
	return b.String(), true
}
