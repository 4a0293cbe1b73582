package branch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/host/localrepo"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
)

// remote is the branch as the user's repository has it.
type remote struct{ *Branch }

// publish fetches the branch into the user's repository as a remote-tracking ref: it moves no branch of the user and runs no
// hook. Its error is ErrNotPublished.
func (b remote) publish(ctx context.Context) error {
	if err := b.show(ctx); err != nil {
		return &notShown{err}
	}
	return nil
}

type notShown struct{ err error }

func (e *notShown) Error() string   { return e.err.Error() }
func (e *notShown) Unwrap() []error { return []error{ErrNotPublished, e.err} }

func (b remote) show(ctx context.Context) error {
	if _, err := os.Stat(b.Repo); err != nil {
		return fmt.Errorf("show the branch in %s: the repository no longer exists; fetch the commits into another one with: git fetch %s",
			b.Repo, b.dir)
	}
	user := localrepo.Git(b.Repo)
	have, other := b.otherRemote(ctx)
	switch {
	case other:
		return fmt.Errorf("show the branch in %s: it has another remote %s, %s: rename that remote", b.Repo, Remote, text.Clean(have))
	case have == "":
		for _, kv := range [][2]string{
			{"fetch", "+" + heads + "*:refs/remotes/" + Remote + "/*"}, {"tagOpt", "--no-tags"}, {"url", b.dir},
		} {
			if err := user.Run(ctx, "config", "remote."+Remote+"."+kv[0], kv[1]); err != nil {
				return fmt.Errorf("show the branch in %s: %w", b.Repo, err)
			}
		}
	}
	if err := b.fetch(ctx, "+"+heads+b.Sandbox+":refs/remotes/"+Remote+"/"+b.Sandbox); err != nil {
		return fmt.Errorf("show the branch in %s: %w", b.Repo, err)
	}
	return nil
}

// fetch brings the branch into the user's repository.
func (b *repo) fetch(ctx context.Context, spec string) error {
	user := localrepo.Git(b.Repo)
	user.Untrusted = true // the sandbox made the objects
	return user.Run(ctx, "-c", "protocol.file.allow=always", "-c", "url."+b.dir+".insteadOf="+b.dir,
		"fetch", "--quiet", "--no-tags", "--no-write-fetch-head",
		"--no-recurse-submodules", "--no-auto-maintenance", b.dir, spec)
}

// otherRemote returns the URL of the remote named Remote in the user's repository, empty without one, and whether it is not
// one of this package.
func (b *repo) otherRemote(ctx context.Context) (url string, other bool) {
	out, _ := localrepo.Git(b.Repo).Output(ctx, "config", "remote."+Remote+".url") // empty if the remote does not exist
	url = strings.TrimSpace(string(out))
	// Worktrees of one repository share the remote of the first.
	return url, url != "" && url != b.dir && filepath.Dir(url) != filepath.Dir(b.dir)
}

// Lend fetches the branch's commits into the user's repository without a ref there. It is for a Publish that failed with
// ErrNotPublished because of another remote of that name.
func (b *Branch) Lend(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, gitTime)
	defer cancel()
	if err := b.fetch(ctx, heads+b.Sandbox); err != nil {
		return fmt.Errorf("fetch the branch of sandbox %s into %s: %w", b.Sandbox, b.Repo, err)
	}
	return nil
}

// Target opens repo, the user's repository or a worktree of it, with the branch's commits.
func (b *Branch) Target(ctx context.Context, repo string) (*Target, error) {
	publishing, cancel := context.WithTimeout(ctx, gitTime)
	defer cancel()
	err := remote{b}.publish(publishing)                       // a killed save may not have reached this
	if errors.Is(err, ErrNotPublished) && b.Lend(ctx) == nil { // another remote has the name: the commits are enough
		err = nil
	}
	if err != nil {
		return nil, err
	}
	return Source{
		Of: "sandbox " + b.Sandbox, Branch: "sandbox-" + b.Sandbox, Repo: repo, Base: b.Base(ctx), Head: b.Head(ctx),
	}.Target(ctx, repo)
}

// shows reports whether the user's repository shows a commit. It runs after each command, so it reads the ref's file first,
// which needs no process.
func (b remote) shows(ctx context.Context, commit string) bool {
	ref := "refs/remotes/" + Remote + "/" + b.Sandbox
	at, err := os.ReadFile(filepath.Join(b.Repo, ".git", filepath.FromSlash(ref)))
	if err == nil && string(at) == commit+"\n" {
		return true
	}
	now, _ := localrepo.Git(b.Repo).Resolve(ctx, ref) // empty if the ref does not exist
	return now == commit
}
