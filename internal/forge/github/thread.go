package github

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/google/go-github/v60/github"

	"github.com/sandbox-agent/sandbox-agent/internal/forge"
)

// Review threads, and who resolved them, are in GraphQL only.
const (
	viewerQuery = `query { viewer { login } }`

	commentFields = `pageInfo { hasNextPage endCursor } nodes { databaseId body url createdAt isMinimized authorAssociation author { ` +
		`__typename login } }`

	threadsQuery = `query ($owner: String!, $name: String!, $number: Int!, $after: String) {
  repository(owner: $owner, name: $name) { pullRequest(number: $number) { reviewThreads(first: 50, after: $after) {
    pageInfo { hasNextPage endCursor }
    nodes { id path line originalLine isResolved isOutdated comments(first: 50) { ` + commentFields + ` } }
  } } }
}`

	// An id is valid in all repositories of a token, so the thread is compared by repository id: names change.
	homeQuery = `query ($owner: String!, $name: String!, $id: ID!) {
  repository(owner: $owner, name: $name) { id }
  node(id: $id) { ... on PullRequestReviewThread { pullRequest { number repository { id nameWithOwner } } } }
}`

	threadQuery = `query ($id: ID!, $after: String) {
  node(id: $id) { ... on PullRequestReviewThread { comments(first: 100, after: $after) { ` + commentFields + ` } } }
}`

	resolveMutation = `mutation ($id: ID!) { resolveReviewThread(input: {threadId: $id}) { thread { isResolved } } }`
)

type pageInfo struct {
	More bool   `json:"hasNextPage"`
	End  string `json:"endCursor"`
}

type threadComment struct {
	ID          int64     `json:"databaseId"`
	Body        string    `json:"body"`
	URL         string    `json:"url"`
	At          time.Time `json:"createdAt"`
	Minimized   bool      `json:"isMinimized"`
	Association string    `json:"authorAssociation"`
	Author      *struct {
		Type  string `json:"__typename"`
		Login string `json:"login"`
	} `json:"author"` // null: a deleted account
}

func (t *threadComment) login() string {
	if t.Author == nil {
		return ghost
	}
	return t.Author.Login
}

// user returns the author in REST's form.
func (t *threadComment) user() *github.User {
	u := &github.User{Login: new(t.login())}
	if t.Author != nil {
		u.Type = &t.Author.Type
	}
	return u
}

type threadComments struct {
	PageInfo pageInfo        `json:"pageInfo"`
	Nodes    []threadComment `json:"nodes"`
}

type thread struct {
	ID           string         `json:"id"`
	Path         string         `json:"path"`
	Line         int            `json:"line"` // 0 where the line is gone
	OriginalLine int            `json:"originalLine"`
	Resolved     bool           `json:"isResolved"`
	Outdated     bool           `json:"isOutdated"`
	Comments     threadComments `json:"comments"`
}

// graph sends a query, which may be repeated: the only mutation here sets a state.
func (c *api) graph(ctx context.Context, doing, query string, vars map[string]any, out any) error {
	return c.fetch(ctx, doing, func(ctx context.Context, gh *github.Client) error {
		body := map[string]any{"query": query}
		if vars != nil {
			body["variables"] = vars
		}
		req, err := gh.NewRequest(http.MethodPost, c.repo.GraphQL, body)
		if err != nil {
			return err
		}
		var got struct {
			Data   json.RawMessage `json:"data"`
			Errors []struct {
				Type    string `json:"type"`
				Message string `json:"message"`
			} `json:"errors"`
		}
		resp, err := gh.Do(ctx, req, &got)
		if err != nil {
			return err
		}
		if len(got.Errors) > 0 {
			return &graphError{resp: resp.Response, kind: got.Errors[0].Type, said: got.Errors[0].Message}
		}
		if len(got.Data) == 0 {
			return &graphError{resp: resp.Response, kind: "INTERNAL", said: "the answer has no data in it"}
		}
		return json.Unmarshal(got.Data, out)
	})
}

func (c *talk) threads(ctx context.Context, number int) (all []thread, more bool, err error) {
	doing := fmt.Sprintf("read the review threads of #%d of %s", number, c.repo)
	vars := map[string]any{"owner": c.repo.Owner, "name": c.repo.Name, "number": number}
	for range maxPages {
		var data struct {
			Repository *struct {
				PullRequest *struct {
					Threads struct {
						PageInfo pageInfo `json:"pageInfo"`
						Nodes    []thread `json:"nodes"`
					} `json:"reviewThreads"`
				} `json:"pullRequest"`
			} `json:"repository"`
		}
		if err := c.graph(ctx, doing, threadsQuery, vars, &data); err != nil {
			return all, false, err
		}
		if data.Repository == nil || data.Repository.PullRequest == nil {
			return nil, false, forge.NewError(forge.NotFound, doing, "the pull request does not exist", "")
		}
		part := data.Repository.PullRequest.Threads
		all = append(all, part.Nodes...)
		if !part.PageInfo.More || part.PageInfo.End == "" {
			return all, false, nil
		}
		vars["after"] = part.PageInfo.End
	}
	return all, true, nil
}

func (c *talk) threadComments(ctx context.Context, id string) ([]threadComment, error) {
	vars := map[string]any{"id": id}
	var all []threadComment
	for range maxPages {
		var data struct {
			Node *struct {
				Comments threadComments `json:"comments"`
			} `json:"node"`
		}
		const doing = "read a review thread"
		if err := c.graph(ctx, doing, threadQuery, vars, &data); err != nil {
			return nil, err
		}
		if data.Node == nil {
			return nil, forge.NewError(forge.NotFound, doing, "there is no such thread", "read the feedback again")
		}
		all = append(all, data.Node.Comments.Nodes...)
		if !data.Node.Comments.PageInfo.More || data.Node.Comments.PageInfo.End == "" {
			break
		}
		vars["after"] = data.Node.Comments.PageInfo.End
	}
	return all, nil
}

// ownThread lists the comments of a thread of the given pull request.
func (c *talk) ownThread(ctx context.Context, doing string, number int, id string) ([]threadComment, error) {
	if err := c.atHome(ctx, doing, number, id); err != nil {
		return nil, err
	}
	return c.threadComments(ctx, id)
}

// atHome refuses a thread of another pull request or repository. Others can write ids to a task's state on the remote.
func (c *talk) atHome(ctx context.Context, doing string, number int, id string) error {
	var data struct {
		Repository *struct {
			ID string `json:"id"`
		} `json:"repository"`
		Node *struct {
			PR *struct {
				Number     int `json:"number"`
				Repository struct {
					ID   string `json:"id"`
					Name string `json:"nameWithOwner"`
				} `json:"repository"`
			} `json:"pullRequest"`
		} `json:"node"`
	}
	if err := c.graph(ctx, doing, homeQuery, map[string]any{"owner": c.repo.Owner, "name": c.repo.Name, "id": id}, &data); err != nil {
		return err
	}
	if data.Repository == nil || data.Repository.ID == "" || data.Node == nil || data.Node.PR == nil {
		return forge.NewError(forge.NotFound, doing, "there is no such thread", "read the feedback again")
	}
	if pr := data.Node.PR; pr.Number != number || pr.Repository.ID != data.Repository.ID {
		return forge.NewError(forge.Invalid, doing,
			fmt.Sprintf("the thread is of #%d of %s", pr.Number, forge.OneLine(pr.Repository.Name, maxURL)),
			"do not trust where its id comes from, such as the task's state on the remote; read the feedback again")
	}
	return nil
}

// ResolveThread resolves a review thread of the pull request; a resolved one stays so.
func (c *talk) ResolveThread(ctx context.Context, number int, id string) error {
	doing := fmt.Sprintf("resolve a review thread of #%d of %s", number, c.repo)
	if err := c.needToken(doing); err != nil {
		return err
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	if err := c.atHome(ctx, doing, number, id); err != nil {
		return err
	}
	var data struct {
		Resolve struct {
			Thread struct {
				Resolved bool `json:"isResolved"`
			} `json:"thread"`
		} `json:"resolveReviewThread"`
	}
	if err := c.graph(ctx, doing, resolveMutation, map[string]any{"id": id}, &data); err != nil {
		return err
	}
	if !data.Resolve.Thread.Resolved {
		return forge.NewError(forge.Invalid, doing, "the forge accepted the request but left the thread open", "resolve it by hand")
	}
	return nil
}
