package forge

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/google/go-github/v60/github"
)

// A text of ours ends in a line that readers do not see: <!-- sandbox-agent:KEY -->.
const (
	markStart = "<!-- sandbox-agent:"
	markEnd   = " -->"
)

var keyRule = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_./:-]{0,99}$`)

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

// ours tells whether a text is this program's: marked, and written by the token's owner. A
// mark of somebody else counts for nothing. Where the forge does not say who we are, the mark decides.
func (c *Client) ours(ctx context.Context, body, login string) bool {
	if markOf(body) == "" {
		return false
	}
	me := c.viewer(ctx)
	return me == "" || strings.EqualFold(strings.TrimSuffix(me, "[bot]"), strings.TrimSuffix(login, "[bot]"))
}

// viewer asks once who the token belongs to; "" when that cannot be found out.
func (c *Client) viewer(ctx context.Context) string {
	c.mu.Lock()
	me, asked := c.me, c.asked
	c.mu.Unlock()
	if asked {
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
	c.mu.Lock()
	c.me, c.asked = data.Viewer.Login, true
	c.mu.Unlock()
	return data.Viewer.Login
}

// Posted is a comment that is there now.
type Posted struct {
	ID      int64
	URL     string
	Created bool // by this call; else it was there, and updated if its text was another
}

// Comment puts a comment on an issue or pull request. There is one for each key: it is updated, and not
// posted twice. Keys are letters, digits and _./:-, such as "T-A1B2C3D4/range-diff".
func (c *Client) Comment(ctx context.Context, number int, key, body string) (Posted, error) {
	doing := fmt.Sprintf("comment on #%d of %s", number, c.repo)
	text, err := c.prepare(doing, key, body)
	if err != nil {
		return Posted{}, err
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	var got *github.IssueComment
	look := func(ctx context.Context) (bool, error) {
		all, _, err := c.comments(ctx, number, time.Time{})
		for _, m := range all {
			if markOf(m.GetBody()) == key && c.ours(ctx, m.GetBody(), m.GetUser().GetLogin()) {
				got = m
			}
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

// ReplyThread answers a review thread of a pull request, once for each key as Comment does.
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
	look := func(ctx context.Context) (bool, error) {
		all, err := c.threadComments(ctx, thread)
		for i, m := range all {
			if i == 0 {
				top = m.ID
			}
			if markOf(m.Body) == key && c.ours(ctx, m.Body, m.login()) {
				got = &all[i]
			}
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
