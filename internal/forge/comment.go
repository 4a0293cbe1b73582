package forge

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/google/go-github/v60/github"

	"github.com/sandbox-agent/sandbox-agent/internal/pattern"
)

// A text of ours ends in a line that readers do not see: <!-- sandbox-agent:KEY -->.
const (
	markStart = "<!-- sandbox-agent:"
	markEnd   = " -->"
)

var keyRule = pattern.New(`^[A-Za-z0-9][A-Za-z0-9_./:-]{0,99}$`)

// Mark is the hidden line that makes a text ours.
func Mark(key string) string { return markStart + key + markEnd }

// markOf finds the key in the last line of a text, "" without one. Only there: a
// reply that quotes us has its own words below.
func markOf(body string) string {
	body = strings.TrimRight(body, " \t\r\n")
	line := body[strings.LastIndexByte(body, '\n')+1:]
	key, ok := strings.CutPrefix(line, markStart)
	if !ok {
		return ""
	}
	key, ok = strings.CutSuffix(key, markEnd)
	if !ok || !keyRule.MatchString(key) {
		return ""
	}
	return key
}

// marked puts the mark under a text, which is cut to leave room for it.
func marked(key, body string) (string, error) {
	if !keyRule.MatchString(key) || strings.Contains(key, "--") {
		return "", fmt.Errorf("key %q of a comment has other characters than letters, digits and _./:-", key)
	}
	mark := "\n\n" + Mark(key)
	body, _ = FitBody(strings.TrimRight(body, "\n"), MaxBody-len(mark))
	return body + mark, nil
}

// account is who a token or a text belongs to. A user may be called as an App is: the kind counts too.
type account struct {
	login string // without "[bot]", in lower case
	bot   bool
}

// accountOf takes names as REST gives them, where a bot's ends in "[bot]", and as GraphQL does, where it does
// not. No user's name has brackets in it.
func accountOf(login, kind string) account {
	name, bot := strings.CutSuffix(strings.ToLower(login), "[bot]")
	return account{name, bot || kind == "Bot"}
}

// ours tells whether a text is this program's: marked, and written by the token's owner. A mark of somebody else counts
// for nothing. Where the forge does not say who we are (sure is false then), nothing is ours.
func (c *Client) ours(ctx context.Context, body string, user *github.User) (ours, sure bool) {
	if markOf(body) == "" {
		return false, true
	}
	me := c.viewer(ctx)
	if me.login == "" {
		return false, false
	}
	return accountOf(user.GetLogin(), user.GetType()) == me, true
}

// viewerPause is how long a failure to learn who we are stands: a list may have hundreds of texts with a mark.
const viewerPause = 10 * time.Second

// viewer asks who the token belongs to; without a login when that cannot be found out. An answer stays, a failure is asked again.
func (c *Client) viewer(ctx context.Context) account {
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

// found tells whether a text is the one with a key that this program wrote before. Where it is not known who we are, that is
// only one which came after the first look (it is fresh) and has the very words that were
// just sent: the answer was lost, and nothing is to be changed in it.
func (c *Client) found(ctx context.Context, key, want, body string, user *github.User, fresh bool) bool {
	if markOf(body) != key {
		return false
	}
	ours, sure := c.ours(ctx, body, user)
	return ours || !sure && fresh && sameText(body, want)
}

// Posted is a comment that is there now.
type Posted struct {
	ID      int64
	URL     string
	Created bool // by this call; else it was there, and updated if its text was another
}

// Commented tells whether there is a comment of ours with that key.
func (c *Client) Commented(ctx context.Context, number int, key string) (bool, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	all, _, err := c.comments(ctx, number, time.Time{})
	for _, m := range all {
		if markOf(m.GetBody()) != key {
			continue
		}
		if ours, _ := c.ours(ctx, m.GetBody(), m.GetUser()); ours {
			return true, nil
		}
	}
	return false, err
}

// Comment puts a comment on an issue or pull request. There is one for each key: it is updated, and not
// posted twice. What is not certainly ours is left alone: there is a new one then. Keys are letters, digits and _./:-, such as "T-A1B2C3D4/range-diff".
func (c *Client) Comment(ctx context.Context, number int, key, body string) (Posted, error) {
	doing := fmt.Sprintf("comment on #%d of %s", number, c.repo)
	text, err := c.prepare(doing, key, body)
	if err != nil {
		return Posted{}, err
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
		return Posted{}, err
	} else if there {
		p := Posted{ID: got.GetID(), URL: oneLine(got.GetHTMLURL(), maxURL)}
		if sameText(got.GetBody(), text) {
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
		return Posted{}, err
	}
	return Posted{ID: got.GetID(), URL: oneLine(got.GetHTMLURL(), maxURL), Created: true}, nil
}

// ReplyThread answers a review thread of a pull request, once for each key as Comment does. A thread of another
// pull request or repository is refused.
func (c *Client) ReplyThread(ctx context.Context, number int, thread, key, body string) (Posted, error) {
	doing := fmt.Sprintf("reply to a review thread of #%d of %s", number, c.repo)
	text, err := c.prepare(doing, key, body)
	if err != nil {
		return Posted{}, err
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
		return Posted{}, err
	}
	if there {
		p := Posted{ID: got.ID, URL: oneLine(got.URL, maxURL)}
		if sameText(got.Body, text) {
			return p, nil
		}
		return p, c.editReply(ctx, number, p.ID, text)
	}
	if top == 0 {
		return Posted{}, &Error{Kind: NotFound, Doing: doing, Said: "the thread has no comments any more", Next: "answer with a comment on the pull request"}
	}
	var made github.PullRequestComment
	err = c.create(ctx, doing, look, func(ctx context.Context, gh *github.Client) error {
		return c.reply(ctx, gh, number, top, text, &made)
	})
	if err != nil {
		return Posted{}, err
	}
	if got != nil { // carried out by an attempt whose answer was lost
		return Posted{ID: got.ID, URL: oneLine(got.URL, maxURL), Created: true}, nil
	}
	return Posted{ID: made.GetID(), URL: oneLine(made.GetHTMLURL(), maxURL), Created: true}, nil
}

// reply is not by go-github, which replies through another operation with a field that the description does not have.
func (c *Client) reply(ctx context.Context, gh *github.Client, number int, top int64, text string, made *github.PullRequestComment) error {
	return c.send(ctx, gh, http.MethodPost, fmt.Sprintf("pulls/%d/comments/%d/replies", number, top), map[string]string{"body": text}, made)
}

func (c *Client) editReply(ctx context.Context, number int, id int64, text string) error {
	return c.fetch(ctx, fmt.Sprintf("update our reply on #%d of %s", number, c.repo), func(ctx context.Context, gh *github.Client) error {
		_, _, err := gh.PullRequests.EditComment(ctx, c.repo.Owner, c.repo.Name, id, &github.PullRequestComment{Body: &text})
		return err
	})
}

func (c *Client) editComment(ctx context.Context, number int, id int64, text string) error {
	return c.fetch(ctx, fmt.Sprintf("update our comment on #%d of %s", number, c.repo), func(ctx context.Context, gh *github.Client) error {
		_, _, err := gh.Issues.EditComment(ctx, c.repo.Owner, c.repo.Name, id, &github.IssueComment{Body: &text})
		return err
	})
}

func (c *Client) prepare(doing, key, body string) (string, error) {
	if err := c.needToken(doing); err != nil {
		return "", err
	}
	text, err := marked(key, body)
	if err != nil {
		return "", &Error{Kind: Invalid, Doing: doing, Said: err.Error(), Next: "use another key"}
	}
	return text, nil
}

func sameText(a, b string) bool {
	return strings.ReplaceAll(a, "\r\n", "\n") == strings.ReplaceAll(b, "\r\n", "\n")
}
