package claim

import (
	"context"
	"strconv"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Refs of the mirror for commits that an earlier attempt could not push: branches and the task's own refs.
const (
	BundleHeads = "refs/bundle/heads/"
	bundleKept  = "refs/bundle/kept/"
)

// unbundle reads the bundle into the mirror. An unreadable one is a warning; the host still has it.
func (ls *Claimer) unbundle(ctx context.Context) {
	if ls.Bundle == "" {
		return
	}
	err := ls.Repos.Mirror().Run(ctx, "fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance",
		"--", ls.Bundle, "+refs/heads/*:"+BundleHeads+"*", "+"+workorder.TaskRefs(ls.Repos.Order.TaskID)+"*:"+bundleKept+"*")
	if err != nil {
		ls.Repos.Warn("the commits that an earlier attempt could not push cannot be read: %v", err)
	}
}

// LandedBy is part of the name of a bundle's ref if that ref has all of its attempt's work.
const LandedBy = "attempt-"

// bundled lists the bundle's refs by their names on the remote, and the number of the attempt whose whole work it has, or 0.
func (ls *Claimer) bundled(ctx context.Context) (refs map[string]string, all int, err error) {
	if ls.Bundle == "" {
		return nil, 0, nil
	}
	out, err := ls.Repos.Mirror().Output(ctx, "for-each-ref", "--format=%(objectname) %(refname)", BundleHeads, bundleKept)
	if err != nil {
		return nil, 0, err
	}
	refs = map[string]string{}
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		if len(f) != 2 || !git.ValidSHA(f[0]) {
			continue
		}
		if name, ok := strings.CutPrefix(f[1], BundleHeads); ok {
			refs[workorder.BranchRef(name)] = f[0]
		} else if number, ok := strings.CutPrefix(f[1], bundleKept+LandedBy); ok {
			all, _ = strconv.Atoi(number) // other names have no number
		} else if name, ok := strings.CutPrefix(f[1], bundleKept); ok {
			refs[workorder.TaskRefs(ls.Repos.Order.TaskID)+name] = f[0]
		}
	}
	return refs, all, nil
}

// takeBundle starts from the commits that never reached the remote: the branch if it is ahead, else refs next to it.
func (ls *Claimer) takeBundle(ctx context.Context, v remoteTask, c *Result) error {
	refs, all, err := ls.bundled(ctx)
	if err != nil {
		return err
	}
	branch := workorder.BranchRef(v.branch)
	for ref, sha := range refs {
		if ref != branch {
			if at := v.refs[ref]; at != "" && at != sha { // an earlier save brought it
				ref = workorder.KeptRef(ls.Repos.Order.TaskID, "unpushed-"+sha[:12])
			}
			if v.refs[ref] == "" {
				c.keep(ref, sha)
			}
			continue
		}
		behind, err := ls.Repos.Mirror().IsAncestor(ctx, c.Head, sha)
		if err != nil {
			return err
		}
		ahead, err := ls.Repos.Mirror().IsAncestor(ctx, sha, c.Head)
		if err != nil {
			return err
		}
		switch {
		case ahead: // it has reached the remote since
		case behind:
			c.Head, c.Bundled, c.BundleAll = sha, true, all
		default:
			kept := workorder.KeptRef(ls.Repos.Order.TaskID, "bundle-"+sha[:12])
			c.keep(kept, sha)
			ls.Repos.Warn(
				"the commits that an earlier attempt could not push do not fit the branch %s, which has changed since: they are kept as %s", v.branch,
				kept,
			)
		}
	}
	return nil
}

func (c *Result) keep(ref, sha string) {
	if c.Kept == nil {
		c.Kept = map[string]string{}
	}
	c.Kept[ref] = sha
}
