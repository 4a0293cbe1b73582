// Package rootgit is root's git: it pushes the agent's work to the remote without trusting the agent's
// repository. Hooks, configuration, filters and remotes of the work tree have no effect, and the agent's
// files never get access to the credential. Only the task's own refs are pushed: its branch, and
// refs/sandbox-agent/<id>/*: the task's state with the lease, the checkpoint of uncommitted work, and commits
// that the agent made elsewhere or rewrote.
//
// This package connects the packages below it, lowest first; each uses only those above it in Git.
//
// Order of calls: Lease.Fetch, Lease.Claim, Snapshots.Checkout, Commits.Unarchive, Settings.Neutralize,
// Snapshots.Baseline; then Save.Keep while the agent works, and after Keeper.Stop Commits.Commit, Land.Land
// and Commits.Archive any number of times; Land.Release at the end. Commit, Land, Archive and Release also
// work in another process with the same directory. From Claim to Release a goroutine moves the heartbeat. Git
// is not safe for concurrent use. Between Keeper.Begin and Keeper.Stop only the Keeper may use it, except for
// Repos.Refresh, Baseline, Neutralize and Rebase.Unfinished, which lock against it, and the repositories
// themselves.
package rootgit

import (
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/commit"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/evidence"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/heads"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/heartbeat"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/land"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/lease"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/ledger"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/push"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/rebase"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/remote"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/repos"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/review"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/save"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/settings"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/snapshot"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/stage"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/stopping"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/worktree"
)

// Git holds the parts of root's git.
type Git struct {
	Stopping  *stopping.State
	Repos     *repos.Repos
	Book      *ledger.Book
	Remote    *remote.Remote
	Tree      *worktree.Tree
	Index     *stage.Index
	Feedback  *review.Feedback
	Heart     *heartbeat.Heart
	Evidence  *evidence.Sender
	Lease     *lease.Lease
	Settings  *settings.Settings
	Heads     *heads.Heads
	Snapshots *snapshot.Snapshots
	Commits   *commit.Committer
	Rebase    *rebase.Rebaser
	Push      *push.Pusher
	Save      *save.Saver
	Land      *land.Lander
}

// New connects the parts for a task's repositories.
func New(r *repos.Repos) *Git {
	g := &Git{Stopping: &stopping.State{}, Repos: r, Book: ledger.New(r)}
	g.Remote = remote.New(r, g.Book)
	g.Tree = worktree.New(r, g.Book)
	g.Index = stage.New(r, g.Book, g.Tree)
	g.Feedback = review.New(r, g.Book)
	g.Heart = heartbeat.New(r, g.Book, g.Remote)
	g.Evidence = evidence.New(r, g.Book, g.Remote)
	g.Lease = lease.New(r, g.Book, g.Remote, g.Feedback, g.Heart)
	g.Settings = settings.New(r, g.Book, g.Tree, g.Index)
	g.Heads = heads.New(r, g.Book)
	g.Snapshots = snapshot.New(r, g.Book, g.Tree, g.Index, g.Settings)
	g.Commits = commit.New(r, g.Book, g.Tree, g.Index, g.Settings, g.Snapshots, g.Stopping)
	g.Rebase = rebase.New(r, g.Book, g.Settings, g.Heads)
	g.Push = push.New(r, g.Book, g.Remote, g.Heart)
	g.Save = save.New(r, g.Book, g.Index, g.Heads, g.Snapshots, g.Push, g.Stopping)
	g.Land = land.New(r, g.Book, g.Tree, g.Feedback, g.Heart, g.Heads, g.Push, g.Save, g.Stopping)
	return g
}
