package remote

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// AgentRefs reads the agent's refs.
type AgentRefs struct {
	*Remote
}

// MaxRefs bounds the refs that are kept next to the branch.
const MaxRefs = 50

// Commits are the commits to land.
type Commits struct {
	Head string
	at   string // HEAD; empty for an unborn branch
	// More are commits outside of Head, by the ref that keeps them.
	More []Change
	// Names are the agent's names for them, by ref; Cut means that there are more than MaxRefs.
	Names map[string]string
	Cut   bool
}

// NextHead is the next head of the task's branch, derived from HEAD and the branch.
type NextHead struct {
	Head     string
	At       string // HEAD
	warnings []string
}

// NextHead decides the next head of the task's branch. base is the task's first commit.
func (h *AgentRefs) NextHead(ctx context.Context, base string) (NextHead, error) {
	if m := h.Ledger.Moved; m != nil {
		return NextHead{Head: m.Head, At: m.Head}, nil // the checked commit, whatever happened to the work tree since
	}
	t := h.Repos.Tree()
	at, err := t.Head(ctx)
	if err != nil {
		return NextHead{}, err
	}
	branch, err := t.Resolve(ctx, workorder.BranchRef(h.Ledger.Branch()))
	if err != nil {
		return NextHead{}, err
	}
	w := NextHead{Head: branch, At: at}
	switch {
	case branch == "" && at == "":
		w.Head = base
		w.warnings = append(w.warnings, "the task's branch and HEAD no longer have a commit")
	case branch == "":
		w.Head = at
		w.warnings = append(w.warnings, fmt.Sprintf("the agent removed the branch %s; its HEAD is pushed under that name", h.Ledger.Branch()))
	case at != "" && at != branch:
		// The agent may have switched branches. HEAD counts if it contains the task's branch; otherwise the branch counts.
		inHead, err := t.IsAncestor(ctx, branch, at)
		if err != nil {
			return NextHead{}, err
		}
		if inHead {
			w.Head = at
		}
	}
	return w, nil
}

// Find looks for the agent's commits: on the task's branch, at HEAD, and on other branches.
func (h *AgentRefs) Find(ctx context.Context, base string) (Commits, []string, error) {
	t, err := h.NextHead(ctx, base)
	if err != nil {
		return Commits{}, nil, err
	}
	w, warnings := Commits{Head: t.Head, at: t.At}, t.warnings
	others, err := h.OtherBranches(ctx, base, w.Head, w.at)
	if err != nil {
		return Commits{}, nil, err
	}
	if nothing := w.Head == base; nothing && len(others) == 1 {
		warnings = append(
			warnings, fmt.Sprintf("the agent left %s unchanged and committed to %s, which is pushed", h.Ledger.Branch(), others[0].Ref),
		)
		w.Head, others = others[0].SHA, nil
	}
	if len(others) > MaxRefs {
		warnings = append(warnings, fmt.Sprintf(
			"the agent created %d branches, tags and stashes in addition to the task's branch; %d of them are kept, and the checkpoint stays",
			len(others), MaxRefs,
		))
		others, w.Cut = others[:MaxRefs], true
	}
	w.Names = map[string]string{}
	for _, o := range others {
		keep := workorder.KeptRef(h.Repos.Order.TaskID, o.Ref)
		w.Names[keep] = o.Ref
		w.More = append(w.More, Change{Ref: keep, SHA: o.SHA, Name: o.Ref})
	}
	return w, warnings, nil
}

// OtherBranches lists local branches and a detached HEAD with commits that neither the base nor head has.
func (h *AgentRefs) OtherBranches(ctx context.Context, base, head, at string) ([]Change, error) {
	// Tags and the stash may contain work, too.
	out, err := h.Repos.Tree().Output(ctx, "for-each-ref", "--no-merged="+head,
		"--format=%(if)%(*objectname)%(then)%(*objectname)%(else)%(objectname)%(end) %(refname)", "refs/heads/", "refs/tags/", "refs/stash")
	if err != nil {
		return nil, err
	}
	if len(out) == 0 && (at == "" || at == head) {
		return nil, nil
	}
	cloned, err := h.Repos.Mirror().Output(
		ctx, "for-each-ref", "--format=%(if)%(*objectname)%(then)%(*objectname)%(else)%(objectname)%(end) %(refname)", "refs/heads/",
		"refs/tags/",
	)
	if err != nil {
		return nil, err
	}
	// Refs that the clone brought are not the agent's work.
	known := map[string]bool{}
	for line := range strings.Lines(string(cloned)) {
		known[strings.TrimSpace(line)] = true
	}
	var refs []Change
	seen := map[string]bool{base: true, head: true}
	add := func(name, sha string) {
		if git.ValidSHA(sha) && workorder.ValidRefName(name) && !seen[sha] {
			seen[sha] = true
			refs = append(refs, Change{Ref: name, SHA: sha})
		}
	}
	if at != "" && at != head { // first, because it matters most if there are too many
		if in, err := h.Repos.Tree().IsAncestor(ctx, at, head); err != nil {
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
	// Without its log only the newest stash is known.
	entries, _ := h.Repos.Tree().Output(ctx, "rev-list", "--walk-reflogs", "--max-count="+strconv.Itoa(MaxRefs), "refs/stash", "--")
	for line := range strings.Lines(string(entries)) {
		if sha := strings.TrimSpace(line); git.ValidSHA(sha) {
			add("stash-"+sha[:12], sha)
		}
	}
	return refs, nil
}

// ownName returns the name under which a ref of the agent is kept.
func ownName(ref string) string {
	branch, ok := strings.CutPrefix(ref, "refs/heads/")
	if !ok {
		return strings.TrimPrefix(ref, "refs/") // tags/x, stash
	}
	for _, prefix := range []string{
		"tags/", "branch/", "stash-", "replaced-", "bundle-", "unpushed-", "checkpoint-", "also-", "before-rebase-", "rebased-",
	} {
		if strings.HasPrefix(branch, prefix) {
			return "branch/" + branch
		}
	}
	if branch == "stash" || branch == "HEAD" {
		return "branch/" + branch
	}
	return branch
}
