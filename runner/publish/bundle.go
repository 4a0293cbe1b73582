package publish

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Where the mirror has what an earlier attempt could not push: refs/heads/ as
// refs/bundle/heads/, and the task's own refs as refs/bundle/kept/.
const (
	bundleHeads = "refs/bundle/heads/"
	bundleKept  = "refs/bundle/kept/"
)

// unbundle reads the bundle into the mirror. One that cannot be read is said and
// keeps nobody from going on: the host still has it.
func (p *Publisher) unbundle(ctx context.Context) {
	if p.Bundle == "" {
		return
	}
	err := p.Mirror().Run(ctx, "fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance",
		"--", p.Bundle, "+refs/heads/*:"+bundleHeads+"*", "+"+workorder.TaskRefs(p.Order.TaskID)+"*:"+bundleKept+"*")
	if err != nil {
		p.Emit(workorder.Event{Type: workorder.EventWarning, Text: fmt.Sprintf("the commits that an earlier attempt could not push cannot be read: %v", err)})
	}
}

// landedBy is in the name of a ref of a bundle that has all of its attempt's work.
const landedBy = "attempt-"

// bundled lists what the bundle had, by the name that it gets on the remote, and the
// number of the attempt of which it has everything; 0: none.
func (p *Publisher) bundled(ctx context.Context) (refs map[string]string, all int, err error) {
	if p.Bundle == "" {
		return nil, 0, nil
	}
	out, err := p.Mirror().Output(ctx, "for-each-ref", "--format=%(objectname) %(refname)", bundleHeads, bundleKept)
	if err != nil {
		return nil, 0, err
	}
	refs = map[string]string{}
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		if len(f) != 2 || !git.ValidSHA(f[0]) {
			continue
		}
		if name, ok := strings.CutPrefix(f[1], bundleHeads); ok {
			refs[workorder.BranchRef(name)] = f[0]
		} else if number, ok := strings.CutPrefix(f[1], bundleKept+landedBy); ok {
			all, _ = strconv.Atoi(number) // another name says nothing
		} else if name, ok := strings.CutPrefix(f[1], bundleKept); ok {
			refs[workorder.TaskRefs(p.Order.TaskID)+name] = f[0]
		}
	}
	return refs, all, nil
}

// takeBundle makes what never reached the remote the start of this attempt: the
// branch where it is ahead of the remote's, and beside the branch what is not.
func (p *Publisher) takeBundle(ctx context.Context, v view, c *Claimed) error {
	refs, all, err := p.bundled(ctx)
	if err != nil {
		return err
	}
	branch := workorder.BranchRef(v.branch)
	for ref, sha := range refs {
		if ref != branch {
			if at := v.refs[ref]; at != "" && at != sha { // that is what an earlier save brought
				ref = workorder.KeptRef(p.Order.TaskID, "unpushed-"+sha[:12])
			}
			if v.refs[ref] == "" {
				c.keep(ref, sha)
			}
			continue
		}
		behind, err := p.Mirror().IsAncestor(ctx, c.Head, sha)
		if err != nil {
			return err
		}
		ahead, err := p.Mirror().IsAncestor(ctx, sha, c.Head)
		if err != nil {
			return err
		}
		switch {
		case ahead: // it has arrived since
		case behind:
			c.Head, c.Bundled, c.bundleAll = sha, true, all
		default:
			kept := workorder.KeptRef(p.Order.TaskID, "bundle-"+sha[:12])
			c.keep(kept, sha)
			p.Emit(workorder.Event{Type: workorder.EventWarning, Text: fmt.Sprintf("the commits that an earlier attempt could not push do not fit the branch %s, which somebody changed: they are kept as %s", v.branch, kept)})
		}
	}
	return nil
}

func (c *Claimed) keep(ref, sha string) {
	if c.kept == nil {
		c.kept = map[string]string{}
	}
	c.kept[ref] = sha
}
