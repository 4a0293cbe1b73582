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

// Feedback is what a pull request's readers want, oldest first. Where not everything could be taken, what commands
// was taken first; Prefer does the same for a bound of one's own.
type Feedback struct {
	Items []Item
	// More is set when there is more than the bounds of this package take.
	More bool
	// MoreCommands is set when some of that is, or could be, by people who may write: else only others' words are missing.
	MoreCommands bool
}

// heard is an item before it is known what of its texts is taken.
type heard struct {
	item  Item
	texts []*draft
}

// Feedback reads all unresolved review threads, and the reviews with a text and the comments that were
// written or changed after since (zero: ever). Bots are included. Our own texts are
// not, and neither are those that somebody with the right to do so has hidden.
func (c *Client) Feedback(ctx context.Context, number int, since time.Time) (Feedback, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	var all []*heard
	unread := false
	for _, read := range []func(context.Context, int, time.Time) ([]*heard, bool, error){c.threadItems, c.reviewItems, c.commentItems} {
		part, more, err := read(ctx, number, since)
		if err != nil {
			return Feedback{}, err
		}
		all, unread = append(all, part...), unread || more
	}
	var texts []*draft
	for _, h := range all {
		texts = append(texts, h.texts...)
	}
	unknown, err := c.authors(ctx, texts)
	if err != nil {
		return Feedback{}, err
	}
	all = slices.DeleteFunc(all, func(h *heard) bool { return !h.others() })
	texts = nil
	for _, h := range all {
		h.raise()
		texts = append(texts, h.texts...)
	}
	// The oldest of each rank first, whichever source it is from.
	slices.SortStableFunc(texts, func(a, b *draft) int { return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.ID, b.ID)) })
	l := take(texts)
	out := Feedback{More: unread || unknown || l.any, MoreCommands: unread || unknown || l.commands}
	for _, h := range all {
		if item, ok := h.whole(); ok {
			out.Items = append(out.Items, item)
		}
	}
	slices.SortStableFunc(out.Items, func(a, b Item) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Source, b.Source), cmp.Compare(a.ID, b.ID))
	})
	return out, nil
}

// others tells whether anybody but this program is in an item.
func (h *heard) others() bool {
	return slices.ContainsFunc(h.texts, func(d *draft) bool { return !d.Ours })
}

// raise gives the words of others more weight where somebody who may write stands behind the item: "please do" needs
// what it was said to.
func (h *heard) raise() {
	if !slices.ContainsFunc(h.texts, func(d *draft) bool { return !d.Ours && d.rank == command }) {
		return
	}
	for i, d := range h.texts {
		if d.rank == other {
			d.rank = aside
			if i == 0 {
				d.rank = cause
			}
		}
	}
}

// whole makes the item of what was taken; false when nothing of others is in it. Who had the last word is decided
// by all texts.
func (h *heard) whole() (Item, bool) {
	item, first, others := h.item, true, false
	for _, d := range h.texts {
		if !d.taken {
			continue
		}
		if first {
			item.Note, first = d.Note, false
		} else {
			item.Replies = append(item.Replies, d.Note)
		}
		others = others || !d.Ours
	}
	if item.Source != FromThread {
		return item, others && item.Body != "" // it may be empty once hidden text is gone
	}
	item.Answered = h.texts[len(h.texts)-1].Ours
	return item, others
}

func (c *Client) threadItems(ctx context.Context, number int, _ time.Time) (out []*heard, more bool, err error) {
	all, more, err := c.threads(ctx, number)
	if err != nil {
		return nil, more, err
	}
	for _, t := range all {
		if t.Resolved {
			continue
		}
		comments := t.Comments.Nodes
		if t.Comments.PageInfo.More {
			if comments, err = c.threadComments(ctx, t.ID); err != nil {
				return nil, more, err
			}
		}
		h := &heard{item: Item{Source: FromThread, Thread: t.ID, Path: oneLine(t.Path, maxURL), Line: cmp.Or(t.Line, t.OriginalLine), Outdated: t.Outdated}}
		for _, m := range comments {
			if !m.Minimized {
				h.texts = append(h.texts, newDraft(m.ID, m.user(), m.Association, m.Body, m.URL, m.At))
			}
		}
		out = append(out, h)
	}
	return out, more, nil
}

func (c *Client) reviewItems(ctx context.Context, number int, since time.Time) (out []*heard, more bool, err error) {
	all, more, err := c.reviews(ctx, number)
	for _, r := range all {
		// PENDING ones are drafts of the token's owner.
		if r.GetBody() == "" || r.GetState() == "PENDING" || !later(r.GetSubmittedAt().Time, since) {
			continue
		}
		d := newDraft(r.GetID(), r.GetUser(), r.GetAuthorAssociation(), r.GetBody(), r.GetHTMLURL(), r.GetSubmittedAt().Time)
		out = append(out, &heard{Item{Source: FromReview, State: oneLine(r.GetState(), 40)}, []*draft{d}})
	}
	return out, more, err
}

func (c *Client) commentItems(ctx context.Context, number int, since time.Time) (out []*heard, more bool, err error) {
	all, more, err := c.comments(ctx, number, since)
	for _, m := range all {
		if !later(m.GetUpdatedAt().Time, since) {
			continue
		}
		d := newDraft(m.GetID(), m.GetUser(), m.GetAuthorAssociation(), m.GetBody(), m.GetHTMLURL(), m.GetCreatedAt().Time)
		d.Changed = m.GetUpdatedAt().Time
		out = append(out, &heard{Item{Source: FromComment}, []*draft{d}})
	}
	return out, more, err
}
