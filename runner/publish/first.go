package publish

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// A stop may come in the moment after a commit that is too large to be pushed in time. What is small goes first then: the small changes
// since the remote's branch, committed or not, as a commit of their own on top of it. Where everything lands after all it is removed again.

const (
	// firstFile and firstBytes bound what goes first: it has to be gone within a second on a line of 100 Mbit/s.
	firstFile  = 1 << 20
	firstBytes = 8 << 20
	// firstTime bounds it as a part of the least time that a landing has.
	firstTime = workorder.LandGrace / 2
	// firstIndex is an index of ours, of the branch on the remote with the small changes.
	firstIndex = "first"
)

// firstRef is where it lies; each attempt has one of its own.
func (p *Publisher) firstRef() string {
	return workorder.KeptRef(p.Order.TaskID, "first-"+strconv.Itoa(p.number()))
}

// smallFirst pushes the small changes when the box is being stopped and there are large ones too. What goes wrong costs nothing but the time: all of
// it is in what follows.
func (p *Publisher) smallFirst(ctx context.Context) {
	if p.files.Load() == 0 || p.firstDone {
		return
	}
	p.firstDone = true
	ctx, cancel := context.WithTimeout(ctx, firstTime)
	defer cancel()
	start := time.Now()
	commit, err := p.firstCommit(ctx)
	if err == nil && commit != "" {
		err = p.pushRest(ctx, []change{{p.firstRef(), commit}}, nil, start)
	}
	if err != nil {
		p.Emit(workorder.Event{Type: workorder.EventPush, Name: p.firstRef(), Status: "error", Text: err.Error()})
	}
}

// firstCommit makes the commit; "": nothing is large, or nothing small.
func (p *Publisher) firstCommit(ctx context.Context) (string, error) {
	if err := p.prepareSide(); err != nil {
		return "", err
	}
	base := cmp.Or(p.led.Refs[workorder.BranchRef(p.branch())], p.led.State.BaseSHA)
	small, drop, large, err := p.changedSince(ctx, base)
	if err != nil || !large || len(small)+len(drop) == 0 {
		return "", err
	}
	t := p.tree()
	t.Env = append(t.Env, "GIT_INDEX_FILE="+p.sidePath(firstIndex))
	if err := t.Run(ctx, "read-tree", base); err != nil {
		return "", err
	}
	a, err := p.adder(ctx, t, func() { _ = p.prepareSide() })
	if err != nil {
		return "", err
	}
	if left := a.all(ctx, small); left != nil && len(left.Paths) == len(small) {
		return "", left
	}
	if len(drop) > 0 {
		t.Stdin = strings.Join(drop, "\x00") + "\x00"
		if err := t.Run(ctx, "update-index", "--force-remove", "-z", "--stdin"); err != nil {
			return "", err
		}
		t.Stdin = ""
	}
	if setup, err := p.setupEntries(ctx, t, base); err != nil {
		return "", err
	} else if setup != "" {
		t.Stdin = setup
		if err := t.Run(ctx, "update-index", "--replace", "-z", "--index-info"); err != nil {
			return "", err
		}
		t.Stdin = ""
	}
	tree, err := t.Output(ctx, "write-tree")
	if err != nil {
		return "", err
	}
	out, err := p.outbox().Output(ctx, "commit-tree", "-p", base, "-m", fmt.Sprintf("Small changes of task %s, saved before the large ones\n\n%s: %d", p.Order.TaskID, madeBy, p.number()), strings.TrimSpace(string(tree)))
	return strings.TrimSpace(string(out)), err
}

// changedSince is what the work tree has otherwise than a commit: what the agent committed since, and what it did not.
func (p *Publisher) changedSince(ctx context.Context, base string) (small []file, drop []string, large bool, err error) {
	raw, err := p.unfiltered(ctx, p.tree())
	if err != nil {
		return nil, nil, false, err
	}
	f, err := p.survey(ctx, raw)
	if err != nil {
		return nil, nil, false, err
	}
	files, seen := slices.Clone(f.files), map[string]bool{}
	for _, one := range files {
		seen[one.path] = true
	}
	drop = f.drop
	if head, herr := p.tree().Head(ctx); herr == nil && git.ValidSHA(head) && head != base {
		err = p.tree().Each(ctx, func(path string) {
			if seen[path] {
				return
			}
			seen[path] = true
			st, err := os.Lstat(filepath.Join(p.Workspace, path))
			switch {
			case err != nil:
				drop = append(drop, path)
			case st.Mode().IsRegular() || st.Mode()&os.ModeSymlink != 0:
				files = append(files, file{path, st.Size()})
			}
		}, "diff-tree", "-r", "-z", "--no-renames", "--name-only", base, head)
	}
	slices.SortFunc(files, func(a, b file) int { return cmp.Compare(a.size, b.size) })
	left := int64(firstBytes)
	for _, one := range files {
		if left -= one.size; one.size > firstFile || left < 0 {
			large = true
			continue
		}
		small = append(small, one)
	}
	return small, drop, large, err
}
