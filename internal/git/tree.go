package git

import (
	"bytes"
	"context"
	"fmt"
	"strings"
)

// Head returns the commit that HEAD names, or "" on an unborn branch.
func (r Repo) Head(ctx context.Context) (string, error) { return r.Resolve(ctx, "HEAD") }

// Resolve returns the commit of a full ref name or HEAD, or "" if there is none.
func (r Repo) Resolve(ctx context.Context, ref string) (string, error) {
	out, err := r.Output(ctx, "rev-parse", "--verify", "--quiet", "--end-of-options", ref+"^{commit}")
	if err != nil {
		if len(bytes.TrimSpace(out)) == 0 && exitedWith(err, 1) {
			return "", nil
		}
		return "", err
	}
	sha := strings.TrimSpace(string(out))
	if !ValidSHA(sha) {
		return "", fmt.Errorf("git rev-parse %s: %q is not a commit id", ref, sha)
	}
	return sha, nil
}

// ValidSHA reports whether s is a full commit id (SHA-1 or SHA-256).
func ValidSHA(s string) bool {
	if len(s) != 40 && len(s) != 64 {
		return false
	}
	return strings.Trim(s, "0123456789abcdef") == ""
}

// Dirty reports whether the work tree or the index differ from HEAD, including untracked files that are not ignored.
func (r Repo) Dirty(ctx context.Context) (bool, error) {
	dirty := false
	err := r.Each(ctx, func(string) { dirty = true }, "status", "--porcelain", "-z", "--untracked-files=normal", "--ignore-submodules=dirty")
	return dirty, err
}

// IsAncestor reports whether commit a is reachable from commit b.
func (r Repo) IsAncestor(ctx context.Context, a, b string) (bool, error) {
	if a == b {
		return true, nil
	}
	err := r.Run(ctx, "merge-base", "--is-ancestor", a, b)
	if exitedWith(err, 1) {
		return false, nil
	}
	return err == nil, err
}

// Commit is one commit of a log.
type Commit struct{ SHA, Subject, Author string }

// Log lists at most limit commits of head beyond base, newest first.
func (r Repo) Log(ctx context.Context, base, head string, limit int) ([]Commit, error) {
	if head == base {
		return nil, nil
	}
	args := []string{"log", "-z", "--format=%H%x01%s%x01%an", fmt.Sprintf("--max-count=%d", limit), head}
	if base != "" {
		args = append(args, "^"+base)
	}
	out, err := r.Output(ctx, append(args, "--")...)
	if err != nil {
		return nil, err
	}
	var cs []Commit
	for rec := range strings.SplitSeq(string(out), "\x00") {
		if f := strings.SplitN(strings.TrimPrefix(rec, "\n"), "\x01", 3); len(f) == 3 {
			cs = append(cs, Commit{SHA: f[0], Subject: strings.ToValidUTF8(f[1], "\uFFFD"), Author: strings.ToValidUTF8(f[2], "\uFFFD")})
		}
	}
	return cs, nil
}

// DefaultBranch asks the remote which branch its HEAD names; "" if it does not report one.
func (r Repo) DefaultBranch(ctx context.Context, url string) (string, error) {
	out, err := r.Output(ctx, "ls-remote", "--symref", "--", url, "HEAD")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(out)) {
		if ref, ok := strings.CutPrefix(line, "ref: refs/heads/"); ok {
			name, _, _ := strings.Cut(ref, "\t")
			return name, nil
		}
	}
	return "", nil
}
