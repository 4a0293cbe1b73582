// Package localrepo makes a repository of this machine the remote of a run: it inspects the repository, serves it to the box over
// authenticated HTTP, and imports bundles. The box can read every ref and write only the run's refs; no hook runs.
package localrepo

import (
	"cmp"
	"context"
	"crypto/sha1" // the ids of git's objects
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// gitTimeout bounds a git command. The slowest is `status` of a large tree on a cold disk.
const gitTimeout = 60 * time.Second

// Repo is a repository on this machine.
type Repo struct {
	Path    string // top of the working tree, or the bare repository
	Bare    bool
	Head    string   // the checked-out branch; "" if HEAD is detached
	Changed []string // uncommitted files relative to Path; a new directory ends in a slash
	Empty   bool     // no commit exists

	bases map[string]string // answers of Base, by ref
}

// Open inspects the repository that contains path, which may be relative or begin with ~/ or file://.
func Open(ctx context.Context, path string) (*Repo, error) {
	ctx, cancel := context.WithTimeout(ctx, gitTimeout)
	defer cancel()
	abs, err := git.AbsRepo(path)
	if err == nil {
		abs, err = filepath.Abs(abs) // path may look like a URL
	}
	if err != nil {
		return nil, fmt.Errorf("open repository %s: %w", path, err)
	}
	st, err := os.Stat(abs)
	if err != nil {
		return nil, exiterr.New(workorder.ExitGit, fmt.Errorf("open repository: %w", err), "give a directory inside a git repository, or a URL")
	}
	if !st.IsDir() {
		return nil, exiterr.New(workorder.ExitGit, fmt.Errorf("open repository %s: not a directory", path),
			"give a directory inside a git repository, or a URL")
	}
	at, err := find(ctx, abs)
	switch {
	case err != nil:
		return nil, err
	case at.format != "sha1":
		return nil, exiterr.New(workorder.ExitGit, fmt.Errorf("open repository %s: %s", path, git.SHA256Text), "")
	case at.shallow:
		return nil, exiterr.New(workorder.ExitGit, fmt.Errorf("open repository %s: %s", path, git.ShallowText), "")
	case !at.bare && at.top == "":
		return nil, exiterr.New(workorder.ExitGit, fmt.Errorf("open repository %s: no working tree", path), noTreeHint)
	}
	r := &Repo{Path: cmp.Or(at.top, at.gitDir), Bare: at.bare}
	// It takes longest, so that the others run meanwhile.
	type listed struct {
		names string
		err   error
	}
	status := make(chan listed, 1)
	go func() {
		var l listed
		if !r.Bare {
			l.names, l.err = gitOut(ctx, r.Path, "status", "--porcelain", "-z", "--ignore-submodules=dirty")
		}
		status <- l
	}()
	// git's short name has the prefix heads/ if a tag has the same name.
	if head, err := gitOut(ctx, r.Path, "symbolic-ref", "--quiet", "HEAD"); err == nil {
		r.Head, _ = strings.CutPrefix(strings.TrimSpace(head), "refs/heads/")
	}
	if _, err := gitOut(ctx, r.Path, "rev-parse", "--verify", "--quiet", "HEAD^{commit}"); err != nil {
		r.Empty = true
	}
	l := <-status
	if l.err != nil {
		return nil, exiterr.New(workorder.ExitGit, fmt.Errorf("inspect repository %s: %w", r.Path, l.err), "")
	}
	r.Changed = changed(l.names)
	return r, nil
}

// Remotes returns the URLs in a repository's configuration; nil if git would use another repository than the one in dir.
func Remotes(ctx context.Context, dir string) (urls []string) {
	ctx, cancel := context.WithTimeout(ctx, gitTimeout)
	defer cancel()
	if bounds(ctx, dir) != nil {
		return nil // git would read another repository's configuration
	}
	out, err := gitOut(ctx, dir, "config", "--local", "--null", "--get-regexp", `^remote\..*\.url$`)
	if err != nil {
		return nil // no remotes, or git cannot read the repository
	}
	for entry := range strings.SplitSeq(out, "\x00") {
		if _, url, ok := strings.Cut(entry, "\n"); ok {
			urls = append(urls, url)
		}
	}
	return urls
}

func changed(status string) (names []string) {
	entries := strings.Split(status, "\x00")
	for i := 0; i < len(entries); i++ {
		const lead = len("XY ")
		if len(entries[i]) <= lead {
			continue
		}
		names = append(names, entries[i][lead:])
		if strings.ContainsAny(entries[i][:lead], "RC") {
			i++ // skip the old name
		}
	}
	return names
}

func openHint(err error) string {
	if strings.Contains(err.Error(), "dubious ownership") {
		return "the directory belongs to another user: if you trust it, run git config --global --add safe.directory PATH"
	}
	return "give a directory inside a git repository (create one with git init), or a URL"
}

// ImportBundle imports the run's branch from a bundle into the repository, where the branch must be missing or an ancestor. head is
// the branch's new commit; "" if the bundle does not have the branch.
func ImportBundle(ctx context.Context, repo, bundle, taskID, branch string) (head string, err error) {
	ctx, cancel := context.WithTimeout(ctx, gitTimeout)
	defer cancel()
	heads, err := gitOut(ctx, repo, "bundle", "list-heads", bundle)
	if err != nil {
		return "", fmt.Errorf("read bundle: %w", err)
	}
	// First into a temporary repository: git checks objects fetched from a repository, but those of a bundle only since 2.46.
	stage, err := os.MkdirTemp("", "sandbox-agent-import-")
	if err != nil {
		return "", fmt.Errorf("read bundle: %w", err)
	}
	defer os.RemoveAll(stage)
	if err := borrow(ctx, stage, repo); err != nil {
		return "", err
	}
	var out, in []string
	for line := range strings.Lines(heads) {
		sha, ref, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch {
		case allowedRef(ref, taskID, branch):
			out, in = append(out, ref+":"+ref), append(in, ref+":"+ref)
			if ref == "refs/heads/"+branch {
				head = sha
			}
		case ref == "HEAD" && !strings.Contains(heads, "refs/heads/"+branch):
			own := "refs/heads/" + branch
			out, in = append(out, "HEAD:"+own), append(in, own+":"+own)
			head = sha
		}
	}
	if len(out) == 0 {
		return "", errors.New("no ref of this run in the bundle")
	}
	fetch := []string{"fetch", "--no-tags", "--no-auto-gc", "--no-write-fetch-head", "--"}
	fetch = append([]string{"-c", "protocol.file.allow=always"}, fetch...) // the host chose the file
	if _, err := gitOut(ctx, stage, slices.Concat(fetch, []string{bundle}, out)...); err != nil {
		return "", err
	}
	// Keep the user's configuration from rewriting the address: the longest matching rule wins.
	fetch = append([]string{"-c", "url." + stage + ".insteadOf=" + stage}, fetch...)
	if _, err := gitOut(ctx, repo, slices.Concat(checked("fetch"), fetch, []string{stage}, in)...); err != nil {
		return "", err
	}
	return head, nil
}

// borrow makes dir a repository that uses the objects of repo.
func borrow(ctx context.Context, dir, repo string) error {
	if _, err := gitOut(ctx, dir, "init", "-q", "--bare"); err != nil {
		return err
	}
	objects, err := gitOut(ctx, repo, "rev-parse", "--git-path", "objects")
	if err != nil {
		return err
	}
	if !filepath.IsAbs(objects) {
		objects = filepath.Join(repo, objects)
	}
	return os.WriteFile(filepath.Join(dir, "objects", "info", "alternates"), []byte(objects), 0o600)
}

// Identity returns the user's name and address in a repository, or git.DefaultAuthor if they are not configured.
func Identity(ctx context.Context, dir string, own workorder.Identity) (name, email string) {
	if own != (workorder.Identity{}) {
		return own.Name, own.Email
	}
	ctx, cancel := context.WithTimeout(ctx, gitTimeout)
	defer cancel()
	who := git.DefaultAuthor()
	out, err := gitOut(ctx, dir, "config", "--null", "--get-regexp", `^user\.(name|email)$`)
	if err != nil {
		return who.Name, who.Email // not configured
	}
	to := map[string]*string{"user.name": &who.Name, "user.email": &who.Email}
	for entry := range strings.SplitSeq(out, "\x00") { // the last value of a key counts
		if key, value, _ := strings.Cut(entry, "\n"); to[key] != nil && strings.TrimSpace(value) != "" {
			*to[key] = text.Clean(strings.TrimSpace(value))
		}
	}
	return who.Name, who.Email
}

// Author returns the user's identity for a task's commits, as configured in dir; zero if name or address is missing.
func Author(ctx context.Context, dir string) workorder.Identity {
	name, email := Identity(ctx, dir, workorder.Identity{})
	id, err := workorder.ParseIdentity(name + " <" + email + ">")
	if who := git.DefaultAuthor(); err != nil || id.Name == who.Name || id.Email == who.Email {
		return workorder.Identity{}
	}
	return id
}

// Same reports whether two directories are working trees of one repository.
func Same(ctx context.Context, a, b string) bool {
	common := func(dir string) string {
		out, err := gitOut(ctx, dir, "rev-parse", "--path-format=absolute", "--git-common-dir")
		if err != nil {
			return ""
		}
		return strings.TrimSpace(out)
	}
	at := common(a)
	return at != "" && at == common(b)
}

// Git returns the repository at dir. Its configuration cannot run programs.
func Git(dir string) git.Repo { return git.Repo{Dir: dir, Foreign: true, Env: gitEnv()} }

func gitOut(ctx context.Context, dir string, args ...string) (string, error) {
	out, err := Git(dir).Output(ctx, args...)
	return string(out), err
}

// gitEnv returns the environment without variables that select another repository: a calling hook or alias exports GIT_DIR and more.
func gitEnv() []string {
	env := []string{"LC_ALL=C"}
	for _, kv := range os.Environ() {
		if k, _, _ := strings.Cut(kv, "="); !strings.HasPrefix(k, "GIT_") && k != "LC_ALL" && k != "LANGUAGE" || k == "GIT_CONFIG_GLOBAL" ||
			k == "GIT_CONFIG_NOSYSTEM" {
			env = append(env, kv)
		}
	}
	return env
}

const (
	holdsTimeout = 20 * time.Second // for a few reads while the user waits
	maxTips      = 10000            // ids in one lookup
	// maxTried bounds the objects that are read, and maxTip the bytes of each: in a clone the first one suffices.
	maxTried, maxTip = 8, 1 << 20
)

// HasAnyObject reports whether the repository has one of the commits, or tags, as an own object. An object cannot be made from its
// id, so its author had access to a repository with it. Objects borrowed from another repository prove nothing.
func HasAnyObject(ctx context.Context, dir string, ids []string) bool {
	ctx, cancel := context.WithTimeout(ctx, holdsTimeout)
	defer cancel()
	if others, err := borrowed(ctx, dir); err != nil || len(others) > 0 {
		return false
	}
	ask := Git(dir)
	for _, id := range ids[:min(len(ids), maxTips)] {
		if git.ValidSHA(id) { // git would resolve a name
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
			continue // missing, or of a type that proves nothing
		}
		if size, err := strconv.Atoi(f[2]); err != nil || size > maxTip {
			continue
		}
		if tried++; tried > maxTried {
			return false
		}
		// git trusts the file name of an object: compare the content.
		if content, err := gitOut(ctx, dir, "cat-file", f[1], f[0]); err == nil && objectID(f[1], content) == f[0] {
			return true
		}
	}
	return false
}

func objectID(kind, content string) string {
	sum := sha1.Sum(fmt.Appendf(nil, "%s %d\x00%s", kind, len(content), content))
	return hex.EncodeToString(sum[:])
}

// TaskRefs returns the objects of a task's refs by full name: the branches that can be its own, and all refs below workorder.TaskRefs.
func (r *Repo) TaskRefs(ctx context.Context, taskID string) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, gitTimeout)
	defer cancel()
	out, err := gitOut(ctx, r.Path, "for-each-ref", "--format=%(refname) %(objectname)", "refs/heads/agent/",
		workorder.TaskRefs(taskID))
	if err != nil {
		return nil, exiterr.New(workorder.ExitGit, fmt.Errorf("read the refs of task %s in %s: %w", taskID, r.Path, err), "")
	}
	found := map[string]string{}
	for line := range strings.Lines(out) {
		name, object, _ := strings.Cut(strings.TrimSpace(line), " ")
		if branch, isBranch := strings.CutPrefix(name, "refs/heads/"); !isBranch || workorder.OwnBranch(taskID, branch) {
			found[name] = object
		}
	}
	return found, nil
}

// CheckDelete returns an error if one of the refs is a branch that a working tree has checked out.
func (r *Repo) CheckDelete(ctx context.Context, refs map[string]string) error {
	ctx, cancel := context.WithTimeout(ctx, gitTimeout)
	defer cancel()
	trees, err := gitOut(ctx, r.Path, "worktree", "list", "--porcelain")
	if err != nil {
		return exiterr.New(workorder.ExitGit, fmt.Errorf("list the working trees of %s: %w", r.Path, err), "")
	}
	dir := ""
	for line := range strings.Lines(trees) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if key == "worktree" {
			dir = value
		}
		if key == "branch" && refs[value] != "" {
			return exiterr.New(workorder.ExitGit, fmt.Errorf("branch %s is checked out in %s", strings.TrimPrefix(value, "refs/heads/"), dir),
				"switch to another commit first: git -C "+text.Shell(dir)+" switch --detach")
		}
	}
	return nil
}

// DeleteRefs deletes refs of the repository that are still at the given objects: all of them or none. It deletes none
// if CheckDelete returns an error.
func (r *Repo) DeleteRefs(ctx context.Context, refs map[string]string) error {
	if err := r.CheckDelete(ctx, refs); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, gitTimeout)
	defer cancel()
	var commands strings.Builder
	for name, object := range refs {
		fmt.Fprintf(&commands, "delete %s %s\n", name, object)
	}
	const grace = time.Second
	said, err := Git(r.Path).Stream(ctx, strings.NewReader(commands.String()), io.Discard, grace, "update-ref", "--stdin")
	if err != nil {
		return exiterr.New(workorder.ExitGit, fmt.Errorf("delete refs of %s: %w: %s", r.Path, err, strings.TrimSpace(said)), "")
	}
	return nil
}

// State reads the task's state from a repository that has one.
func (r *Repo) State(ctx context.Context, taskID string) (*workorder.State, error) {
	ctx, cancel := context.WithTimeout(ctx, gitTimeout)
	defer cancel()
	blob := workorder.StateRef(taskID) + ":" + workorder.StateFile
	size, err := gitOut(ctx, r.Path, "cat-file", "-s", blob)
	if err != nil {
		return nil, fmt.Errorf("read the state of %s in %s: %w", taskID, r.Path, err)
	}
	if n, err := strconv.Atoi(strings.TrimSpace(size)); err != nil || n > workorder.MaxState {
		return nil, fmt.Errorf("read the state of %s in %s: %s bytes are more than %d", taskID, r.Path, strings.TrimSpace(size),
			workorder.MaxState)
	}
	b, err := gitOut(ctx, r.Path, "cat-file", "blob", blob)
	if err != nil {
		return nil, fmt.Errorf("read the state of %s in %s: %w", taskID, r.Path, err)
	}
	return workorder.DecodeState([]byte(b), taskID)
}
