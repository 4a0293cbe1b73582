package publish

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
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
	// shorter than that has half of its time for files, the other half is an archive's.
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
	Bundle string
	// Checkpoint is on the remote still, because it holds what the branch does not.
	Checkpoint *workorder.Checkpoint
	Warnings   []string
	// Err is why the work is not on the remote; Bundle may still hold it.
	Err error
}

// work is what there is to land.
type work struct {
	head string
	at   string // HEAD; "": an unborn branch
	// more are commits outside of head, by the ref that keeps them.
	more []change
	// names are the agent's names for them, by ref; cut: there are more than we keep.
	names map[string]string
	cut   bool
}

// Land pushes the task's branch, what the agent committed elsewhere, and the state, in
// one push; the checkpoint goes where all of it is in the branch. end is asked how the
// attempt is to be recorded if that succeeds; nil: it is not over. What cannot be
// pushed is written as a bundle to bundlePath. It may be called again: what is
// already there is not pushed twice.
func (p *Publisher) Land(ctx context.Context, base, bundlePath string, end func(commits []workorder.Commit, head string) workorder.Attempt) (l Landed) {
	limit := localTime
	if d, ok := ctx.Deadline(); ok && time.Until(d) < localTime {
		limit = hurriedTime
	}
	clearing, cleared := context.WithTimeout(context.WithoutCancel(ctx), hurriedTime)
	p.unreserve() // the agent is gone and cannot take it
	p.clear(clearing)
	cleared()
	local, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	if p.load() == nil && p.led.Hold != "" {
		return p.landHeld(ctx, local, base, bundlePath, end)
	}
	w, err := p.gather(local, base, &l)
	if err != nil {
		p.saved(&l)
		l.Err = fmt.Errorf("read the work tree's commits: %w", err)
		return l
	}
	branch := workorder.BranchRef(p.branch())
	aside := append(p.kept(), w.more...)
	keep := aside // what is to be on the remote, or else in the bundle
	if len(l.Commits) > 0 {
		l.Warnings = append(l.Warnings, p.inside(local, base, w.head)...)
		keep = append([]change{{branch, w.head}}, keep...)
	}
	p.refused = nil // it may be another answer by now
	p.live(ctx)     // a push may take minutes, in rescue, too
	err = p.deliver(ctx, w, &l, end)
	l.Checkpoint = p.led.Checkpoint
	if err == nil && p.led.State.Lease == nil {
		p.fade(ctx)
	}
	there := map[string]string{}
	for ref, sha := range p.led.Refs {
		there[sha] = ref
	}
	aside = slices.DeleteFunc(aside, func(c change) bool {
		ref, arrived := there[c.sha]
		if name := w.names[c.ref]; arrived && name != "" {
			l.Warnings = append(l.Warnings, fmt.Sprintf("the agent also committed to %s, which is not part of %s; it is kept as %s", name, p.branch(), ref))
		}
		return arrived
	})
	landed := err == nil
	if landed {
		if keep = aside; len(keep) == 0 {
			return l
		}
		err = fmt.Errorf("%d of the agent's other branches, tags and stashes could not be kept on the remote", len(keep))
	}
	switch {
	case len(keep) == 0:
		// No work is at stake, and the lease runs out by itself.
		l.Warnings = append(l.Warnings, "what the remote has of the task is not up to date: "+err.Error())
		return l
	case landed || len(l.Commits) == 0:
		l.Warnings = append(l.Warnings, err.Error())
	default:
		l.Err = err
	}
	if berr := p.bundle(ctx, p.outbox(), base, keep, bundlePath); berr != nil {
		l.Err = errors.Join(l.Err, berr)
	} else {
		l.Bundle = bundlePath
		for _, c := range aside {
			if name := w.names[c.ref]; name != "" {
				l.Warnings = append(l.Warnings, fmt.Sprintf("the agent also committed to %s, which is not part of %s; it is kept in the bundle", name, p.branch()))
			}
		}
	}
	return l
}

// saved makes the landing of a work tree that cannot be read any more, because the agent removed or broke its repository, what the remote has.
func (p *Publisher) saved(l *Landed) {
	if p.load() != nil {
		return
	}
	l.Checkpoint = p.led.Checkpoint
	if l.Head = p.led.Refs[workorder.BranchRef(p.branch())]; l.Head == "" && l.Checkpoint == nil {
		return
	}
	l.Pushed = l.Head != ""
	l.Warnings = append(l.Warnings, "the agent removed or broke the repository of its work tree: the remote has what was saved before that, and `continue` goes on from there")
}

// arrived is a head that the remote has; "" for one that it has not.
func (p *Publisher) arrived(sha string) string {
	if sha == p.led.Refs[workorder.BranchRef(p.branch())] || sha == p.led.State.BaseSHA {
		return sha
	}
	return ""
}

// Hurry says that the box is being stopped, and how long keeping files may take then. It may be called at any time.
func (p *Publisher) Hurry(files time.Duration) { p.files.Store(int64(files)) }

// hurried reports whether a landing has less than the time that something takes at most.
func (p *Publisher) hurried(ctx context.Context, most time.Duration) bool {
	d, ok := ctx.Deadline()
	return p.files.Load() > 0 || ok && time.Until(d) < most
}

// filesTime is what a landing in a hurry has for bundle and archive.
func (p *Publisher) filesTime() time.Duration {
	return cmp.Or(time.Duration(p.files.Load()), workorder.BundleGrace)
}

// gather looks at the work tree's commits.
func (p *Publisher) gather(ctx context.Context, base string, l *Landed) (work, error) {
	if err := p.load(); err != nil {
		return work{}, err
	}
	if err := p.reconnect(ctx); err != nil {
		return work{}, err
	}
	w, warnings, err := p.find(ctx, base)
	if err != nil {
		return work{}, err
	}
	l.Warnings = warnings
	cs, err := p.outbox().Log(ctx, base, w.head, maxCommits)
	if err != nil {
		return work{}, err
	}
	for _, c := range cs {
		l.Commits = append(l.Commits, workorder.Commit(c))
	}
	if l.Head = w.head; len(l.Commits) == 0 {
		l.Head, w.head = base, base // behind the base, too, there is nothing to push
	}
	return w, nil
}

// edit is what the landing makes of the state; nil: the attempt goes on.
func (p *Publisher) edit(l *Landed, end func([]workorder.Commit, string) workorder.Attempt) func(*workorder.State) {
	if end == nil {
		return nil
	}
	a := end(l.Commits, l.Head)
	return func(s *workorder.State) { p.ended(s, a) }
}

// deliver pushes what there is. Where the branch is refused, its commits are kept
// beside it, and how the attempt ended is left to Release.
func (p *Publisher) deliver(ctx context.Context, w work, l *Landed, end func([]workorder.Commit, string) workorder.Attempt) error {
	branch := workorder.BranchRef(p.branch())
	if (p.led.Pending != nil || p.led.Foreign != "") && !p.led.Lost {
		if err := p.reconcile(ctx); err != nil {
			return fmt.Errorf("push %s to %s: %w", p.branch(), p.Order.Repo, err)
		}
	}
	cs := p.kept()
	for _, c := range w.more {
		cs = p.aside(ctx, cs, c)
	}
	cs, err := p.move(ctx, cs, w.head)
	if err != nil {
		return err
	}
	foreign := p.led.Foreign != ""
	if !foreign {
		all := cs
		if p.led.Committed && !w.cut {
			// Nothing of it is elsewhere than in what is pushed here.
			all = append(slices.Clone(cs), change{workorder.CheckpointRef(p.Order.TaskID), ""})
		}
		all = p.superfluous(all)
		err = p.tries(ctx, all, p.edit(l, end))
		if err == nil {
			l.Pushed = len(l.Commits) > 0
			return nil
		}
		var refused *refusedError
		if !errors.As(err, &refused) {
			return fmt.Errorf("push %s to %s: %w", p.branch(), p.Order.Repo, err)
		}
		cs = slices.DeleteFunc(cs, func(c change) bool { _, not := refused.why[c.ref]; return not })
		if _, not := refused.why[branch]; !not {
			// Something beside the branch: the branch lands all the same.
			if again := p.tries(ctx, cs, p.edit(l, end)); again != nil {
				return errors.Join(err, again)
			}
			l.Pushed = len(l.Commits) > 0
			l.Warnings = append(l.Warnings, err.Error())
			return nil
		}
	}
	err = &git.Error{Verb: "push", Kind: git.KindRejected, Err: errors.Join(
		fmt.Errorf("the remote %s has a %s with other commits, or refuses it; it was left as it is", p.Order.Repo, p.branch()), err)}
	beside := workorder.KeptRef(p.Order.TaskID, p.branch())
	cs = p.aside(ctx, slices.DeleteFunc(cs, func(c change) bool { return c.ref == branch }), change{beside, w.head})
	if kerr := p.tries(ctx, cs, nil); kerr != nil {
		return errors.Join(err, kerr)
	}
	l.Warnings = append(l.Warnings, fmt.Sprintf("the commits of %s are kept on the remote as %s", p.branch(), beside))
	return err
}

// tries pushes; a remote that is away for a moment is asked again.
func (p *Publisher) tries(ctx context.Context, cs []change, end func(*workorder.State)) error {
	var err error
	for try := range pushTries {
		if try > 0 {
			select {
			case <-ctx.Done():
				return err
			case <-time.After(pushPause):
			}
		}
		start := time.Now()
		if err = p.pushAll(ctx, cs, nil, end); err == nil {
			p.said(cs, start)
			return nil
		}
		p.Emit(workorder.Event{Type: workorder.EventPush, Name: workorder.BranchRef(p.branch()), Status: "error", Text: err.Error()})
		var held *HeldError
		var refused *refusedError
		if errors.As(err, &refused) && refused.why[workorder.StateRef(p.Order.TaskID)] != "" && p.led.Foreign == "" {
			continue // what we believed of the remote was old, and is not any more
		}
		if k := git.KindOf(err); k == git.KindAuth || k == git.KindRejected || errors.As(err, &held) || ctx.Err() != nil {
			return err // trying again cannot help
		}
	}
	return err
}

// Release records on the remote how the attempt ended, where Land has not or it turned out different, and
// gives the lease back. Where this box has no lease, or nothing is different, it does
// nothing but see to it that nobody is told any more that we live.
func (p *Publisher) Release(ctx context.Context, end workorder.Attempt) error {
	defer p.rest()
	if err := p.load(); errors.Is(err, errUnclaimed) {
		return nil
	} else if err != nil {
		return err
	}
	if _, lost := p.pulse.loser(); lost {
		return nil
	}
	end.HeadSHA = p.arrived(end.HeadSHA) // else the next attempt takes the branch for one that was set back
	next := copyState(p.led.State)
	p.ended(next, end)
	if p.led.Pending == nil {
		was, err := p.led.State.Encode()
		if err != nil {
			return err
		}
		if now, err := next.Encode(); err != nil || bytes.Equal(was, now) {
			return err
		}
	}
	err := p.push(ctx, nil, nil, func(s *workorder.State) { p.ended(s, end) })
	if _, held := errors.AsType[*HeldError](err); held {
		return nil
	}
	if err != nil {
		return fmt.Errorf("give the lease of task %s back: %w", p.Order.TaskID, err)
	}
	p.fade(ctx)
	p.Emit(workorder.Event{Type: workorder.EventLease, Status: "released", Text: string(end.Status)})
	return nil
}

// tip is what the task's branch is to be, from HEAD and the branch.
type tip struct {
	head     string
	at       string // HEAD
	warnings []string
}

func (p *Publisher) tip(ctx context.Context, base string) (tip, error) {
	if m := p.led.Moved; m != nil {
		return tip{head: m.Head, at: m.Head}, nil // what was checked, whatever has been done to the work tree since
	}
	t := p.tree()
	at, err := t.Head(ctx)
	if err != nil {
		return tip{}, err
	}
	branch, err := t.Resolve(ctx, workorder.BranchRef(p.branch()))
	if err != nil {
		return tip{}, err
	}
	w := tip{head: branch, at: at}
	switch {
	case branch == "" && at == "":
		w.head = base
		w.warnings = append(w.warnings, "the task's branch and HEAD have no commit any more")
	case branch == "":
		w.head = at
		w.warnings = append(w.warnings, fmt.Sprintf("the agent removed the branch %s; its HEAD is pushed under that name", p.branch()))
	case at != "" && at != branch:
		// The agent may have switched branches. HEAD counts when it contains the
		// task's branch; where they have parted, the branch is what was asked for.
		inHead, err := t.IsAncestor(ctx, branch, at)
		if err != nil {
			return tip{}, err
		}
		if inHead {
			w.head = at
		}
	}
	return w, nil
}

// find looks for the agent's commits: on the task's branch, at HEAD, on branches of its own.
func (p *Publisher) find(ctx context.Context, base string) (work, []string, error) {
	t, err := p.tip(ctx, base)
	if err != nil {
		return work{}, nil, err
	}
	w, warnings := work{head: t.head, at: t.at}, t.warnings
	others, err := p.others(ctx, base, w.head, w.at)
	if err != nil {
		return work{}, nil, err
	}
	if nothing := w.head == base; nothing && len(others) == 1 {
		warnings = append(warnings, fmt.Sprintf("the agent left %s as it was and committed to %s; that is pushed", p.branch(), others[0].ref))
		w.head, others = others[0].sha, nil
	}
	if len(others) > maxRefs {
		warnings = append(warnings, fmt.Sprintf("the agent made %d branches, tags and stashes beside the task's branch; %d of them are kept, and the checkpoint stays", len(others), maxRefs))
		others, w.cut = others[:maxRefs], true
	}
	w.names = map[string]string{}
	for _, o := range others {
		keep := workorder.KeptRef(p.Order.TaskID, o.ref)
		w.names[keep] = o.ref
		w.more = append(w.more, change{keep, o.sha})
	}
	return w, warnings, nil
}

// others lists the local branches, and HEAD where it is on none, whose commits
// are neither part of the base nor of head.
func (p *Publisher) others(ctx context.Context, base, head, at string) ([]change, error) {
	// Tags and the stash hold work, too.
	out, err := p.tree().Output(ctx, "for-each-ref", "--no-merged="+head,
		"--format=%(if)%(*objectname)%(then)%(*objectname)%(else)%(objectname)%(end) %(refname)", "refs/heads/", "refs/tags/", "refs/stash")
	if err != nil {
		return nil, err
	}
	remote, err := p.Mirror().Output(ctx, "for-each-ref", "--format=%(if)%(*objectname)%(then)%(*objectname)%(else)%(objectname)%(end) %(refname)", "refs/heads/", "refs/tags/")
	if err != nil {
		return nil, err
	}
	// What the clone brought is no work of the agent's.
	known := map[string]bool{}
	for line := range strings.Lines(string(remote)) {
		known[strings.TrimSpace(line)] = true
	}
	var refs []change
	seen := map[string]bool{base: true, head: true}
	add := func(name, sha string) {
		if git.ValidSHA(sha) && workorder.ValidRefName(name) && !seen[sha] {
			seen[sha] = true
			refs = append(refs, change{name, sha})
		}
	}
	if at != "" && at != head { // first: it counts most where there are too many
		if in, err := p.tree().IsAncestor(ctx, at, head); err != nil {
			return nil, err
		} else if !in {
			add("HEAD", at)
		}
	}
	stash := false
	for line := range strings.Lines(string(out)) {
		line = strings.TrimSpace(line)
		if sha, name, _ := strings.Cut(line, " "); !known[line] {
			add(ownName(name), sha)
			stash = stash || name == "refs/stash"
		}
	}
	if !stash {
		return refs, nil
	}
	// Without its log the top is all there is.
	entries, _ := p.tree().Output(ctx, "rev-list", "--walk-reflogs", "--max-count="+strconv.Itoa(maxRefs), "refs/stash", "--")
	for line := range strings.Lines(string(entries)) {
		if sha := strings.TrimSpace(line); git.ValidSHA(sha) {
			add("stash-"+sha[:12], sha)
		}
	}
	return refs, nil
}

// ownName is the name under which a ref of the agent's is kept. A branch that is
// called like something else that is kept gets a prefix.
func ownName(ref string) string {
	branch, ok := strings.CutPrefix(ref, "refs/heads/")
	if !ok {
		return strings.TrimPrefix(ref, "refs/") // tags/x, stash
	}
	for _, prefix := range []string{"tags/", "branch/", "stash-", "replaced-", "bundle-", "unpushed-", "checkpoint-", "also-", "before-rebase-", "rebased-"} {
		if strings.HasPrefix(branch, prefix) {
			return "branch/" + branch
		}
	}
	if branch == "stash" || branch == "HEAD" {
		return "branch/" + branch
	}
	return branch
}

// bundle keeps what could not be pushed as a file that `git fetch` reads.
func (p *Publisher) bundle(ctx context.Context, outbox git.Repo, base string, refs []change, path string) error {
	limit := bundleTime
	if p.hurried(ctx, bundleTime) {
		limit = p.filesTime() / 2
	}
	// The push may have used up the deadline; the bundle is local and short.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	args := []string{"bundle", "create", "--quiet", path}
	if p.led.Committed && len(refs) > 0 && refs[0].ref == workorder.BranchRef(p.branch()) {
		refs = append(slices.Clone(refs), change{workorder.TaskRefs(p.Order.TaskID) + landedBy + strconv.Itoa(p.number()), refs[0].sha})
	}
	for _, r := range refs {
		if err := outbox.Run(ctx, "update-ref", r.ref, r.sha); err != nil {
			return fmt.Errorf("keep the work as a bundle: %w", err)
		}
		args = append(args, r.ref)
	}
	if err := outbox.Run(ctx, append(args, "^"+base)...); err != nil {
		return fmt.Errorf("keep the work as a bundle: %w", err)
	}
	return nil
}
