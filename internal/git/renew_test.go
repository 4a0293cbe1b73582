package git_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
)

// A token that expires is asked for at each call.
func TestTokenThatIsRenewed(t *testing.T) {
	t.Parallel()
	const second = ` se\cond=%s ` // git gets it as it is
	srv := gittest.New(t, second)
	url := srv.Create(t, "r.git", nil)
	tokens, err := []string{"first", second}, error(nil)
	a := &git.Auth{URL: url, Renew: func(context.Context) (string, error) {
		next := tokens[0]
		tokens = tokens[1:]
		return next, err
	}}
	r := git.Repo{Dir: t.TempDir(), Auth: a}
	if err := r.Run(t.Context(), "ls-remote", url); git.KindOf(err) != git.KindAuth {
		t.Errorf("with the expired one: %v", err)
	}
	if err := r.Run(t.Context(), "ls-remote", url); err != nil {
		t.Errorf("with the new one: %v", err)
	}
	tokens, err = []string{""}, errors.New("the forge is away")
	if err := r.Run(t.Context(), "ls-remote", url); err == nil || !strings.Contains(err.Error(), "renew the token") {
		t.Errorf("without one: %v", err)
	}
}
