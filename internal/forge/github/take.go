package github

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/google/go-github/v60/github"

	"github.com/sandbox-agent/sandbox-agent/internal/forge"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
)

const (
	// maxText bounds one text of others, in bytes: longer ones are logs.
	maxText = 32 << 10
	// maxTexts bounds all texts of people with write access, in bytes.
	maxTexts = 512 << 10
	maxNotes = 500
	// maxOtherTexts and maxOtherNotes bound the texts of all others separately, so that they cannot displace the former.
	maxOtherTexts = 128 << 10
	maxOtherNotes = 100
	// maxAsked bounds the requests for permissions of people who are no owner, member or collaborator.
	maxAsked = 200
)

type rank int

const (
	topic   rank = iota // an issue's own text
	command             // by an author who may write, or ours
	cause               // the beginning of a thread with a command, by another author
	aside               // the rest of such a thread
	other               // all else
)

// draft is a text before it is selected.
type draft struct {
	forge.Note
	user              *github.User
	association, text string
	rank              rank
	taken             bool
}

func newDraft(id int64, user *github.User, association, text, url string, at time.Time) *draft {
	return &draft{Note: forge.Note{ID: id, At: at, URL: forge.OneLine(url, maxURL)}, user: user, association: association, text: text}
}

// authors determines the authors of texts and whether they may write to the repository. more: there were too many, and
// the others count as people who may not.
func (c *people) authors(ctx context.Context, all []*draft) (more bool, err error) {
	asked := 0
	sorted := slices.Clone(all)
	slices.SortStableFunc(sorted, func(a, b *draft) int { return cmp.Compare(distance(a.association), distance(b.association)) })
	for _, d := range sorted {
		login, bot := d.user.GetLogin(), d.user.GetType() == "Bot"
		if distance(d.association) > 0 && !bot && !c.askedFor(login) {
			if asked++; asked > maxAsked {
				d.Author = forge.Person{Login: cmp.Or(forge.OneLine(login, 110), ghost), Guessed: true}
				more = true
				continue
			}
		}
		if d.Author, err = c.person(ctx, login, bot, d.association); err != nil {
			return more, err
		}
	}
	for _, d := range all {
		var sure bool
		if d.Ours, sure = c.ours(ctx, d.text, d.user); !sure {
			d.Author.CanWrite = false // it could be ours, and we command nothing
		}
		d.rank = other
		if d.Ours || d.Author.CanWrite {
			d.rank = command
		}
	}
	return more, nil
}

// distance orders people by the likelihood of write access.
func distance(association string) int {
	switch association {
	case "OWNER", "MEMBER", "COLLABORATOR":
		return 0
	case "CONTRIBUTOR":
		return 1
	}
	return 2
}

func (c *people) askedFor(login string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.people[strings.ToLower(login)]
	return ok
}

// omission reports omitted texts, and texts of people with write access among them.
type omission struct{ any, commands bool }

// allowance is the unused part of the bounds for some texts.
type allowance struct{ notes, bytes int }

// take selects as many texts as fit, by rank and then in their order.
func take(all []*draft) (l omission) {
	writers, others := allowance{maxNotes, maxTexts}, allowance{maxOtherNotes, maxOtherTexts}
	sorted := slices.Clone(all)
	slices.SortStableFunc(sorted, func(a, b *draft) int { return cmp.Compare(a.rank, b.rank) })
	for _, d := range sorted {
		from := &others
		if d.rank <= command {
			from = &writers
		}
		if from.notes <= 0 || from.bytes <= 0 {
			l.any, l.commands = true, l.commands || d.rank <= command
			continue
		}
		d.Cut = len(d.text) > maxText
		d.Body, d.Removed = forge.Strip(text.Prefix(d.text, maxText))
		if len(d.Body) > from.bytes {
			d.Body, d.Cut = text.Prefix(d.Body, from.bytes), true
		}
		from.notes--
		from.bytes -= len(d.Body)
		d.taken = true
	}
	return l
}
