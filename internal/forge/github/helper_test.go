package github_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/forge"
	"github.com/sandbox-agent/sandbox-agent/internal/forge/github"
	"github.com/sandbox-agent/sandbox-agent/internal/test/forgetest"
)

const (
	token  = "ghp_canary0123456789"
	branch = forgetest.ConformanceBranch
)

// pauses records what a client waits for, instead of waiting.
type pauses struct {
	mu  sync.Mutex
	all []time.Duration
}

func (p *pauses) wait(ctx context.Context, d time.Duration) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = append(p.all, d)
	return ctx.Err()
}

// scripted is a forge with a bot account that the token belongs to, a client of it and its pauses.
// That nothing violates the description is checked at the test's end.
func scripted(t *testing.T, opt forgetest.Options) (*forgetest.Server, *github.Client, *pauses) {
	t.Helper()
	opt.Owner, opt.Name = "acme", "app"
	f := forgetest.New(opt)
	f.AddUser("robot", forgetest.User{Permission: "write"})
	f.AddUser("ann", forgetest.User{Permission: "maintain"})
	f.AddUser("eve", forgetest.User{Permission: "read"})
	f.AddToken(token, "robot")
	f.SetBranch(branch, forgetest.SHA("head"))
	remote, stop := f.Start()
	t.Cleanup(stop)
	t.Cleanup(func() {
		for _, v := range f.Violations() {
			t.Errorf("violation: %s", v)
		}
	})
	p := &pauses{}
	c, err := github.New(forge.Config{Remote: remote, Token: token})
	if err != nil {
		t.Fatal(err)
	}
	c.SetPause(p.wait)
	return f, c, p
}

func spec() forge.PRSpec {
	return forge.PRSpec{Head: branch, Base: "main", Title: "Add pagination", Body: "the body"}
}

// wantKind checks an error's kind and that the token is not in it.
func wantKind(t *testing.T, err error, kind forge.Kind, words ...string) forge.Error {
	t.Helper()
	e, ok := errors.AsType[*forge.Error](err)
	if !ok || e.Kind != kind {
		t.Fatalf("error %v (%s), want one of kind %s", err, forge.KindOf(err), kind)
	}
	if e.Next == "" || e.Doing == "" || e.Said == "" {
		t.Errorf("the error says too little: %+v", e)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error %q does not say %q", err, w)
		}
	}
	if strings.Contains(err.Error(), "canary") {
		t.Errorf("the token is in %q", err)
	}
	return *e
}

// count counts requests of an operation.
func count(f *forgetest.Server, op string) (n int) {
	for _, r := range f.Requests() {
		if r.Op == op {
			n++
		}
	}
	return n
}
