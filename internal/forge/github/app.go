package github

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/google/go-github/v60/github"

	"github.com/sandbox-agent/sandbox-agent/internal/forge"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const (
	// appClaim is the validity of the App's signature; GitHub accepts at most 10 minutes.
	appClaim = 9 * time.Minute
	// appSkew dates it back, as GitHub advises, because clocks differ.
	appSkew = time.Minute
	// tokenMargin is how early an installation token is renewed: a push that begins now must end before.
	tokenMargin = 10 * time.Minute
)

func appKey(a *workorder.ForgeApp) (*rsa.PrivateKey, error) {
	block, _ := pem.Decode([]byte(a.PrivateKey))
	if block == nil || a.ID == "" {
		return nil, errors.New("a GitHub App needs its id and a private key in PEM form")
	}
	if k, err := x509.ParsePKCS1PrivateKey(block.Bytes); err == nil {
		return k, nil
	}
	k, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if rsaKey, ok := k.(*rsa.PrivateKey); ok && err == nil {
		return rsaKey, nil
	}
	return nil, errors.New("the private key of the GitHub App is not an RSA key")
}

type tokens struct {
	fixed string
	app   *workorder.ForgeApp
	key   *rsa.PrivateKey

	renew        sync.Mutex // one renewal at a time
	mu           sync.Mutex
	installation int64
	current, old string
	until        time.Time
}

// known returns the values that must not be shown.
func (t *tokens) known() map[string]string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return map[string]string{"token": t.fixed, "installation token": t.current, "former installation token": t.old}
}

// forget drops a refused installation token; false if it cannot be renewed.
func (t *tokens) forget() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.app == nil || t.current == "" {
		return false
	}
	t.old, t.current = t.current, ""
	return true
}

func (t *tokens) valid(now time.Time) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.current != "" && now.Add(tokenMargin).Before(t.until) {
		return t.current
	}
	return ""
}

// Token returns the fixed token, or an installation token that is valid for at least ten minutes; "" without
// credentials. It also serves git over HTTP.
func (c *api) Token(ctx context.Context) (string, error) {
	if c.token.app == nil {
		return c.token.fixed, nil
	}
	c.token.renew.Lock()
	defer c.token.renew.Unlock()
	if tok := c.token.valid(c.now()); tok != "" {
		return tok, nil
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	if err := c.known(ctx); err != nil {
		return "", c.classify(ctx, "get an installation token", err)
	}
	return c.mint(ctx)
}

func (c *api) mint(ctx context.Context) (string, error) {
	const doing = "get an installation token of the GitHub App"
	signed, err := sign(c.token.app.ID, c.token.key, c.now())
	if err != nil {
		return "", forge.NewError(forge.Auth, doing, err.Error(), "check the App's private key")
	}
	ctx = withAuth(ctx, signed)
	gh := c.client()
	id := max(c.token.app.Installation, c.token.installation)
	if id == 0 {
		in, _, err := gh.Apps.FindRepositoryInstallation(ctx, c.repo.Owner, c.repo.Name)
		if err != nil {
			return "", c.appError(ctx, "find the GitHub App's installation for "+c.repo.String(), err)
		}
		id = in.GetID()
	}
	made, _, err := gh.Apps.CreateInstallationToken(ctx, id, &github.InstallationTokenOptions{Repositories: []string{c.repo.Name}})
	if err != nil {
		return "", c.appError(ctx, doing, err)
	}
	if made.GetToken() == "" {
		return "", forge.NewError(forge.Unavailable, doing, "the answer contains no token", "")
	}
	c.token.mu.Lock()
	defer c.token.mu.Unlock()
	if c.token.current != "" {
		c.token.old = c.token.current
	}
	c.token.installation, c.token.current, c.token.until = id, made.GetToken(), made.GetExpiresAt().Time
	return c.token.current, nil
}

// appError returns an error with a next step for an App instead of a token.
func (c *api) appError(ctx context.Context, doing string, err error) error {
	e := c.classify(ctx, doing, err)
	switch e.Kind {
	case forge.Auth:
		e.Next = "check the App's id and private key, and this machine's clock"
	case forge.NotFound, forge.Permission, forge.Invalid:
		e.Next = "install the App on the repository, with write access to pull requests, issues and contents"
	}
	return e
}

// sign returns a JSON Web Token with RS256.
func sign(id string, key *rsa.PrivateKey, now time.Time) (string, error) {
	claims, err := json.Marshal(map[string]any{"iss": id, "iat": now.Add(-appSkew).Unix(), "exp": now.Add(appClaim).Unix()})
	if err != nil {
		return "", err
	}
	enc := base64.RawURLEncoding
	text := enc.EncodeToString([]byte(`{"alg":"RS256","typ":"JWT"}`)) + "." + enc.EncodeToString(claims)
	sum := sha256.Sum256([]byte(text))
	sig, err := rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, sum[:])
	if err != nil {
		return "", err
	}
	return strings.Join([]string{text, enc.EncodeToString(sig)}, "."), nil
}
