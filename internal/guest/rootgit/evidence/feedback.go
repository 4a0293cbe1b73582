package evidence

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/remote"
	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Feedback is the reviewers' feedback on the task.
type Feedback struct {
	*remote.Remote

	// Later lists the numbers of the items that did not fit into this attempt: they stay.
	Later []int
}

// AddTo puts the order's feedback into a state until an attempt has answered it. head is the commit that work starts from.
func (f *Feedback) AddTo(s *workorder.State, head string) {
	if f.Repos.Order.Review == nil {
		return
	}
	r := *f.Repos.Order.Review
	r.Since = head
	r.Items = slices.Clone(r.Items)
	for i := range r.Items {
		r.Items[i].Notes = slices.Clone(r.Items[i].Notes)
		for k := range r.Items[i].Notes {
			n := &r.Items[i].Notes[k]
			n.Text = f.Repos.Mask(n.Text)
		}
	}
	if s.Review != nil {
		f.takeOver(&r, s.Review)
	}
	s.Review = &r
}

// maxPending bounds the texts of adopted items, in bytes: the space in a prompt.
const maxPending = 1 << 20

// takeOver adds the items that an earlier attempt did not answer. If the order read the forge, its unanswered items are
// in the order; then only items from a file are added.
func (f *Feedback) takeOver(r, pending *workorder.Review) {
	asked := r.PR != 0
	if !asked {
		r.PR, r.URL, r.Until = pending.PR, pending.URL, pending.Until
	}
	room, left := maxPending, 0
	for _, it := range pending.Items {
		fromFile := it.Source == workorder.ReviewFromFile
		if asked && !fromFile || slices.ContainsFunc(r.Items, func(has workorder.ReviewItem) bool { return sameItem(&has, &it) }) {
			continue
		}
		size := 0
		for _, n := range it.Notes {
			size += len(n.Text)
		}
		if len(r.Items) == workorder.MaxReviewItems {
			// An item of the forge can be read again.
			if i := lastOfForge(r.Items); fromFile && i >= 0 {
				r.Items, r.Until = slices.Delete(r.Items, i, i+1), time.Time{}
			}
		}
		switch {
		case size <= room && len(r.Items) < workorder.MaxReviewItems:
			room -= size
			r.Items = append(r.Items, it)
		case fromFile:
			left++
		default:
			r.Until = time.Time{}
		}
	}
	for i := range r.Items {
		r.Items[i].Number = i + 1
	}
	if left > 0 {
		f.Repos.Warn(
			"%d entries of an earlier file of feedback were never answered, and do not fit next to the new ones: pass them again", left,
		)
	}
}

func lastOfForge(items []workorder.ReviewItem) int {
	for i := range slices.Backward(items) {
		if items[i].Source != workorder.ReviewFromFile {
			return i
		}
	}
	return -1
}

func sameItem(a, b *workorder.ReviewItem) bool {
	if a.Source != b.Source || a.Thread != b.Thread || a.URL != b.URL {
		return false
	}
	return a.Thread != "" || a.URL != "" || slices.Equal(a.Notes, b.Notes)
}

// RemoveAnswered removes answered feedback from a state. Items that did not fit stay for the next attempt, which starts
// at head.
func (f *Feedback) RemoveAnswered(s *workorder.State, head string) {
	if s.Review == nil {
		return
	}
	rest := *s.Review
	rest.Since, rest.Until, rest.Items = head, time.Time{}, nil
	for _, it := range s.Review.Items {
		if slices.Contains(f.Later, it.Number) {
			it.Number = len(rest.Items) + 1
			rest.Items = append(rest.Items, it)
		}
	}
	if len(rest.Items) > 0 {
		s.Review = &rest
		return
	}
	if s.Review.Until.After(s.ReviewedUntil) {
		s.ReviewedUntil = s.Review.Until
	}
	s.Review = nil
}

const maxAddressing = 500

var (
	addresses = lazyregexp.New(`(?i)^[ \t]*addresses:[ \t]*(.+?)[ \t]*$`)
	// numberRange is a number, or two with all numbers between them.
	numberRange = lazyregexp.New(`\b([0-9]{1,3})(?:[ \t]*(?:-|–|to)[ \t]*#?([0-9]{1,3}))?\b`)
	// reverts matches the text that git revert writes.
	reverts = lazyregexp.New(`(?m)^This reverts commit ([0-9a-f]{40,64})\b`)
)

// Addressed lists the commits from since to head whose message names feedback items ("Addresses: 1, 3"), oldest first,
// by item. It does not count a commit that changes nothing, that the base branch has, that is older than the feedback,
// or that a later commit reverts.
func (f *Feedback) Addressed(ctx context.Context, since, head string, items int) (map[int][]string, error) {
	if !f.Ledger.Claimed() || !git.ValidSHA(head) {
		return nil, nil
	}
	if !git.ValidSHA(since) || f.Repos.Outbox().Run(ctx, "cat-file", "-e", since+"^{commit}") != nil {
		since = f.Ledger.Start // the branch was rewritten since: only this attempt's first commit is known to be older
	}
	if !git.ValidSHA(since) {
		return nil, nil
	}
	outside, err := f.outside(ctx)
	if err != nil {
		return nil, err
	}
	before, err := f.claims(ctx, append([]string{since}, outside...)...)
	if err != nil {
		return nil, err
	}
	old := map[string]bool{}
	for _, c := range before {
		old[c.what] = true
	}
	// git leaves out commits whose change is in a commit that since has and head has not.
	all, err := f.claims(ctx, append([]string{"--cherry-pick", "--right-only", since + "..." + head}, outside...)...)
	if err != nil {
		return nil, err
	}
	undone := map[string]bool{}
	for _, c := range slices.Backward(all) {
		if !undone[c.sha] {
			for _, m := range reverts.FindAllStringSubmatch(c.what, -1) {
				undone[m[1]] = true
			}
		}
	}
	found := map[int][]string{}
	for _, c := range all {
		if old[c.what] || undone[c.sha] {
			continue
		}
		for _, n := range addressedBy(c.what, items) {
			found[n] = append(found[n], c.sha)
		}
	}
	return found, nil
}

// outside returns git log arguments that exclude commits that are not the task's work.
func (f *Feedback) outside(ctx context.Context) ([]string, error) {
	s := f.Ledger.State
	var list []string
	if git.ValidSHA(s.BaseSHA) && f.Repos.Outbox().Run(ctx, "cat-file", "-e", s.BaseSHA+"^{commit}") == nil {
		list = append(list, "^"+s.BaseSHA)
	}
	if s.BaseBranch == "" {
		return list, nil
	}
	tip, err := f.Repos.Mirror().Resolve(ctx, workorder.BranchRef(s.BaseBranch))
	if err == nil && tip != "" {
		list = append(list, "^"+tip)
	}
	return list, err
}

// claim is a commit that names items it addresses, or commits it reverts. what is its author, time and message, which a rebase keeps.
type claim struct{ sha, what string }

// claims lists them, oldest first.
func (f *Feedback) claims(ctx context.Context, revisions ...string) (list []claim, err error) {
	args := append([]string{
		"log", "-z", "--reverse", "--full-history", "-i", "--extended-regexp", "--grep=^[ \t]*addresses:",
		"--grep=^This reverts commit [0-9a-f]{40}", "--format=%H%n%an <%ae> %at%n%B", "--max-count=" + strconv.Itoa(maxAddressing),
	}, revisions...)
	out, err := f.Repos.Outbox().Output(ctx, append(args, "--", ":/")...)
	if err != nil {
		return nil, fmt.Errorf("read which items the commits address: %w", err)
	}
	for message := range strings.SplitSeq(string(out), "\x00") {
		if sha, what, _ := strings.Cut(strings.TrimPrefix(message, "\n"), "\n"); git.ValidSHA(sha) {
			list = append(list, claim{sha, what})
		}
	}
	return list, nil
}

// addressedBy returns the existing item numbers that a commit's message names.
func addressedBy(message string, items int) (numbers []int) {
	for line := range strings.Lines(message) {
		m := addresses.FindStringSubmatch(strings.TrimRight(line, "\r\n"))
		if m == nil {
			continue
		}
		for _, part := range numberRange.FindAllStringSubmatch(m[1], -1) {
			from, _ := strconv.Atoi(part[1])
			to := from
			if part[2] != "" {
				to, _ = strconv.Atoi(part[2])
			}
			for n := max(from, 1); n <= min(to, items); n++ {
				if !slices.Contains(numbers, n) {
					numbers = append(numbers, n)
				}
			}
		}
	}
	slices.Sort(numbers)
	return numbers
}
