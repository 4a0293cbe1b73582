package github

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/google/go-github/v60/github"

	"github.com/sandbox-agent/sandbox-agent/internal/forge"
	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
)

// ghost is GitHub's name for deleted accounts.
const ghost = "ghost"

var loginRule = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9_-]{0,99}$`)

// person returns an author with permissions, which are requested once for each login.
func (c *people) person(ctx context.Context, login string, bot bool, association string) (forge.Person, error) {
	p := forge.Person{Login: forge.OneLine(login, 110), Bot: bot || strings.HasSuffix(login, "[bot]")}
	p.Login = cmp.Or(p.Login, ghost)
	if p.Bot && !strings.HasSuffix(p.Login, "[bot]") {
		p.Login += "[bot]"
	}
	// Bots are no collaborators, and other names are invalid on GitHub.
	if p.Bot || p.Login == ghost || !loginRule.MatchString(p.Login) {
		p.Permission = "none"
		return p, nil
	}
	key := strings.ToLower(p.Login)
	c.mu.Lock()
	got, ok := c.people[key]
	c.mu.Unlock()
	if !ok {
		var err error
		if got, err = c.permission(ctx, p.Login); err != nil {
			return p, err
		}
		c.mu.Lock()
		c.people[key] = got
		c.mu.Unlock()
	}
	p.Permission, p.CanWrite, p.Guessed = got.Permission, got.CanWrite, got.Guessed
	if !p.Guessed {
		return p, nil
	}
	return p, c.guess(ctx, &p, association)
}

func (c *people) permission(ctx context.Context, login string) (forge.Person, error) {
	var p forge.Person
	err := c.fetch(ctx, fmt.Sprintf("ask for the permission of %s on %s", login, c.repo), func(ctx context.Context, gh *github.Client) error {
		// go-github does not know the role's name in this version.
		var level struct {
			Permission string `json:"permission"`
			Role       string `json:"role_name"`
		}
		if err := c.send(ctx, gh, http.MethodGet, "collaborators/"+login+"/permission", nil, &level); err != nil {
			return err
		}
		// The permission merges maintain, triage and custom roles into their base.
		p.CanWrite = level.Permission == "admin" || level.Permission == "write"
		p.Permission = forge.OneLine(cmp.Or(level.Role, level.Permission, "none"), 100)
		return nil
	})
	switch forge.KindOf(err) {
	case forge.Permission, forge.Auth:
		return forge.Person{Guessed: true}, nil // a token without push access may not ask
	case forge.NotFound, forge.Invalid:
		return forge.Person{Permission: "none"}, nil // no user any more
	}
	return p, err
}

// guess derives the permission from the association. Members of an organization may have read access only.
func (c *people) guess(ctx context.Context, p *forge.Person, association string) error {
	p.CanWrite = association == "OWNER"
	if association != "COLLABORATOR" {
		return nil
	}
	full, err := c.repository(ctx)
	if err != nil {
		return err
	}
	p.CanWrite = full.GetOwner().GetType() == "User"
	return nil
}

func (c *people) repository(ctx context.Context) (*github.Repository, error) {
	c.mu.Lock()
	full := c.full
	c.mu.Unlock()
	if full != nil {
		return full, nil
	}
	err := c.fetch(ctx, "read repository "+c.repo.String(), func(ctx context.Context, gh *github.Client) error {
		r, _, err := gh.Repositories.Get(ctx, c.repo.Owner, c.repo.Name)
		full = r
		return err
	})
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.full = full
	c.mu.Unlock()
	return full, nil
}
