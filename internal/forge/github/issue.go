package github

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/google/go-github/v60/github"

	"github.com/sandbox-agent/sandbox-agent/internal/forge"
)

// issueAnswer is an issue as described by the API; go-github cannot read labels that are plain names.
type issueAnswer struct {
	ID          int64             `json:"id"`
	Title       string            `json:"title"`
	Body        string            `json:"body"`
	State       string            `json:"state"`
	URL         string            `json:"html_url"`
	Association string            `json:"author_association"`
	User        *github.User      `json:"user"`
	Labels      []json.RawMessage `json:"labels"`
	PR          *struct{}         `json:"pull_request"`
	At          time.Time         `json:"created_at"`
}

func labelName(raw json.RawMessage) string {
	var name string
	if json.Unmarshal(raw, &name) == nil {
		return name
	}
	var l github.Label
	_ = json.Unmarshal(raw, &l) // a label of any other form has no name
	return l.GetName()
}

// Issue reads an issue with all its comments; a pull request is marked.
func (c *Client) Issue(ctx context.Context, number int) (forge.Issue, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	var got issueAnswer
	err := c.fetch(ctx, fmt.Sprintf("read issue #%d of %s", number, c.repo), func(ctx context.Context, gh *github.Client) error {
		got = issueAnswer{}
		return c.send(ctx, gh, http.MethodGet, fmt.Sprintf("issues/%d", number), nil, &got)
	})
	if err != nil {
		return forge.Issue{}, err
	}
	out := forge.Issue{Number: number, Title: forge.OneLine(got.Title, maxText), State: forge.OneLine(got.State, 40), IsPR: got.PR != nil}
	for _, l := range got.Labels {
		out.Labels = append(out.Labels, forge.OneLine(labelName(l), 100))
	}
	comments, more, err := c.comments(ctx, number, time.Time{})
	if err != nil {
		return out, err
	}
	all := []*draft{newDraft(got.ID, got.User, got.Association, got.Body, got.URL, got.At)}
	for _, m := range comments {
		all = append(all, newDraft(m.GetID(), m.GetUser(), m.GetAuthorAssociation(), m.GetBody(), m.GetHTMLURL(), m.GetCreatedAt().Time))
	}
	unknown, err := c.authors(ctx, all)
	if err != nil {
		return out, err
	}
	all[0].rank = topic
	l := take(all)
	out.More, out.MoreCommands = more || unknown || l.any, more || unknown || l.commands
	out.Note = all[0].Note
	for _, d := range all[1:] {
		if d.taken {
			out.Comments = append(out.Comments, d.Note)
		}
	}
	return out, nil
}

// comments lists the comments on an issue or pull request that changed since a time.
func (c *talk) comments(ctx context.Context, number int, since time.Time) (all []*github.IssueComment, more bool, err error) {
	opts := github.IssueListCommentsOptions{ListOptions: github.ListOptions{PerPage: perPage}}
	if !since.IsZero() {
		opts.Since = new(since.UTC().Truncate(time.Second))
	}
	all, err = pages(ctx, c.api, fmt.Sprintf("read the comments on #%d of %s", number, c.repo), maxPages,
		func(ctx context.Context, gh *github.Client, page int) ([]*github.IssueComment, *github.Response, error) {
			opts.Page = page
			return gh.Issues.ListComments(ctx, c.repo.Owner, c.repo.Name, number, &opts)
		})
	if errors.Is(err, errMore) {
		return all, true, nil
	}
	return all, false, err
}

// reviews lists the reviews of a pull request, oldest first.
func (c *talk) reviews(ctx context.Context, number int) (all []*github.PullRequestReview, more bool, err error) {
	all, err = pages(ctx, c.api, fmt.Sprintf("read the reviews of #%d of %s", number, c.repo), maxPages,
		func(ctx context.Context, gh *github.Client, page int) ([]*github.PullRequestReview, *github.Response, error) {
			return gh.PullRequests.ListReviews(ctx, c.repo.Owner, c.repo.Name, number, &github.ListOptions{Page: page, PerPage: perPage})
		})
	if errors.Is(err, errMore) {
		return all, true, nil
	}
	return all, false, err
}
