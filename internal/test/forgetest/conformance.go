package forgetest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/forge"
)

// Scene is a forge's repository as the suite sets it up and looks at it: what people do there, what is there then, and
// bad luck. *Server is one.
type Scene interface {
	AddUser(login string, u User)
	AddTeam(slug string)
	AddLabel(name string)
	SetBranch(name, sha string)
	AddIssue(author, title, body string) (number int)
	AddPull(author, title, body string, p Pull) (number int)
	Close(number int, merged bool)
	AddComment(number int, author, body string) (id int64)
	AddReview(number int, author, state, body string) (id int64)
	AddThread(number int, t Thread, author, body string) (id string)
	AddReply(thread, author, body string, hidden bool)

	Issue(number int) (Issue, bool)
	Pulls() (numbers []int)
	Comments(number int) []Text
	Threads(number int) []Thread
	// Writes counts the requests that were to change something.
	Writes() int

	// RevokeTokens makes the token of the forge under test one that is not accepted.
	RevokeTokens()
	// Break breaks the connection of the next request that creates something, before it was carried out or after.
	Break(what Creation, after bool)
	// Limit answers each request from now on that it is one too many, for that long.
	Limit(d time.Duration)
	// Down answers no request any more.
	Down()
}

// Creation is what a request creates.
type Creation int

// Creations.
const (
	CreatePR Creation = iota
	CreateComment
	CreateReply
)

// ConformanceBranch is the branch of the suite, with a commit that main has not, SHA("head").
const ConformanceBranch = "agent/T-1-x"

// Conformance tests what forge.Forge promises. open gives a new repository and the forge of it, which is the account
// robot there and waits for nothing. robot may write, ann may maintain, eve may read; main and ConformanceBranch are there. Pages
// of lists are as short as pageSize says, 0 means as long as they are.
func Conformance(t *testing.T, open func(t *testing.T, pageSize int) (Scene, forge.Forge)) {
	t.Helper()
	s := suite{open}
	t.Run("opened, then updated", s.openThenUpdate)
	t.Run("closed and merged", s.closedAndMerged)
	t.Run("kept", s.kept)
	t.Run("many pull requests", s.manyPulls)
	t.Run("refusals that are warnings", s.warnings)
	t.Run("refusals that are errors", s.refusals)
	t.Run("kinds of errors", s.kinds)
	t.Run("created once", s.createdOnce)
	t.Run("issue", s.issue)
	t.Run("feedback", s.feedback)
	t.Run("written once", s.once)
	t.Run("threads of others", s.foreignThread)
	t.Run("flood in an issue", s.issueFlood)
	t.Run("flood of feedback", s.feedbackFlood)
}

type suite struct {
	open func(t *testing.T, pageSize int) (Scene, forge.Forge)
}

func wanted() forge.PRSpec {
	return forge.PRSpec{Head: ConformanceBranch, Base: "main", Title: "Add pagination", Body: "the body"}
}

// wantKind checks an error's kind and that it says what was done, what happened and what to do, and not the token.
func wantKind(t *testing.T, f forge.Forge, err error, kind forge.Kind) forge.Error {
	t.Helper()
	e, ok := errors.AsType[*forge.Error](err)
	if !ok || e.Kind != kind {
		t.Fatalf("error %v (%s), want one of kind %s", err, forge.KindOf(err), kind)
	}
	if e.Next == "" || e.Doing == "" || e.Said == "" {
		t.Errorf("the error says too little: %+v", e)
	}
	if token, err := f.Token(context.WithoutCancel(t.Context())); err == nil && (token == "" || strings.Contains(e.Error(), token)) {
		t.Errorf("the token %q is in %q", token, e)
	}
	return *e
}

// mentions: a warning is about it.
func mentions(warnings []string, what string) bool {
	return slices.ContainsFunc(warnings, func(w string) bool { return strings.Contains(w, what) })
}

// kinds: an error says by its kind who has to do what.
func (s suite) kinds(t *testing.T) {
	t.Parallel()
	t.Run("not found", func(t *testing.T) {
		t.Parallel()
		scene, f := s.open(t, 0)
		_, err := f.PRByNumber(t.Context(), 99)
		wantKind(t, f, err, forge.NotFound)
		_, err = f.Issue(t.Context(), 99)
		wantKind(t, f, err, forge.NotFound)
		_, err = f.Feedback(t.Context(), 99, time.Time{})
		wantKind(t, f, err, forge.NotFound)
		n := scene.AddPull("ann", "hers", "", Pull{Head: ConformanceBranch, Base: "main"})
		_, err = f.ReplyThread(t.Context(), n, "PRRT_absent", "k", "x")
		wantKind(t, f, err, forge.NotFound)
		wantKind(t, f, f.ResolveThread(t.Context(), n, "PRRT_absent"), forge.NotFound)
	})
	t.Run("permission", func(t *testing.T) {
		t.Parallel()
		scene, f := s.open(t, 0)
		n := scene.AddPull("ann", "hers", "", Pull{Head: "x", Base: "main"})
		th := scene.AddThread(n, Thread{Path: "a"}, "ann", "?")
		scene.AddUser("robot", User{Permission: "read"})
		_, err := f.OpenPR(t.Context(), wanted())
		wantKind(t, f, err, forge.Permission)
		_, err = f.Comment(t.Context(), n, "k", "x")
		wantKind(t, f, err, forge.Permission)
		_, err = f.ReplyThread(t.Context(), n, th, "k", "x")
		wantKind(t, f, err, forge.Permission)
		wantKind(t, f, f.ResolveThread(t.Context(), n, th), forge.Permission)
	})
	t.Run("no valid token", func(t *testing.T) {
		t.Parallel()
		scene, f := s.open(t, 0)
		scene.RevokeTokens()
		_, err := f.OpenPR(t.Context(), wanted())
		wantKind(t, f, err, forge.Auth)
		_, err = f.PRByNumber(t.Context(), 99)
		wantKind(t, f, err, forge.Auth)
	})
	t.Run("a limit behind the deadline", func(t *testing.T) {
		t.Parallel()
		scene, f := s.open(t, 0)
		n := scene.AddIssue("ann", "t", "b")
		scene.Limit(time.Hour)
		// The forge waits for nothing here: the deadline only has to be earlier than the limit's end.
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := f.Issue(ctx, n)
		if e := wantKind(t, f, err, forge.RateLimited); !e.Until.After(time.Now()) {
			t.Errorf("until %v", e.Until)
		}
	})
	t.Run("down", func(t *testing.T) {
		t.Parallel()
		scene, f := s.open(t, 0)
		scene.Down()
		_, err := f.OpenPR(t.Context(), wanted())
		wantKind(t, f, err, forge.Unavailable)
		_, err = f.Issue(t.Context(), 1)
		wantKind(t, f, err, forge.Unavailable)
	})
	t.Run("ended by the caller", func(t *testing.T) {
		t.Parallel()
		_, f := s.open(t, 0)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := f.OpenPR(ctx, wanted())
		if wantKind(t, f, err, forge.Unavailable); !errors.Is(err, context.Canceled) {
			t.Errorf("the context's error is not in %v", err)
		}
	})
}

// createdOnce: whatever became of the request that creates, one thing is there.
func (s suite) createdOnce(t *testing.T) {
	t.Parallel()
	for name, after := range map[string]bool{"broken before": false, "broken after": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			scene, f := s.open(t, 0)
			scene.Break(CreatePR, after)
			pr, err := f.OpenPR(t.Context(), wanted())
			if err != nil || !pr.Created || len(scene.Pulls()) != 1 || scene.Pulls()[0] != pr.Number {
				t.Fatalf("got %+v, %v; %v", pr, err, scene.Pulls())
			}
			n := pr.Number
			scene.Break(CreateComment, after)
			if got, err := f.Comment(t.Context(), n, "k", "text"); err != nil || got.ID == 0 || !got.Created || len(scene.Comments(n)) != 1 {
				t.Errorf("comment: %+v, %v; %v", got, err, scene.Comments(n))
			}
			th := scene.AddThread(n, Thread{Path: "a"}, "ann", "?")
			scene.Break(CreateReply, after)
			if got, err := f.ReplyThread(t.Context(), n, th, "k", "text"); err != nil || got.ID == 0 || !got.Created ||
				len(scene.Threads(n)[0].Comments) != 2 {
				t.Errorf("reply: %+v, %v; %v", got, err, scene.Threads(n))
			}
		})
	}
}
