package github_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/forge"
	"github.com/sandbox-agent/sandbox-agent/internal/forge/forgetest"
)

// commands tells whether somebody who may write stands behind an item.
func commands(i *forge.Item) bool {
	return i.Author.CanWrite || slices.ContainsFunc(i.Replies, func(n forge.Note) bool { return n.Author.CanWrite && !n.Ours })
}

// TestIssueFlood: whoever may only read cannot take the room of those who may write, by number or by size.
func TestIssueFlood(t *testing.T) {
	t.Parallel()
	for name, flood := range map[string]struct {
		texts int
		body  string
	}{"by number": {600, "+1"}, "by size": {30, strings.Repeat("spam ", 6000)}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, c, _ := scripted(t, forgetest.Options{})
			n := f.AddIssue("eve", "t", "the problem")
			for range flood.texts {
				f.AddComment(n, "eve", flood.body)
			}
			f.AddComment(n, "ann", "Ten a page.")
			i, err := c.Issue(t.Context(), n)
			if err != nil {
				t.Fatal(err)
			}
			size := 0
			for _, m := range i.Comments {
				size += len(m.Body)
			}
			last := i.Comments[len(i.Comments)-1]
			if last.Body != "Ten a page." || i.Body != "the problem" || !i.More || i.MoreCommands || len(i.Comments) > 101 || size > 129<<10 || len(i.Comments) < 2 {
				t.Errorf("%d comments of %d bytes, more %v %v, the last %q", len(i.Comments), size, i.More, i.MoreCommands, last.Body)
			}
		})
	}
}

// TestFeedbackFlood: the same in review threads, also within those of people who may write.
func TestFeedbackFlood(t *testing.T) {
	t.Parallel()
	f, c, _ := scripted(t, forgetest.Options{})
	n := f.AddPull("ann", "hers", "", forgetest.Pull{Head: branch, Base: "main"})
	for k := range 560 {
		f.AddThread(n, forgetest.Thread{Path: "spam.go", Line: k + 1}, "eve", "spam")
	}
	endorsed := f.AddThread(n, forgetest.Thread{Path: "a.go", Line: 1}, "eve", "This divides by zero.")
	f.AddReply(endorsed, "ann", "Right, do that.", false)
	hers := f.AddThread(n, forgetest.Thread{Path: "b.go", Line: 1}, "ann", "Rename this.")
	for range 120 {
		f.AddReply(hers, "eve", "no", false)
	}
	late := f.AddThread(n, forgetest.Thread{Path: "c.go", Line: 1}, "eve", "And this overflows.")
	f.AddReply(late, "ann", "Yes.", false)
	f.AddReview(n, "ann", "CHANGES_REQUESTED", "See below.")
	f.AddComment(n, "ann", "And the docs.")
	fb, err := c.Feedback(t.Context(), n, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for k := range fb.Items {
		if i := &fb.Items[k]; commands(i) {
			got = append(got, i.Source+" "+i.Author.Login+" "+i.Body)
		}
		if k > 0 && fb.Items[k].At.Before(fb.Items[k-1].At) {
			t.Errorf("item %d is older than the one before", k)
		}
	}
	want := "thread eve This divides by zero.; thread ann Rename this.; thread eve And this overflows.; review ann See below.; comment ann And the docs."
	if strings.Join(got, "; ") != want || !fb.More || fb.MoreCommands {
		t.Errorf("got %q, more %v %v", got, fb.More, fb.MoreCommands)
	}
}

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
	if asked := count(f, "repos/get-collaborator-permission-level"); asked > 201 || strings.Join(writers, " ") != "one two" || !i.MoreCommands {
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
	no := forgetest.Fault{Op: "graphql", Query: "viewer", Status: 200, Times: 100, Body: `{"data":null,"errors":[{"type":"FORBIDDEN","message":"Resource not accessible by integration"}]}`}
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
	if len(comments) != 3 || !strings.HasPrefix(comments[0].Body, "hers") || comments[2].Author != "robot" || len(thread) != 3 || !strings.HasPrefix(thread[1].Body, "because") {
		t.Errorf("%+v, %+v", comments, thread)
	}
}

// TestForeignThread: an id is good in every repository that the token reaches. Only threads of the pull request are touched.
func TestForeignThread(t *testing.T) {
	t.Parallel()
	f, c, _ := scripted(t, forgetest.Options{})
	n := f.AddPull("ann", "hers", "", forgetest.Pull{Head: branch, Base: "main"})
	m := f.AddPull("ann", "another", "", forgetest.Pull{Head: "x", Base: "main"})
	elsewhere := f.AddThread(n, forgetest.Thread{Path: "a", Repo: "acme/payroll"}, "ann", "?")
	sibling := f.AddThread(m, forgetest.Thread{Path: "a"}, "ann", "?")
	for id, says := range map[string]string{elsewhere: fmt.Sprintf("#%d of acme/payroll", n), sibling: fmt.Sprintf("#%d of acme/app", m)} {
		_, err := c.ReplyThread(t.Context(), n, id, "T-1/1", "done")
		wantKind(t, err, forge.Invalid, says)
		wantKind(t, c.ResolveThread(t.Context(), n, id), forge.Invalid, says)
	}
	for _, number := range []int{n, m} {
		for _, th := range f.Threads(number) {
			if th.Resolved || len(th.Comments) != 1 {
				t.Errorf("%+v", th)
			}
		}
	}
	if got := count(f, "pulls/create-reply-for-review-comment"); got != 0 {
		t.Errorf("%d replies", got)
	}
}
