package forge

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// Sources of feedback.
const (
	FromThread  = "thread"  // an unresolved review thread on a line or file
	FromReview  = "review"  // a review with a text of its own
	FromComment = "comment" // a comment on the pull request
)

// Item is one piece of feedback on a pull request. The Note in it is the text, of a
// thread its first comment.
type Item struct {
	Source string // a From constant
	Note
	// State of a review: APPROVED, CHANGES_REQUESTED, COMMENTED, DISMISSED.
	State string

	// The rest is of threads.
	Thread   string // id for ReplyThread and ResolveThread
	Path     string
	Line     int // in the file's present version, else as it was; 0: the whole file
	Outdated bool
	Replies  []Note // after the first, ours included
	// Answered is set when the last word is ours: whoever wrote has not come back on it.
	Answered bool
}

// Feedback is what a pull request's readers want, oldest first.
type Feedback struct {
	Items []Item
	// More is set when there is more than the bounds of this package take.
	More bool
}

// Feedback reads all unresolved review threads, and the reviews with a text and the comments that were
// written or changed after since (zero: ever). Bots are included. Our own texts are
// not, and neither are those that somebody with the right to do so has hidden.
func (c *Client) Feedback(ctx context.Context, number int, since time.Time) (Feedback, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	var out Feedback
	b := newBudget()
	for _, read := range []func(context.Context, int, time.Time, *budget, *Feedback) error{c.threadItems, c.reviewItems, c.commentItems} {
		if err := read(ctx, number, since, b, &out); err != nil {
			return out, err
		}
	}
	slices.SortStableFunc(out.Items, func(a, b Item) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Source, b.Source), cmp.Compare(a.ID, b.ID))
	})
	return out, nil
}

func (c *Client) threadItems(ctx context.Context, number int, _ time.Time, b *budget, out *Feedback) error {
	all, more, err := c.threads(ctx, number)
	if err != nil {
		return err
	}
	out.More = out.More || more
	for _, t := range all {
		if t.Resolved {
			continue
		}
		comments := t.Comments.Nodes
		if t.Comments.PageInfo.More {
			if comments, err = c.threadComments(ctx, t.ID); err != nil {
				return err
			}
		}
		item, ok, err := c.threadItem(ctx, t, comments, b)
		if err != nil {
			return err
		}
		if !ok {
			out.More = out.More || b.notes <= 0 || b.bytes <= 0
			continue
		}
		out.Items = append(out.Items, item)
	}
	return nil
}

// threadItem is false when there is nothing in a thread that somebody else wrote.
func (c *Client) threadItem(ctx context.Context, t thread, comments []threadComment, b *budget) (Item, bool, error) {
	item := Item{Source: FromThread, Thread: t.ID, Path: oneLine(t.Path, maxURL), Line: cmp.Or(t.Line, t.OriginalLine), Outdated: t.Outdated}
	first, others := true, false
	for _, m := range comments {
		if m.Minimized {
			continue
		}
		n, ok, err := c.note(ctx, b, m.ID, m.user(), m.Association, m.Body, m.URL, m.At)
		if err != nil {
			return item, false, err
		}
		if !ok {
			break
		}
		if first {
			item.Note, first = n, false
		} else {
			item.Replies = append(item.Replies, n)
		}
		others = others || !n.Ours
		item.Answered = n.Ours
	}
	return item, others, nil
}

func (c *Client) reviewItems(ctx context.Context, number int, since time.Time, b *budget, out *Feedback) error {
	all, more, err := c.reviews(ctx, number)
	if err != nil {
		return err
	}
	out.More = out.More || more
	for _, r := range all {
		// PENDING ones are drafts of the token's owner.
		if r.GetBody() == "" || r.GetState() == "PENDING" || !later(r.GetSubmittedAt().Time, since) {
			continue
		}
		n, ok, err := c.note(ctx, b, r.GetID(), r.GetUser(), r.GetAuthorAssociation(), r.GetBody(), r.GetHTMLURL(), r.GetSubmittedAt().Time)
		if err != nil {
			return err
		}
		out.add(Item{Source: FromReview, Note: n, State: oneLine(r.GetState(), 40)}, ok)
	}
	return nil
}

func (c *Client) commentItems(ctx context.Context, number int, since time.Time, b *budget, out *Feedback) error {
	all, more, err := c.comments(ctx, number, since)
	if err != nil {
		return err
	}
	out.More = out.More || more
	for _, m := range all {
		if !later(m.GetUpdatedAt().Time, since) {
			continue
		}
		n, ok, err := c.note(ctx, b, m.GetID(), m.GetUser(), m.GetAuthorAssociation(), m.GetBody(), m.GetHTMLURL(), m.GetCreatedAt().Time)
		if err != nil {
			return err
		}
		n.Changed = m.GetUpdatedAt().Time
		out.add(Item{Source: FromComment, Note: n}, ok)
	}
	return nil
}

// add takes an item unless it is ours or empty once hidden text is gone.
func (f *Feedback) add(i Item, fits bool) {
	switch {
	case !fits:
		f.More = true
	case !i.Ours && i.Body != "":
		f.Items = append(f.Items, i)
	}
}
