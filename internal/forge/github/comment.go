package github

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/google/go-github/v60/github"

	"github.com/sandbox-agent/sandbox-agent/internal/forge"
)

// account is the owner of a token or a text. A user may have the name of an App, so the kind counts, too.
type account struct {
	login string // without "[bot]", in lower case
	bot   bool
}

// accountOf accepts names from REST, where a bot's ends in "[bot]", and from GraphQL, where it does not.
func accountOf(login, kind string) account {
	name, bot := strings.CutSuffix(strings.ToLower(login), "[bot]")
	return account{name, bot || kind == "Bot"}
}

// ours reports whether this program wrote a text: it has a mark, and its author owns the token. If the owner is unknown
// (sure is false), no text is ours.
func (c *people) ours(ctx context.Context, body string, user *github.User) (ours, sure bool) {
	if forge.MarkOf(body) == "" {
		return false, true
	}
	me := c.viewer(ctx)
	if me.login == "" {
		return false, false
	}
	return accountOf(user.GetLogin(), user.GetType()) == me, true
}

// viewerPause is the pause after a failure to read the token's owner.
const viewerPause = 10 * time.Second

// viewer returns the token's owner, without a login if it is unknown. It caches answers, not failures.
func (c *people) viewer(ctx context.Context) account {
	c.mu.Lock()
	me, wait := c.me, c.now().Before(c.askAgain)
	c.mu.Unlock()
	if me.login != "" || wait {
		return me
	}
	var data struct {
		Viewer struct {
			Login string `json:"login"`
		} `json:"viewer"`
	}
	if err := c.graph(ctx, "ask whose token this is", viewerQuery, nil, &data); err != nil {
		c.log.Debug("forge: the token's owner is not known", "error", err)
	}
	me = accountOf(data.Viewer.Login, "") // the schema has users only here, an App's name with "[bot]"
	c.mu.Lock()
	defer c.mu.Unlock()
	c.me, c.askAgain = me, c.now().Add(viewerPause)
	return me
}

// found reports whether a text is our earlier one with a key. If the token's owner is unknown, only a fresh text (later
// than the first look) with the same words counts: then the answer was lost.
func (c *talk) found(ctx context.Context, key, want, body string, user *github.User, fresh bool) bool {
	if forge.MarkOf(body) != key {
		return false
	}
	ours, sure := c.ours(ctx, body, user)
	return ours || !sure && fresh && forge.SameText(body, want)
}

// Commented reports whether one of our comments has that key.
func (c *talk) Commented(ctx context.Context, number int, key string) (bool, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	all, _, err := c.comments(ctx, number, time.Time{})
	for _, m := range all {
		if forge.MarkOf(m.GetBody()) != key {
			continue
		}
		if ours, _ := c.ours(ctx, m.GetBody(), m.GetUser()); ours {
			return true, nil
		}
	}
	return false, err
}

// Comment writes a comment on an issue or pull request, or updates the one with the key. A comment that is not
// certainly ours is left alone. Keys are letters, digits and _./:-, such as "T-A1B2C3D4/range-diff".
func (c *talk) Comment(ctx context.Context, number int, key, body string) (forge.Posted, error) {
	doing := fmt.Sprintf("comment on #%d of %s", number, c.repo)
	text, err := c.prepare(doing, key, body)
	if err != nil {
		return forge.Posted{}, err
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	var got *github.IssueComment
	var before map[int64]bool
	look := func(ctx context.Context) (bool, error) {
		all, _, err := c.comments(ctx, number, time.Time{})
		ids := map[int64]bool{}
		for _, m := range all {
			if c.found(ctx, key, text, m.GetBody(), m.GetUser(), before != nil && !before[m.GetID()]) {
				got = m
			}
			ids[m.GetID()] = true
		}
		if before == nil {
			before = ids
		}
		return got != nil, err
	}
	if there, err := look(ctx); err != nil {
		return forge.Posted{}, err
	} else if there {
		p := forge.Posted{ID: got.GetID(), URL: forge.OneLine(got.GetHTMLURL(), maxURL)}
		if forge.SameText(got.GetBody(), text) {
			return p, nil
		}
		return p, c.editComment(ctx, number, p.ID, text)
	}
	err = c.create(ctx, doing, look, func(ctx context.Context, gh *github.Client) error {
		m, _, err := gh.Issues.CreateComment(ctx, c.repo.Owner, c.repo.Name, number, &github.IssueComment{Body: &text})
		got = m
		return err
	})
	if err != nil {
		return forge.Posted{}, err
	}
	return forge.Posted{ID: got.GetID(), URL: forge.OneLine(got.GetHTMLURL(), maxURL), Created: true}, nil
}

// ReplyThread answers a review thread of the pull request, once for each key.
func (c *talk) ReplyThread(ctx context.Context, number int, thread, key, body string) (forge.Posted, error) {
	doing := fmt.Sprintf("reply to a review thread of #%d of %s", number, c.repo)
	text, err := c.prepare(doing, key, body)
	if err != nil {
		return forge.Posted{}, err
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	var top int64
	var got *threadComment
	var before map[int64]bool
	look := func(ctx context.Context) (bool, error) {
		all, err := c.ownThread(ctx, doing, number, thread)
		ids := map[int64]bool{}
		for i, m := range all {
			if i == 0 {
				top = m.ID
			}
			if c.found(ctx, key, text, m.Body, m.user(), before != nil && !before[m.ID]) {
				got = &all[i]
			}
			ids[m.ID] = true
		}
		if before == nil {
			before = ids
		}
		return got != nil, err
	}
	there, err := look(ctx)
	if err != nil {
		return forge.Posted{}, err
	}
	if there {
		p := forge.Posted{ID: got.ID, URL: forge.OneLine(got.URL, maxURL)}
		if forge.SameText(got.Body, text) {
			return p, nil
		}
		return p, c.editReply(ctx, number, p.ID, text)
	}
	if top == 0 {
		return forge.Posted{}, forge.NewError(forge.NotFound, doing,
			"the thread has no comments any more", "answer with a comment on the pull request")
	}
	var made github.PullRequestComment
	err = c.create(ctx, doing, look, func(ctx context.Context, gh *github.Client) error {
		return c.send(ctx, gh, http.MethodPost, fmt.Sprintf("pulls/%d/comments/%d/replies", number, top), map[string]string{"body": text}, &made)
	})
	if err != nil {
		return forge.Posted{}, err
	}
	if got != nil { // carried out by an attempt whose answer was lost
		return forge.Posted{ID: got.ID, URL: forge.OneLine(got.URL, maxURL), Created: true}, nil
	}
	return forge.Posted{ID: made.GetID(), URL: forge.OneLine(made.GetHTMLURL(), maxURL), Created: true}, nil
}

func (c *talk) editReply(ctx context.Context, number int, id int64, text string) error {
	return c.fetch(ctx, fmt.Sprintf("update our reply on #%d of %s", number, c.repo), func(ctx context.Context, gh *github.Client) error {
		_, _, err := gh.PullRequests.EditComment(ctx, c.repo.Owner, c.repo.Name, id, &github.PullRequestComment{Body: &text})
		return err
	})
}

func (c *talk) editComment(ctx context.Context, number int, id int64, text string) error {
	return c.fetch(ctx, fmt.Sprintf("update our comment on #%d of %s", number, c.repo), func(ctx context.Context, gh *github.Client) error {
		_, _, err := gh.Issues.EditComment(ctx, c.repo.Owner, c.repo.Name, id, &github.IssueComment{Body: &text})
		return err
	})
}

func (c *talk) prepare(doing, key, body string) (string, error) {
	if err := c.needToken(doing); err != nil {
		return "", err
	}
	text, err := forge.Marked(key, body)
	if err != nil {
		return "", forge.NewError(forge.Invalid, doing, err.Error(), "use another key")
	}
	return text, nil
}
