// Package rootgit pushes the agent's work to the remote as root, without trusting the agent's repository.
//
// Order of calls: Claimer.Fetch, Claimer.Claim, Checkpoints.Checkout, Committer.Unarchive, Config.Neutralize,
// Checkpoints.RecordSetupFiles; then Saver.Keep while the agent works, and after AutoSaver.Stop Committer.Commit,
// Lander.Land and Committer.Archive any number of times; Lander.Release at the end. Commit, Land, Archive and
// Release also work in another process with the same directory. The parts are not safe for concurrent use. Between
// AutoSaver.Begin and AutoSaver.Stop only the AutoSaver may use them, except for Repos.Refresh, RecordSetupFiles,
// Neutralize and Rebaser.Unfinished, which lock against it, and the repositories themselves.
package rootgit

import (
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/claim"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/evidence"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/land"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/remote"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/save"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/tree"
)

// parts are the parts of root's git; they share the remote and the work tree.
type parts struct {
	*tree.Tree
	Feedback *evidence.Feedback
	Uploader *evidence.Uploader
	Claimer  *claim.Claimer
	Saver    *save.Saver
	Lander   *land.Lander
	Rebaser  *land.Rebaser
}

func connect(repos *remote.Repos) *parts {
	r := remote.New(repos)
	t := tree.New(r)
	p := &parts{
		Tree: t, Feedback: &evidence.Feedback{Remote: r}, Uploader: &evidence.Uploader{Remote: r}, Saver: &save.Saver{Tree: t},
		Rebaser: &land.Rebaser{Tree: t},
	}
	p.Claimer = &claim.Claimer{Remote: r, Feedback: p.Feedback}
	p.Lander = &land.Lander{Tree: t, Feedback: p.Feedback, Saver: p.Saver}
	return p
}
