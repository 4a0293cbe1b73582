package publish

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// takeOn puts the order's feedback into a state, where it stays until an attempt has answered it. head is the
// commit that the work on it begins with.
func (p *Publisher) takeOn(s *workorder.State, head string) {
	if p.Order.Review == nil {
		return
	}
	r := *p.Order.Review
	r.Since = head
	r.Items = slices.Clone(r.Items)
	for i := range r.Items {
		r.Items[i].Notes = slices.Clone(r.Items[i].Notes)
		for k := range r.Items[i].Notes {
			n := &r.Items[i].Notes[k]
			n.Text = p.clean(n.Text)
		}
	}
	s.Review = &r
}

// answered takes feedback out of a state that was answered.
func answered(s *workorder.State) {
	if s.Review == nil {
		return
	}
	if s.Review.Until.After(s.ReviewedUntil) {
		s.ReviewedUntil = s.Review.Until
	}
	s.Review = nil
}

// maxAddressing bounds the commits that are looked at.
const maxAddressing = 500

var (
	addresses = regexp.MustCompile(`(?i)^[ \t]*addresses:[ \t]*(.+?)[ \t]*$`)
	// numberRange is a number, or two with all between.
	numberRange = regexp.MustCompile(`\b([0-9]{1,3})(?:[ \t]*(?:-|–|to)[ \t]*#?([0-9]{1,3}))?\b`)
)

// Addressed lists the commits from since to head that say by a line "Addresses: 1, 3" which items of feedback
// they address, oldest first, by item. One that changes nothing addresses nothing. It reads our own
// repository, where no setting of the agent's counts.
func (p *Publisher) Addressed(ctx context.Context, since, head string, items int) (map[int][]string, error) {
	r := p.outbox()
	if !git.ValidSHA(since) || r.Run(ctx, "cat-file", "-e", since+"^{commit}") != nil {
		since = p.baseSHA() // the branch was rewritten since
	}
	if !git.ValidSHA(head) || since == "" {
		return nil, nil
	}
	out, err := r.Output(ctx, "log", "-z", "--reverse", "--full-history", "-i", "--extended-regexp", "--grep=^[ \t]*addresses:",
		"--format=%H%n%B", "--max-count="+strconv.Itoa(maxAddressing), head, "^"+since, "--", ":/")
	if err != nil {
		return nil, fmt.Errorf("read what commits address: %w", err)
	}
	found := map[int][]string{}
	for message := range strings.SplitSeq(string(out), "\x00") {
		sha, body, _ := strings.Cut(strings.TrimPrefix(message, "\n"), "\n")
		if !git.ValidSHA(sha) {
			continue
		}
		for _, n := range addressedBy(body, items) {
			found[n] = append(found[n], sha)
		}
	}
	return found, nil
}

// addressedBy is the numbers that a commit's message names, of those that exist.
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

// baseSHA is the commit that the task began with; "": it is not known.
func (p *Publisher) baseSHA() string {
	if p.led == nil {
		return ""
	}
	return p.led.State.BaseSHA
}
