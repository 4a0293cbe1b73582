package github

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/google/go-github/v60/github"

	"github.com/sandbox-agent/sandbox-agent/internal/forge"
)

const labelColor = "ededed"

// soft turns refusals into a warning; other errors end the call.
func soft(pr *forge.PR, what string, err error) error {
	switch forge.KindOf(err) {
	case forge.Invalid, forge.Permission, forge.NotFound:
		pr.Warn("%s: %v", what, err)
		return nil
	}
	return err
}

// dress sets a pull request's labels and reviewers. It may be repeated.
func (c *pulls) dress(ctx context.Context, pr *forge.PR, spec forge.PRSpec) error {
	if err := c.label(ctx, pr, spec.Labels); err != nil {
		return err
	}
	return c.ask(ctx, pr, spec)
}

func (c *pulls) label(ctx context.Context, pr *forge.PR, names []string) error {
	var have []string
	for _, name := range unique(names) {
		doing := fmt.Sprintf("find label %q in %s", name, c.repo)
		err := c.fetch(ctx, doing, func(ctx context.Context, gh *github.Client) error {
			_, _, err := gh.Issues.GetLabel(ctx, c.repo.Owner, c.repo.Name, url.PathEscape(name))
			return err
		})
		if forge.KindOf(err) == forge.NotFound {
			err = c.fetch(ctx, fmt.Sprintf("make label %q in %s", name, c.repo), func(ctx context.Context, gh *github.Client) error {
				_, _, err := gh.Issues.CreateLabel(ctx, c.repo.Owner, c.repo.Name, &github.Label{Name: &name, Color: new(labelColor)})
				if e, ok := errors.AsType[*github.ErrorResponse](err); ok && len(e.Errors) > 0 && e.Errors[0].Code == "already_exists" {
					return nil // by an attempt whose answer was lost, or by another client
				}
				return err
			})
			if err == nil {
				pr.Warn("label %q was missing in the repository and was created", name)
			}
		}
		if err != nil {
			if err = soft(pr, fmt.Sprintf("label %q is not set", name), err); err != nil {
				return err
			}
			continue
		}
		have = append(have, name)
	}
	if len(have) == 0 {
		return nil
	}
	return soft(pr, "labels are not set", c.fetch(ctx, fmt.Sprintf("label pull request #%d", pr.Number),
		func(ctx context.Context, gh *github.Client) error {
			// go-github sends a bare list; the API's description has an object.
			return c.send(ctx, gh, http.MethodPost, fmt.Sprintf("issues/%d/labels", pr.Number), map[string]any{"labels": have}, nil)
		}))
}

// ask requests reviews from people who were not asked yet and have not reviewed.
func (c *pulls) ask(ctx context.Context, pr *forge.PR, spec forge.PRSpec) error {
	users, teams := unique(spec.Reviewers), unique(spec.TeamReviewers)
	if len(users)+len(teams) == 0 {
		return nil
	}
	if !pr.Created {
		asked, err := c.reviewers(ctx, pr.Number)
		if err != nil {
			return err
		}
		users = slices.DeleteFunc(users, func(u string) bool { return asked[strings.ToLower(u)] })
		teams = slices.DeleteFunc(teams, func(t string) bool { return asked["team "+strings.ToLower(t)] })
	}
	warnings, err := c.RequestReviewers(ctx, pr.Number, users, teams)
	pr.Warnings = append(pr.Warnings, warnings...)
	return err
}

// reviewers lists, in lower case, the requested reviewers and those who have reviewed.
func (c *pulls) reviewers(ctx context.Context, n int) (map[string]bool, error) {
	asked := map[string]bool{}
	err := c.fetch(ctx, fmt.Sprintf("read pull request #%d of %s", n, c.repo), func(ctx context.Context, gh *github.Client) error {
		p, _, err := gh.PullRequests.Get(ctx, c.repo.Owner, c.repo.Name, n)
		if err != nil {
			return err
		}
		for _, u := range p.RequestedReviewers {
			asked[strings.ToLower(u.GetLogin())] = true
		}
		for _, t := range p.RequestedTeams {
			asked["team "+strings.ToLower(t.GetSlug())] = true
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	reviews, _, err := c.reviews(ctx, n)
	for _, r := range reviews {
		asked[strings.ToLower(r.GetUser().GetLogin())] = true
	}
	return asked, err
}

// RequestReviewers requests reviews from people and teams (by slug). GitHub refuses all names for one that is invalid;
// then each is requested alone, and refusals are warnings.
func (c *pulls) RequestReviewers(ctx context.Context, n int, users, teams []string) (warnings []string, err error) {
	users, teams = unique(users), unique(teams)
	if len(users)+len(teams) == 0 {
		return nil, nil
	}
	if err := c.needToken(fmt.Sprintf("request reviews of pull request #%d", n)); err != nil {
		return nil, err
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	send := func(users, teams []string) error {
		return c.fetch(ctx, fmt.Sprintf("ask %s for a review of pull request #%d", strings.Join(slices.Concat(users, teams), ", "), n),
			func(ctx context.Context, gh *github.Client) error {
				_, _, err := gh.PullRequests.RequestReviewers(ctx, c.repo.Owner, c.repo.Name, n, github.ReviewersRequest{
					Reviewers:     users,
					TeamReviewers: teams,
				})
				return err
			})
	}
	var pr forge.PR
	err = send(users, teams)
	if forge.KindOf(err) != forge.Invalid || len(users)+len(teams) == 1 {
		err = soft(&pr, "no review requested", err)
		return pr.Warnings, err
	}
	for _, u := range users {
		if err := soft(&pr, "no review requested from "+u, send([]string{u}, nil)); err != nil {
			return pr.Warnings, err
		}
	}
	for _, t := range teams {
		if err := soft(&pr, "no review requested from team "+t, send(nil, []string{t})); err != nil {
			return pr.Warnings, err
		}
	}
	return pr.Warnings, nil
}

// unique drops empty and repeated names, ignoring case.
func unique(names []string) []string {
	var out []string
	for _, n := range names {
		n = strings.TrimSpace(n)
		if n != "" && !slices.ContainsFunc(out, func(o string) bool { return strings.EqualFold(o, n) }) {
			out = append(out, n)
		}
	}
	return out
}
