package github_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/forge"
	"github.com/sandbox-agent/sandbox-agent/internal/test/forgetest"
)

// TestManyStrangers: questions for permissions are bounded, and who may write is asked for first.
func TestManyStrangers(t *testing.T) {
	t.Parallel()
	f, c, _ := scripted(t, forgetest.Options{})
	n := f.AddIssue("eve", "t", "b")
	for k := range 250 {
		who := fmt.Sprintf("sock%d", k)
		f.AddUser(who, forgetest.User{})
		f.AddComment(n, who, "+1")
	}
	f.AddUser("mem", forgetest.User{Permission: "write", Association: "CONTRIBUTOR"}) // a member, in private
	f.AddComment(n, "ann", "one")
	f.AddComment(n, "mem", "two")
	i, err := c.Issue(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	var writers []string
	for _, m := range i.Comments {
		if m.Author.CanWrite {
			writers = append(writers, m.Body)
		}
	}
	if asked := count(f, "repos/get-collaborator-permission-level"); asked > 201 || strings.Join(writers, " ") != "one two" ||
		!i.MoreCommands {
		t.Errorf("%d questions, %q, %v", asked, writers, i.MoreCommands)
	}
}

// TestUnknownOwner: where the forge does not say whose token it is, no mark makes a text ours. Nobody's text is edited, no
// thread counts as answered, and what could be ours commands nothing. The next client's question is answered again.
func TestUnknownOwner(t *testing.T) {
	t.Parallel()
	f, c, _ := scripted(t, forgetest.Options{})
	n := f.AddPull("ann", "hers", "", forgetest.Pull{Head: branch, Base: "main"})
	th := f.AddThread(n, forgetest.Thread{Path: "a.go", Line: 3}, "ann", "Why?")
	f.AddReply(th, "eve", "because\n\n"+forge.Mark("T-1/1"), false)
	f.AddComment(n, "eve", "hers\n\n"+forge.Mark("T-1/report"))
	f.AddComment(n, "robot", "ours\n\n"+forge.Mark("T-0/report"))
	no := forgetest.Fault{
		Op: "graphql", Query: "viewer", Status: 200, Times: 100,
		Body: `{"data":null,"errors":[{"type":"FORBIDDEN","message":"Resource not accessible by integration"}]}`,
	}
	f.Inject(no)
	fb, err := c.Feedback(t.Context(), n, time.Time{})
	if err != nil || len(fb.Items) != 3 || fb.Items[0].Answered || fb.Items[1].Ours || fb.Items[2].Author.CanWrite {
		t.Fatalf("%+v, %v", fb, err)
	}
	f.Inject(forgetest.Fault{Op: "issues/create-comment", Status: http.StatusBadGateway, After: true})
	if p, err := c.Comment(t.Context(), n, "T-1/report", "a report"); err != nil || !p.Created {
		t.Errorf("%+v, %v", p, err)
	}
	f.Inject(forgetest.Fault{Op: "pulls/create-reply-for-review-comment", Status: http.StatusBadGateway, After: true})
	if p, err := c.ReplyThread(t.Context(), n, th, "T-1/1", "a reply"); err != nil || !p.Created {
		t.Errorf("%+v, %v", p, err)
	}
	comments, thread := f.Comments(n), f.Threads(n)[0].Comments
	if len(comments) != 3 || !strings.HasPrefix(comments[0].Body, "hers") || comments[2].Author != "robot" || len(thread) != 3 ||
		!strings.HasPrefix(thread[1].Body, "because") {
		t.Errorf("%+v, %+v", comments, thread)
	}
}
