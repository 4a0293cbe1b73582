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

	"github.com/sandbox-agent/sandbox-agent/internal/git"
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
	index, done, err := p.evidenceIndex(ctx, root, paths, &left)
	if err != nil || index.Dir == "" {
		return "", left, err
	}
	defer done()
	tree, err := index.Output(ctx, "write-tree")
	if err != nil {
		return "", left, fmt.Errorf("keep the evidence: %w", err)
	}
	args := []string{"commit-tree", "-m", fmt.Sprintf("Evidence of task %s, attempt %d", p.Order.TaskID, p.number())}
	ref := workorder.EvidenceRef(p.Order.TaskID)
	if before := p.led.Refs[ref]; before != "" {
		if p.outbox().Run(ctx, "cat-file", "-e", before+"^{commit}") == nil {
			args = append(args, "-p", before)
		}
	}
	out, err := p.outbox().Output(ctx, append(args, string(bytes.TrimSpace(tree)))...)
	if err != nil {
		return "", left, fmt.Errorf("keep the evidence: %w", err)
	}
	commit = string(bytes.TrimSpace(out))
	if _, err := p.send(ctx, []change{{ref, commit}}, false); err != nil {
		return "", left, fmt.Errorf("push the evidence to %s: %w", p.Order.Repo, err)
	}
	p.led.Refs[ref] = commit
	p.jot()
	return commit, left, nil
}

// evidenceIndex is our repository with an index of the files; none when there are none.
func (p *Publisher) evidenceIndex(ctx context.Context, root fs.FS, paths []string, left *[]string) (r git.Repo, done func(), err error) {
	paths = slices.Clone(paths)
	slices.Sort(paths)
	var entries strings.Builder
	all, files := 0, 0
	for _, name := range slices.Compact(paths) {
		content, ok := evidenceFile(root, name, min(maxEvidenceFile, maxEvidence-all))
		if !ok || files == maxEvidenceFiles {
			*left = append(*left, name)
			continue
		}
		out := p.outbox()
		out.Stdin = content
		id, err := out.Output(ctx, "hash-object", "-w", "--stdin")
		if err != nil {
			return git.Repo{}, nil, fmt.Errorf("keep the evidence %s: %w", name, err)
		}
		fmt.Fprintf(&entries, "100644 %s\t%s\x00", bytes.TrimSpace(id), name)
		all, files = all+len(content), files+1
	}
	if files == 0 {
		return git.Repo{}, nil, nil
	}
	r = p.outbox()
	file := filepath.Join(p.Dir, "evidence-index")
	r.Env, r.Stdin = append(r.Env, "GIT_INDEX_FILE="+file), entries.String()
	done = func() { _ = os.Remove(file) }
	done() // of a try before
	if err := r.Run(ctx, "update-index", "-z", "--add", "--index-info"); err != nil {
		done()
		return git.Repo{}, nil, fmt.Errorf("keep the evidence: %w", err)
	}
	r.Stdin = ""
	return r, done, nil
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
