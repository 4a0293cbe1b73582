package remote

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Repos are the task's repositories. Set the fields before use.
//
//	mirror   copy of the remote; fetched with the credential, readable by all
//	outbox   only alternates: the mirror's and the work tree's objects. Pushes
//	         go out from here, of commit ids that git, run as the agent's user, reports
//	before   the remote's refs at the start, for the proof
//	tree     the agent's work tree, used as the agent's user
type Repos struct {
	Order     *workorder.Order
	Dir       string           // directory of root's repositories; readable by the agent, writable only by root
	BeforeDir string           // path of Before, outside Dir on its file system; empty if it is not kept
	Workspace string           // the work tree
	User      *proc.Credential // the agent's user; nil for the caller
	Home      string           // the agent's home
	Auth      *git.Auth        // nil if the remote needs none
	Emit      func(workorder.Event)
	// Clean masks secrets in text that leaves the box; nil if there are none.
	Clean func(string) string
}

// Open creates mirror and outbox if they are missing, keeps the remote's refs as Before, and fetches.
func (rs *Repos) Open(ctx context.Context) error {
	for _, dir := range []string{rs.mirrorDir(), rs.outboxDir()} {
		if err := git.InitBare(dir); err != nil {
			return err
		}
	}
	// Only a repository that counts as shallow lets git push leave out objects that the remote has in commits that are
	// not ancestors, such as the last checkpoint. This one misses no commit.
	if err := os.WriteFile(filepath.Join(rs.outboxDir(), "shallow"), nil, 0o644); err != nil {
		return fmt.Errorf("prepare outbox: %w", err)
	}
	if rs.BeforeDir == "" {
		return rs.Refresh(ctx)
	}
	if _, err := os.Lstat(rs.BeforeDir); err == nil { // an earlier call's
		return rs.Refresh(ctx)
	}
	// A new task has no refs that Before must not have. Both requests are sent at the same time.
	own := make(chan bool, 1)
	go func() { own <- rs.mayHaveRefs(ctx) }()
	err := rs.keepBefore(ctx)
	if has := <-own; err != nil || !has {
		return err
	}
	return rs.Refresh(ctx)
}

// mayHaveRefs reports whether the remote has refs of the task, or does not answer.
func (rs *Repos) mayHaveRefs(ctx context.Context) bool {
	patterns := []string{workorder.TaskRefs(rs.Order.TaskID) + "*", rs.ownBranch() + "*"}
	if b := rs.Order.TargetBranch; b != "" {
		patterns = append(patterns, workorder.BranchRef(b))
	}
	out, err := rs.lsRemote(ctx, patterns)
	return err != nil || len(out) > 0
}

// ownBranch begins the names of the task's branches, even if the order has another name: see workorder.OwnBranch.
func (rs *Repos) ownBranch() string { return workorder.BranchRef("agent/" + rs.Order.TaskID) }

func (rs *Repos) mirrorDir() string { return filepath.Join(rs.Dir, "mirror.git") }
func (rs *Repos) outboxDir() string { return filepath.Join(rs.Dir, "outbox.git") }

// Mirror returns root's copy of the remote, without credential.
func (rs *Repos) Mirror() git.Repo { return git.Repo{Dir: rs.mirrorDir(), Bare: true} }

// Before has the remote's branches and tags as they were at the start, and no other objects.
func (rs *Repos) Before() git.Repo { return git.Repo{Dir: rs.BeforeDir, Bare: true} }

func (rs *Repos) authed(r git.Repo) git.Repo {
	r.Auth = rs.Auth
	return r
}

// Tree returns the agent's work tree, used as the agent's user.
func (rs *Repos) Tree() git.Repo {
	return git.Repo{Dir: rs.Workspace, Tree: true, User: rs.User, Env: slices.Concat(rs.Identity(), git.NoUser(), ConfigEnv())}
}

// Identity returns the environment with the home and the name under which the agent commits.
func (rs *Repos) Identity() []string {
	a := rs.Order.Author
	return []string{
		"HOME=" + rs.Home,
		"GIT_AUTHOR_NAME=" + a.Name, "GIT_AUTHOR_EMAIL=" + a.Email,
		"GIT_COMMITTER_NAME=" + a.Name, "GIT_COMMITTER_EMAIL=" + a.Email,
	}
}

// BaseBranch returns the task's base, a branch, tag or commit, and its commit in the mirror; git.KindNotFound if it is missing.
func (rs *Repos) BaseBranch(ctx context.Context) (base, sha string, err error) {
	base = rs.Order.Branch
	if base == "" {
		if base, err = rs.authed(rs.Mirror()).DefaultBranch(ctx, rs.Order.CloneURL); err != nil {
			return "", "", err
		}
		if base == "" {
			return "", "", &git.Error{
				Verb: "clone", Kind: git.KindNotFound,
				Err: fmt.Errorf("the remote %s has no default branch (is it empty?); push a first commit or name `branch`", rs.Order.Repo),
			}
		}
	}
	for _, ref := range []string{workorder.BranchRef(base), "refs/tags/" + base, BaseRef} {
		if ref == BaseRef && !git.ValidSHA(base) {
			continue
		}
		if sha, err = rs.Mirror().Resolve(ctx, ref); err != nil {
			return "", "", err
		} else if sha != "" {
			return base, sha, nil
		}
	}
	// git does not fetch a shallow repository's refs whose history ends before its boundary.
	if there, err := rs.authed(rs.Mirror()).Output(ctx, "ls-remote", "--", rs.Order.CloneURL, "refs/heads/"+base); err == nil &&
		len(there) > 0 {
		return "", "", &git.Error{
			Verb: "clone", Kind: git.KindFormat,
			Err: fmt.Errorf("the remote %s has the branch %q but does not provide it: %s", rs.Order.Repo, base, git.ShallowText),
		}
	}
	return "", "", &git.Error{
		Verb: "clone", Kind: git.KindNotFound, Err: fmt.Errorf("the remote %s has no branch, tag or commit %q", rs.Order.Repo, base),
	}
}

// BaseRef is the mirror's ref of a base that is a commit, which may be on no branch.
const BaseRef = "refs/base/commit"

// keepBase fetches a base that is a commit into the mirror.
func (rs *Repos) keepBase(ctx context.Context) {
	id := rs.Order.Branch
	if !git.ValidSHA(id) {
		return
	}
	if rs.Mirror().Run(ctx, "update-ref", BaseRef, id) == nil {
		return // it came with a branch, or with the rest of a bundle
	}
	_ = rs.fetch(ctx, id, BaseRef)
}

// fetch brings one of the remote's commits, or what a ref of it names, to a ref of the mirror.
func (rs *Repos) fetch(ctx context.Context, from, to string) error {
	return rs.authed(rs.Mirror()).Run(ctx, "fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance",
		"--", rs.Order.CloneURL, "+"+from+":"+to)
}

// Refresh updates the mirror from the remote, the task's own refs included. It is safe while others read the mirror.
func (rs *Repos) Refresh(ctx context.Context) error {
	return rs.mirror(ctx, "+"+workorder.TaskRefs(rs.Order.TaskID)+"*:"+workorder.TaskRefs(rs.Order.TaskID)+"*",
		"^"+workorder.AliveRef(rs.Order.TaskID)) // it moves during the fetch
}

// mirror fetches the remote's branches and tags, and the further refs.
func (rs *Repos) mirror(ctx context.Context, more ...string) error {
	if err := rs.authed(rs.Mirror()).Run(ctx, append([]string{
		"fetch", "--quiet", "--prune", "--no-write-fetch-head", "--no-auto-maintenance",
		"--", rs.Order.CloneURL, "+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*",
	}, more...)...); err != nil {
		return err
	}
	rs.keepBase(ctx)
	return nil
}

// keepBefore creates Before, of hard links to the mirror's current objects. Its readers can list all objects, so
// objects that it must not have are fetched later.
func (rs *Repos) keepBefore(ctx context.Context) error {
	but := []string{"^" + rs.ownBranch(), "^" + rs.ownBranch() + "-*"}
	if b := rs.Order.TargetBranch; b != "" {
		but = append(but, "^"+workorder.BranchRef(b))
	}
	if err := rs.mirror(ctx, but...); err != nil {
		return err
	}
	half := rs.BeforeDir + ".half" // an interrupted call must not leave a directory that looks complete
	err := errors.Join(os.RemoveAll(half), os.MkdirAll(filepath.Dir(half), 0o755))
	if err == nil {
		err = git.Repo{Dir: rs.Dir}.Run(ctx, "clone", "--quiet", "--mirror", "--local", "--template=", "--", rs.mirrorDir(), half)
	}
	if err == nil {
		err = os.Rename(half, rs.BeforeDir)
	}
	if err != nil {
		return fmt.Errorf("keep the remote's state before the task: %w", err)
	}
	return nil
}

// Unbundle creates the mirror with the branches of a bundle.
func (rs *Repos) Unbundle(ctx context.Context, file string) error {
	if err := git.InitBare(rs.mirrorDir()); err != nil {
		return err
	}
	return rs.Mirror().Run(ctx, "fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance", "--", file,
		"+refs/heads/*:refs/heads/*")
}

// Connect makes the objects of the mirror and the work tree visible in the outbox.
func (rs *Repos) Connect(objects string) error {
	info := filepath.Join(rs.outboxDir(), "objects/info")
	if err := os.MkdirAll(info, 0o755); err != nil {
		return fmt.Errorf("prepare outbox: %w", err)
	}
	alternates := rs.mirrorDir() + "/objects\n" + objects + "\n"
	if was, err := os.ReadFile(filepath.Join(info, "alternates")); err == nil && string(was) == alternates {
		return nil
	}
	if err := os.WriteFile(filepath.Join(info, "alternates"), []byte(alternates), 0o644); err != nil {
		return fmt.Errorf("prepare outbox: %w", err)
	}
	return nil
}

// Reconnect follows the work tree's objects if the agent has moved them (a .git file, a separate git directory).
func (rs *Repos) Reconnect(ctx context.Context) error {
	out, err := rs.Tree().Output(ctx, "rev-parse", "--path-format=absolute", "--git-path", "objects")
	if err != nil {
		return err
	}
	path := strings.TrimSuffix(string(out), "\n")
	if !filepath.IsAbs(path) || strings.ContainsAny(path, "\n\"") {
		return fmt.Errorf("the work tree's objects are at %q", path)
	}
	return rs.Connect(path)
}

// Outbox returns the repository that pushes start from, without the agent's configuration. It has the objects of the
// mirror and of the work tree.
func (rs *Repos) Outbox() git.Repo {
	return git.Repo{Dir: rs.outboxDir(), Bare: true, Env: []string{
		"GIT_AUTHOR_NAME=" + signer, "GIT_AUTHOR_EMAIL=" + signer + "@localhost",
		"GIT_COMMITTER_NAME=" + signer, "GIT_COMMITTER_EMAIL=" + signer + "@localhost",
	}}
}

// signer is the author of states and checkpoints, and Signature is it with its address.
const (
	signer    = "sandbox-agent"
	Signature = signer + " <" + signer + "@localhost>"
)

// Mask replaces secrets in text that leaves the box.
func (rs *Repos) Mask(s string) string {
	if rs.Clean == nil {
		return s
	}
	return rs.Clean(s)
}

// Warn emits a warning.
func (rs *Repos) Warn(format string, args ...any) {
	rs.Emit(workorder.Event{Type: workorder.EventWarning, Text: fmt.Sprintf(format, args...)})
}

// TaskRefs lists the task's refs from the output of ls-remote or for-each-ref.
func TaskRefs(out []byte, taskID, branch string) map[string]string {
	refs := map[string]string{}
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		if len(f) == 2 && git.ValidSHA(f[0]) && (strings.HasPrefix(f[1], workorder.TaskRefs(taskID)) || f[1] == workorder.BranchRef(branch)) {
			refs[f[1]] = f[0]
		}
	}
	return refs
}

// ConfigEnv returns the environment that sets git's configuration, and disables outside ignore rules and attributes.
func ConfigEnv(pairs ...string) []string {
	return git.ConfigEnv(append([]string{"core.excludesFile", "/dev/null", "core.attributesFile", "/dev/null"}, pairs...)...)
}

// A checkpoint is the work tree as git would commit it now. A separate index hashes it as the agent's user, and it
// stays as loose objects in the agent's store until it is pushed.

// SideDir returns the directory of the separate indexes. It belongs to the agent's user.
func (rs *Repos) SideDir() string { return filepath.Join(rs.Dir, "side") }

// SidePath returns the path of one of these indexes.
func (rs *Repos) SidePath(name string) string { return filepath.Join(rs.SideDir(), name) }

// LocalTime bounds reading the repositories. It does not count as time for pushing.
const LocalTime = 30 * time.Second

// MaxCommits bounds the commits that a result lists.
const MaxCommits = 200

// Log lists the newest commits of head that base does not have, in the form that results use.
func Log(ctx context.Context, r git.Repo, base, head string) (commits []workorder.Commit, err error) {
	list, err := r.Log(ctx, base, head, MaxCommits)
	for _, c := range list {
		commits = append(commits, workorder.Commit(c))
	}
	return commits, err
}

const askTime = 30 * time.Second

// RemoteRefs queries the remote for the task's refs.
func (rs *Repos) RemoteRefs(ctx context.Context, branch string) (map[string]string, error) {
	return rs.ListRefs(ctx, branch, workorder.TaskRefs(rs.Order.TaskID)+"*", workorder.BranchRef(branch))
}

// ListRefs queries the remote for the task's refs that match the patterns.
func (rs *Repos) ListRefs(ctx context.Context, branch string, patterns ...string) (map[string]string, error) {
	out, err := rs.lsRemote(ctx, patterns)
	if err != nil {
		return nil, err
	}
	return TaskRefs(out, rs.Order.TaskID, branch), nil
}

func (rs *Repos) lsRemote(ctx context.Context, patterns []string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	return rs.authed(rs.Mirror()).Output(ctx, append([]string{"ls-remote", "--quiet", "--refs", "--", rs.Order.CloneURL}, patterns...)...)
}
