package github_test

import (
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/test/forgetest"
)

// TestAssociation: a token that may not ask for permissions believes only what is certain.
func TestAssociation(t *testing.T) {
	t.Parallel()
	for _, userOwned := range []bool{false, true} {
		f, c, _ := scripted(t, forgetest.Options{UserOwned: userOwned})
		f.AddUser("robot", forgetest.User{Permission: "read"})
		f.AddUser("acme", forgetest.User{Permission: "admin"})
		f.AddUser("mem", forgetest.User{Permission: "write", Association: "MEMBER"})
		n := f.AddIssue("acme", "t", "b")
		f.AddComment(n, "ann", "collaborator")
		f.AddComment(n, "mem", "member")
		i, err := c.Issue(t.Context(), n)
		if err != nil {
			t.Fatal(err)
		}
		if i.Author.CanWrite != userOwned || i.Comments[0].Author.CanWrite != userOwned || i.Comments[1].Author.CanWrite ||
			!i.Comments[1].Author.Guessed {
			t.Errorf("user owned %v: %+v", userOwned, i)
		}
	}
}

// TestPermissionIsAskedOnce: one question for each person, however much they wrote.
func TestPermissionIsAskedOnce(t *testing.T) {
	t.Parallel()
	f, c, _ := scripted(t, forgetest.Options{PageSize: 2})
	n := f.AddIssue("eve", "t", "b")
	for _, who := range []string{"ann", "eve", "stranger", "ann"} {
		f.AddComment(n, who, "text")
	}
	if _, err := c.Issue(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	if n := count(f, "repos/get-collaborator-permission-level"); n != 3 {
		t.Errorf("%d questions for permissions of three people", n)
	}
}
