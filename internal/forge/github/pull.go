package github

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/go-github/v60/github"

	"github.com/sandbox-agent/sandbox-agent/internal/forge"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
)

// OpenPR opens the branch's pull request with this title and body, or updates an open one; a closed or merged one is
// returned with a warning. Refused labels and reviewers are warnings. It may be called again after any error.
func (c *pulls) OpenPR(ctx context.Context, spec forge.PRSpec) (forge.PR, error) {
	doing := fmt.Sprintf("open the pull request of %q into %q in %s", spec.Head, spec.Base, c.repo)
	if err := c.needToken(doing); err != nil {
		return forge.PR{}, err
	}
	if spec.Head == "" || spec.Base == "" || spec.Head == spec.Base || strings.Contains(spec.Head, ":") || forge.FitTitle(spec.Title) == "" {
		return forge.PR{}, forge.NewError(forge.Invalid, doing,
			"it needs a title and two different branches of this repository", "name them")
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	body, cut := forge.FitBody(spec.Body, forge.MaxBody)
	found, err := c.findPR(ctx, doing, spec)
	if err != nil {
		return forge.PR{}, err
	}
	var pr forge.PR
	switch {
	case found != nil && found.GetState() != forge.StateOpen:
		pr = c.pr(found)
		pr.Warn("pull request #%d of this branch was %s; it stays unchanged and no other is opened", pr.Number, pr.State)
		return pr, nil
	case found != nil && found.GetState() == forge.StateOpen:
		pr, err = c.updatePR(ctx, found, spec, body)
	case spec.NoNew:
		return forge.PR{}, nil
	default:
		pr, err = c.createPR(ctx, doing, spec, body)
	}
	if err != nil {
		return pr, err
	}
	if cut {
		pr.Warn("the body was cut to GitHub's limit of %d characters", forge.MaxBody)
	}
	return pr, c.dress(ctx, &pr, spec)
}

// findPR finds the branch's pull request: an open one with the same base, else an open one, else the last.
func (c *pulls) findPR(ctx context.Context, doing string, spec forge.PRSpec) (*github.PullRequest, error) {
	opts := github.PullRequestListOptions{
		State: "all", Head: c.repo.Owner + ":" + spec.Head,
		ListOptions: github.ListOptions{PerPage: perPage},
	}
	all, err := pages(ctx, c.api, doing, maxPages, func(ctx context.Context, gh *github.Client, page int) ([]*github.PullRequest,
		*github.Response, error,
	) {
		opts.Page = page
		return gh.PullRequests.List(ctx, c.repo.Owner, c.repo.Name, &opts)
	})
	if err != nil && !errors.Is(err, errMore) {
		return nil, err
	}
	var best *github.PullRequest
	rank := func(p *github.PullRequest) int {
		switch {
		case p == nil:
			return -1
		case p.GetState() == forge.StateOpen && p.GetBase().GetRef() == spec.Base:
			return 2
		case p.GetState() == forge.StateOpen:
			return 1
		}
		return 0
	}
	for _, p := range all {
		// GitHub ignores a filter that it does not understand.
		if p.GetHead().GetRef() != spec.Head || c.fork(p) {
			continue
		}
		if r, b := rank(p), rank(best); r > b || r == b && p.GetNumber() > best.GetNumber() {
			best = p
		}
	}
	return best, nil
}

func (c *pulls) createPR(ctx context.Context, doing string, spec forge.PRSpec, body string) (forge.PR, error) {
	var made, there *github.PullRequest
	look := func(ctx context.Context) (bool, error) {
		p, err := c.findPR(ctx, doing, spec)
		if p.GetState() == forge.StateOpen {
			made = p
		}
		return made != nil, err
	}
	send := func(draft bool) error {
		return c.create(ctx, doing, look, func(ctx context.Context, gh *github.Client) error {
			p, _, err := gh.PullRequests.Create(ctx, c.repo.Owner, c.repo.Name, &github.NewPullRequest{
				Title: new(forge.FitTitle(spec.Title)), Head: &spec.Head, Base: &spec.Base, Body: &body, Draft: &draft,
			})
			if err == nil {
				made = p
			}
			return err
		})
	}
	err := send(spec.Draft)
	noDraft := err != nil && spec.Draft && forge.KindOf(err) == forge.Invalid && strings.Contains(strings.ToLower(err.Error()), "draft")
	if noDraft {
		err = send(false)
	}
	if e, ok := errors.AsType[*forge.Error](err); ok && e.Kind == forge.Invalid {
		said := strings.ToLower(e.Said)
		switch {
		case strings.Contains(said, "already exists"): // another client was faster, or the list was late
			if there, err = c.findPR(ctx, doing, spec); err != nil {
				return forge.PR{}, err
			}
			if there.GetState() == forge.StateOpen {
				return c.updatePR(ctx, there, spec, body)
			}
			return forge.PR{}, e
		case strings.Contains(said, "no commits between"):
			e.Next = "the branch has nothing that the base does not have: there is nothing to review"
		case strings.Contains(said, ".head is invalid"):
			e.Next = "push the branch first"
		case strings.Contains(said, ".base is invalid"):
			e.Next = "name a base branch that the repository has"
		}
	}
	if err != nil {
		return forge.PR{}, err
	}
	pr := c.pr(made)
	pr.Created = true
	if noDraft {
		pr.Warn("this repository's plan has no drafts: opened as ready for review")
	}
	return pr, nil
}

func (c *pulls) updatePR(ctx context.Context, old *github.PullRequest, spec forge.PRSpec, body string) (forge.PR, error) {
	change := &github.PullRequest{}
	// GitHub changes line ends.
	there := strings.ReplaceAll(old.GetBody(), "\r\n", "\n")
	keeps, known := spec.Keep != nil, true
	if keeps {
		if body, known = spec.Keep(there); !known {
			body = there
		}
		body, _ = forge.FitBody(body, forge.MaxBody)
	}
	if t := forge.FitTitle(spec.Title); t != old.GetTitle() && !keeps {
		change.Title = &t
	}
	if there != strings.ReplaceAll(body, "\r\n", "\n") {
		change.Body = &body
	}
	if old.GetBase().GetRef() != spec.Base && !keeps {
		change.Base = &github.PullRequestBranch{Ref: &spec.Base}
	}
	now := old
	changed := change.Title != nil || change.Body != nil || change.Base != nil
	if changed {
		err := c.fetch(ctx, fmt.Sprintf("update pull request #%d in %s", old.GetNumber(), c.repo),
			func(ctx context.Context, gh *github.Client) error {
				p, _, err := gh.PullRequests.Edit(ctx, c.repo.Owner, c.repo.Name, old.GetNumber(), change)
				if err == nil {
					now = p
				}
				return err
			})
		if err != nil {
			return c.pr(old), err
		}
	}
	pr := c.pr(now)
	pr.Updated = changed
	if !known {
		pr.Warn("the body of pull request #%d describes another commit and stays unchanged", pr.Number)
	}
	if change.Base != nil {
		pr.Warn("the pull request's base was %q and is %q now", old.GetBase().GetRef(), spec.Base)
	}
	return pr, nil
}

// PRByNumber reads a pull request.
func (c *pulls) PRByNumber(ctx context.Context, n int) (forge.PR, error) {
	var pr forge.PR
	err := c.fetch(ctx, fmt.Sprintf("read pull request #%d of %s", n, c.repo), func(ctx context.Context, gh *github.Client) error {
		p, _, err := gh.PullRequests.Get(ctx, c.repo.Owner, c.repo.Name, n)
		if err == nil {
			pr = c.pr(p)
		}
		return err
	})
	return pr, err
}

// PRByHead finds the pull request of a branch.
func (c *pulls) PRByHead(ctx context.Context, branch string) (forge.PR, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	p, err := c.findPR(ctx, fmt.Sprintf("find the pull request of %q in %s", branch, c.repo), forge.PRSpec{Head: branch})
	if err != nil || p == nil {
		return forge.PR{}, err
	}
	return c.pr(p), nil
}

// fork reports whether the head is in another repository, or in none any more.
func (c *pulls) fork(p *github.PullRequest) bool {
	return !strings.EqualFold(p.GetHead().GetRepo().GetFullName(), p.GetBase().GetRepo().GetFullName())
}

func (c *pulls) pr(p *github.PullRequest) forge.PR {
	out := forge.PR{
		Number: p.GetNumber(), URL: forge.OneLine(p.GetHTMLURL(), maxURL), State: p.GetState(), Draft: p.GetDraft(),
		Head: p.GetHead().GetRef(), HeadSHA: p.GetHead().GetSHA(), HeadRepo: p.GetHead().GetRepo().GetFullName(), Fork: c.fork(p),
		Base: p.GetBase().GetRef(), BaseSHA: p.GetBase().GetSHA(), Author: p.GetUser().GetLogin(), Title: forge.OneLine(p.GetTitle(), maxText),
	}
	out.Body, _ = forge.Strip(text.Prefix(p.GetBody(), maxText))
	if p.GetMerged() || !p.GetMergedAt().IsZero() {
		out.State = forge.StateMerged
	}
	return out
}

const (
	// perPage is GitHub's maximum.
	perPage = 100
	// maxPages bounds lists; a longer list is reported.
	maxPages = 20
	maxURL   = 2000
)

// errMore means that a list was longer than maxPages.
var errMore = errors.New("the list exceeds the page limit")

func pages[T any](ctx context.Context, c *api, doing string, limit int, get func(context.Context, *github.Client, int) ([]T,
	*github.Response, error),
) ([]T, error) {
	var all []T
	for page := 1; ; {
		var next int
		var part []T
		err := c.fetch(ctx, doing, func(ctx context.Context, gh *github.Client) error {
			items, resp, err := get(ctx, gh, page)
			if err == nil {
				part, next = items, resp.NextPage
			}
			return err
		})
		if err != nil {
			return all, err
		}
		all = append(all, part...)
		if next <= page { // also against a server that turns in circles
			return all, nil
		}
		if page++; page > limit {
			return all, errMore
		}
	}
}

// later reports whether t is after since; a zero time is before everything.
func later(t, since time.Time) bool { return since.IsZero() || t.After(since) }
