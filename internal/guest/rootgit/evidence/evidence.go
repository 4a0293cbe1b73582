// Package evidence pushes the attempt's evidence, result and logs to the task's own refs.
package evidence

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/remote"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Uploader pushes files to the remote, next to the branch.
type Uploader struct {
	*remote.Remote
}

const (
	// MaxFile bounds one file that is pushed next to the branch, in bytes: every clone of all refs contains it.
	MaxFile = 8 << 20
	// MaxBytes bounds the sum of all files, in bytes.
	MaxBytes = 24 << 20
	maxFiles = 400
)

// Files pushes files of root as a commit on a ref of the task, on top of the previous attempt's. left lists the omitted
// files. Call it after Land. Without files the commit id is empty and the error nil.
func (sd *Uploader) Files(ctx context.Context, root fs.FS, paths []string) (commit string, left []string, err error) {
	if err := sd.Ledger.Load(); err != nil {
		return "", nil, fmt.Errorf("keep the evidence: %w", err)
	}
	b := &fileSet{p: sd}
	paths = slices.Clone(paths)
	slices.Sort(paths)
	for _, name := range slices.Compact(paths) {
		if err := b.take(root, name); err != nil {
			return "", nil, fmt.Errorf("keep the evidence %s: %w", name, err)
		}
	}
	if b.files == 0 {
		return "", b.left, nil
	}
	ref := workorder.EvidenceRef(sd.Repos.Order.TaskID)
	parent := sd.Ledger.Refs[ref]
	if parent != "" && sd.Repos.Outbox().Run(ctx, "cat-file", "-e", parent+"^{commit}") != nil {
		parent = ""
	}
	if commit, err = b.commit(
		fmt.Sprintf("Evidence of task %s, attempt %d", sd.Repos.Order.TaskID, sd.Ledger.AttemptNumber()), parent,
	); err != nil {
		return "", b.left, fmt.Errorf("keep the evidence: %w", err)
	}
	if _, err := sd.Send(ctx, []remote.Change{{Ref: ref, SHA: commit}}, false); err != nil {
		return "", b.left, fmt.Errorf("push the evidence to %s: %w", sd.Repos.Order.Repo, err)
	}
	sd.Ledger.Refs[ref] = commit
	sd.Ledger.StoreBestEffort()
	return commit, b.left, nil
}

// fileSet collects the files for one ref, within the limits of evidence.
type fileSet struct {
	p       *Uploader
	entries map[string]string // blobs by name
	bytes   int
	files   int
	left    []string // files that did not fit or could not be read
}

// take adds a file of root, or adds its name to left.
func (b *fileSet) take(root fs.FS, name string) error {
	content, ok := evidenceFile(root, name, b.space())
	if !ok || b.files >= maxFiles {
		b.left = append(b.left, name)
		return nil
	}
	return b.put(name, content)
}

// space returns the largest allowed size of the next file.
func (b *fileSet) space() int { return max(0, min(MaxFile, MaxBytes-b.bytes)) }

// put adds a file, whatever its size.
func (b *fileSet) put(name, content string) error {
	id, err := b.p.Repos.Outbox().WriteBlob([]byte(content))
	if err != nil {
		return err
	}
	if b.entries == nil {
		b.entries = map[string]string{}
	}
	b.entries[name] = id
	b.bytes, b.files = b.bytes+len(content), b.files+1
	return nil
}

func (b *fileSet) commit(message, parent string) (string, error) {
	return b.p.Repos.Outbox().WriteCommit(b.entries, remote.Signature, message, parent)
}

func evidenceFile(root fs.FS, name string, limit int) (content string, ok bool) {
	isGit := func(part string) bool { return strings.EqualFold(part, ".git") } // which no tree may have
	if !fs.ValidPath(name) || strings.ContainsAny(name, "\x00\n") || slices.ContainsFunc(strings.Split(name, "/"), isGit) {
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
