package publish

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Bounds of single operations. The whole landing is bounded by the caller's context.
const (
	// pushTries and pushPause: a remote that restarts is back within seconds;
	// one that is really down must not eat the time the result needs.
	pushTries = 3
	pushPause = 700 * time.Millisecond
	// localTime bounds looking at the repositories, which takes milliseconds, or
	// seconds with a million commits. It is apart from the time for pushing, and
	// hurriedTime when there is little of that.
	localTime   = 30 * time.Second
	hurriedTime = 2 * time.Second
	// bundleTime is enough to pack some hundred megabytes; a landing that is
	// shorter than that has workorder.BundleGrace instead.
	bundleTime = 20 * time.Second
	// maxCommits bounds the list in the result, maxRefs what else is kept.
	maxCommits = 200
	maxRefs    = 50
)

// Landed says what a landing did.
type Landed struct {
	Head    string // commit that is, or should be, on the branch; equals base when there is nothing
	Commits []workorder.Commit
	Pushed  bool
	// Bundle is the file that holds the commits because they could not be pushed.
	Bundle   string
	Warnings []string
	// Err is why the work is not on the remote; Bundle may still hold it.
	Err error
}

// work is what there is to land.
type work struct {
	head string
	// more are commits outside of head, by the ref that keeps them.
	more []ref
}

type ref struct{ name, sha string }

// Land pushes the task's branch, and what the agent committed elsewhere to
// refs/sandbox-agent/<id>/heads/*. What cannot be pushed is written as a bundle to bundlePath. It may be called
// again: what is already there is not pushed twice.
func (p *Publisher) Land(ctx context.Context, base, bundlePath string) Landed {
	var l Landed
	outbox := git.Repo{Dir: p.outboxDir(), Bare: true}
	limit := localTime
	if d, ok := ctx.Deadline(); ok && time.Until(d) < localTime {
		limit = hurriedTime
	}
	clearing, cleared := context.WithTimeout(context.WithoutCancel(ctx), hurriedTime)
	p.clear(clearing)
	cleared()
	local, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	var w work
	err := p.reconnect(local)
	if err == nil {
		w, l.Warnings, err = p.find(local, base)
	}
	if err == nil {
		l.Head = w.head
		var cs []git.Commit
		cs, err = outbox.Log(local, base, w.head, maxCommits)
		for _, c := range cs {
			l.Commits = append(l.Commits, workorder.Commit(c))
		}
	}
	if err != nil {
		l.Err = fmt.Errorf("read the work tree's commits: %w", err)
		return l
	}
	if len(l.Commits) == 0 {
		l.Head = base // behind the base, too, there is nothing to push
	}
	refs := w.more
	if len(l.Commits) > 0 {
		l.Warnings = append(l.Warnings, p.gitlinks(local, outbox, base, w.head)...)
		refs = append([]ref{{workorder.BranchRef(p.Order.TargetBranch), w.head}}, refs...)
	}
	for i, r := range refs {
		err := p.push(ctx, outbox, r)
		switch {
		case err == nil:
			l.Pushed = l.Pushed || r.name == workorder.BranchRef(p.Order.TargetBranch)
			continue
		case r.name == workorder.BranchRef(p.Order.TargetBranch):
			l.Err = err
		default:
			l.Warnings = append(l.Warnings, err.Error())
		}
		if berr := p.bundle(ctx, outbox, base, refs[i:], bundlePath); berr != nil {
			l.Err = errors.Join(l.Err, berr)
		} else {
			l.Bundle = bundlePath
		}
		break
	}
	return l
}

// find looks for the agent's commits: on the task's branch, at HEAD, on branches of its own.
func (p *Publisher) find(ctx context.Context, base string) (work, []string, error) {
	t := p.tree()
	at, err := t.Head(ctx)
	if err != nil {
		return work{}, nil, err
	}
	branch, err := t.Resolve(ctx, workorder.BranchRef(p.Order.TargetBranch))
	if err != nil {
		return work{}, nil, err
	}
	var warnings []string
	w := work{head: branch}
	switch {
	case branch == "" && at == "":
		w.head = base
		warnings = append(warnings, "the task's branch and HEAD have no commit any more")
	case branch == "":
		w.head = at
		warnings = append(warnings, fmt.Sprintf("the agent removed the branch %s; its HEAD is pushed under that name", p.Order.TargetBranch))
	case at != "" && at != branch:
		// The agent may have switched branches. HEAD counts when it contains the
		// task's branch; where they have parted, the branch is what was asked for.
		inHead, err := t.IsAncestor(ctx, branch, at)
		if err != nil {
			return work{}, nil, err
		}
		if inHead {
			w.head = at
		}
	}
	others, err := p.others(ctx, base, w.head, at)
	if err != nil {
		return work{}, nil, err
	}
	if nothing := w.head == base; nothing && len(others) == 1 {
		warnings = append(warnings, fmt.Sprintf("the agent left %s as it was and committed to %s; that is pushed", p.Order.TargetBranch, others[0].name))
		w.head, others = others[0].sha, nil
	}
	if len(others) > maxRefs {
		warnings = append(warnings, fmt.Sprintf("the agent made more than %d branches and tags beside the task's; the first %d are kept", maxRefs, maxRefs))
		others = others[:maxRefs]
	}
	for _, o := range others {
		keep := "refs/sandbox-agent/" + p.Order.TaskID + "/heads/" + o.name
		warnings = append(warnings, fmt.Sprintf("the agent also committed to %s, which is not part of %s; it is kept as %s", o.name, p.Order.TargetBranch, keep))
		w.more = append(w.more, ref{keep, o.sha})
	}
	return w, warnings, nil
}

// others lists the local branches, and HEAD where it is on none, whose commits
// are neither part of the base nor of head.
func (p *Publisher) others(ctx context.Context, base, head, at string) ([]ref, error) {
	// Tags and the stash hold work, too.
	out, err := p.tree().Output(ctx, "for-each-ref", fmt.Sprintf("--count=%d", maxRefs+1), "--no-merged="+head,
		"--format=%(if)%(*objectname)%(then)%(*objectname)%(else)%(objectname)%(end) %(refname)", "refs/heads/", "refs/tags/", "refs/stash")
	if err != nil {
		return nil, err
	}
	remote, err := p.Mirror().Output(ctx, "for-each-ref", "--format=%(if)%(*objectname)%(then)%(*objectname)%(else)%(objectname)%(end) %(refname)")
	if err != nil {
		return nil, err
	}
	// What the clone brought is no work of the agent's.
	known := map[string]bool{}
	for line := range strings.Lines(string(remote)) {
		known[strings.TrimSpace(line)] = true
	}
	var refs []ref
	seen := map[string]bool{base: true, head: true}
	add := func(name, sha string) {
		if git.ValidSHA(sha) && workorder.ValidRefName(name) && !seen[sha] {
			seen[sha] = true
			refs = append(refs, ref{name, sha})
		}
	}
	for line := range strings.Lines(string(out)) {
		line = strings.TrimSpace(line)
		if sha, name, _ := strings.Cut(line, " "); !known[line] {
			add(strings.TrimPrefix(strings.TrimPrefix(name, "refs/heads/"), "refs/"), sha)
		}
	}
	if at != "" && at != head {
		if in, err := p.tree().IsAncestor(ctx, at, head); err != nil {
			return nil, err
		} else if !in {
			add("HEAD", at)
		}
	}
	return refs, nil
}

// gitlinks warns of repositories that the agent made inside the work tree: only
// the id of their commit is part of the branch, their files are not.
func (p *Publisher) gitlinks(ctx context.Context, outbox git.Repo, base, head string) (warnings []string) {
	out, err := outbox.Output(ctx, "diff-tree", "-r", "-z", "--diff-filter=A", "--no-renames", base, head)
	if err != nil {
		return nil // a warning less, the work is what counts
	}
	fields := strings.Split(string(out), "\x00")
	for i := 0; i+1 < len(fields); i += 2 {
		if strings.HasPrefix(fields[i], ":000000 160000 ") {
			warnings = append(warnings, fmt.Sprintf("%s is a repository of its own: the branch names its commit, its files are not part of the branch", fields[i+1]))
		}
	}
	return warnings
}

func (p *Publisher) push(ctx context.Context, outbox git.Repo, r ref) error {
	var err error
	for try := range pushTries {
		if try > 0 {
			select {
			case <-ctx.Done():
				return err
			case <-time.After(pushPause):
			}
		}
		err = p.authed(outbox).Run(ctx, "push", "--quiet", "--no-verify", "--", p.Order.CloneURL, r.sha+":"+r.name)
		if err == nil {
			p.Emit(workorder.Event{Type: workorder.EventPush, Name: r.name, Status: "ok", Text: r.sha})
			return nil
		}
		p.Emit(workorder.Event{Type: workorder.EventPush, Name: r.name, Status: "error", Text: err.Error()})
		if k := git.KindOf(err); k == git.KindAuth || k == git.KindRejected || ctx.Err() != nil {
			break // trying again cannot help
		}
	}
	name := strings.TrimPrefix(r.name, "refs/heads/")
	if git.KindOf(err) == git.KindRejected {
		return &git.Error{Verb: "push", Kind: git.KindRejected, Err: fmt.Errorf("the remote %s has a %s with other commits, or refuses it; it was left as it is", p.Order.Repo, name)}
	}
	return fmt.Errorf("push %s to %s: %w", name, p.Order.Repo, err)
}

// bundle keeps what could not be pushed as a file that `git fetch` reads.
func (p *Publisher) bundle(ctx context.Context, outbox git.Repo, base string, refs []ref, path string) error {
	limit := bundleTime
	if d, ok := ctx.Deadline(); ok && time.Until(d) < bundleTime {
		limit = workorder.BundleGrace
	}
	// The push may have used up the deadline; the bundle is local and short.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	args := []string{"bundle", "create", "--quiet", path}
	for _, r := range refs {
		if err := outbox.Run(ctx, "update-ref", r.name, r.sha); err != nil {
			return fmt.Errorf("keep the work as a bundle: %w", err)
		}
		args = append(args, r.name)
	}
	if err := outbox.Run(ctx, append(args, "^"+base)...); err != nil {
		return fmt.Errorf("keep the work as a bundle: %w", err)
	}
	return nil
}
