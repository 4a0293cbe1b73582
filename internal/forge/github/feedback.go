package github

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/forge"
)

// heard is an item before its texts are selected.
type heard struct {
	item  forge.Item
	texts []*draft
}

// Feedback reads all unresolved review threads, and the reviews with a text and the comments that were written or
// changed after since (zero means ever). It includes bots, and excludes our own and hidden texts.
func (c *Client) Feedback(ctx context.Context, number int, since time.Time) (forge.Feedback, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	var all []*heard
	unread := false
	for _, read := range []func(context.Context, int, time.Time) ([]*heard, bool, error){c.threadItems, c.reviewItems, c.commentItems} {
		part, more, err := read(ctx, number, since)
		if err != nil {
			return forge.Feedback{}, err
		}
		all, unread = append(all, part...), unread || more
	}
	var texts []*draft
	for _, h := range all {
		texts = append(texts, h.texts...)
	}
	unknown, err := c.authors(ctx, texts)
	if err != nil {
		return forge.Feedback{}, err
	}
	all = slices.DeleteFunc(all, func(h *heard) bool { return !h.others() })
	texts = nil
	for _, h := range all {
		h.raise()
		texts = append(texts, h.texts...)
	}
	// The oldest of each rank first, from all sources.
	slices.SortStableFunc(texts, func(a, b *draft) int { return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.ID, b.ID)) })
	l := take(texts)
	out := forge.Feedback{More: unread || unknown || l.any, MoreCommands: unread || unknown || l.commands}
	for _, h := range all {
		if item, ok := h.whole(); ok {
			out.Items = append(out.Items, item)
		}
	}
	slices.SortStableFunc(out.Items, func(a, b forge.Item) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Source, b.Source), cmp.Compare(a.ID, b.ID))
	})
	return out, nil
}

// others reports whether an item has texts that are not ours.
func (h *heard) others() bool {
	return slices.ContainsFunc(h.texts, func(d *draft) bool { return !d.Ours })
}

// raise gives others' texts more weight if a person with write access takes part: "please do" needs its context.
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

// whole builds the item from the selected texts; false if none is of others. All texts decide who wrote last.
func (h *heard) whole() (forge.Item, bool) {
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
	if item.Source != forge.FromThread {
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
		h := &heard{item: forge.Item{
			Source: forge.FromThread, Thread: t.ID, Path: forge.OneLine(t.Path, maxURL),
			Line: cmp.Or(t.Line, t.OriginalLine), Outdated: t.Outdated,
		}}
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
		out = append(out, &heard{forge.Item{Source: forge.FromReview, State: forge.OneLine(r.GetState(), 40)}, []*draft{d}})
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
		out = append(out, &heard{forge.Item{Source: forge.FromComment}, []*draft{d}})
	}
	return out, more, err
}
