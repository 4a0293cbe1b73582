package forgetest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// maxBody is GitHub's limit of a body, in characters.
const maxBody = 65536

// operate carries out an operation.
func (s *Server) operate(c *call) answer {
	switch c.op.id {
	case "repos/get":
		return answer{status: http.StatusOK, body: s.repo("full-repository", "")}
	case "repos/get-collaborator-permission-level":
		return s.permission(c)
	case "apps/get-repo-installation":
		return answer{status: http.StatusOK, body: s.desc.sample("installation", object{"id": installation})}
	case "apps/create-installation-access-token":
		return s.mint(c)
	case "pulls/list":
		return s.listPulls(c)
	case "pulls/create":
		return s.createPull(c)
	case "issues/get-label", "issues/create-label":
		return s.labelOperation(c)
	case "issues/update-comment", "pulls/update-review-comment":
		return s.editComment(c)
	}
	n, _ := strconv.Atoi(cmp.Or(c.params["pull_number"], c.params["issue_number"]))
	i := s.issue(n)
	if i == nil || c.params["pull_number"] != "" && i.Pull == nil {
		return notFound()
	}
	return s.operateOn(c, i)
}

// operateOn carries out what is about one issue or pull request.
func (s *Server) operateOn(c *call, i *Issue) answer {
	switch c.op.id {
	case "pulls/get":
		return answer{status: http.StatusOK, body: s.pull("pull-request", i)}
	case "pulls/update":
		return s.updatePull(c, i)
	case "pulls/request-reviewers":
		return s.requestReviewers(c, i)
	case "pulls/list-reviews":
		all := []any{}
		for _, t := range s.reviews {
			if t.issue == i.Number {
				all = append(all, s.reviewView(t))
			}
		}
		return s.page(c, all)
	case "pulls/create-reply-for-review-comment":
		return s.reply(c, i)
	case "issues/get":
		return answer{status: http.StatusOK, body: s.issueView(i)}
	case "issues/list-comments":
		since, _ := time.Parse(time.RFC3339, c.http.URL.Query().Get("since"))
		all := []any{}
		for _, t := range s.comments {
			if t.issue == i.Number && !t.Edited.Before(since) {
				all = append(all, s.commentView(t))
			}
		}
		return s.page(c, all)
	case "issues/create-comment":
		if a, bad := tooLong(c.in["body"]); bad {
			return a
		}
		return answer{status: http.StatusCreated, body: s.commentView(s.comment(i.Number, c.login, c.in["body"].(string)))}
	case "issues/add-labels":
		return s.addLabels(c, i)
	}
	s.violation("%s: the operation is described and not there", c.op.id)
	return notFound()
}

func tooLong(body any) (answer, bool) {
	text, _ := body.(string)
	if utf8.RuneCountInString(text) <= maxBody {
		return answer{}, false
	}
	return invalid("Issue", "body", "custom", "body is too long (maximum is 65536 characters)"), true
}

func invalid(resource, field, code, message string) answer {
	e := object{"resource": resource, "field": field, "code": code}
	if message != "" {
		e["message"] = message
	}
	return refuse(http.StatusUnprocessableEntity, "Validation Failed", e)
}

func (s *Server) permission(c *call) answer {
	if !s.canWrite(c.login) {
		return refuse(http.StatusForbidden, "Must have push access to view collaborator permission.")
	}
	login := c.params["username"]
	u, ok := s.users[login]
	if !ok || u.Bot {
		return refuse(http.StatusNotFound, login+" is not a user")
	}
	role := cmp.Or(u.Permission, "none")
	level := map[string]string{"maintain": "write", "triage": "read"}[role]
	return answer{status: http.StatusOK, body: s.desc.sample("repository-collaborator-permission",
		object{"permission": cmp.Or(level, role), "role_name": role, "user": nil})}
}

func (s *Server) listPulls(c *call) answer {
	q := c.http.URL.Query()
	state := cmp.Or(q.Get("state"), "open")
	all := []any{}
	for _, i := range slices.Backward(s.issues) {
		if i.Pull == nil || state != "all" && state != i.State {
			continue
		}
		owner := s.opt.Owner
		if i.Pull.HeadRepo != "" {
			owner, _, _ = strings.Cut(i.Pull.HeadRepo, "/")
		}
		// A head without an owner is a filter that GitHub ignores.
		if h := q.Get("head"); strings.Contains(h, ":") && h != owner+":"+i.Pull.Head {
			continue
		}
		if b := q.Get("base"); b != "" && b != i.Pull.Base {
			continue
		}
		all = append(all, s.pull("pull-request-simple", i))
	}
	return s.page(c, all)
}

func (s *Server) createPull(c *call) answer {
	str := func(k string) string { v, _ := c.in[k].(string); return v }
	head, base := strings.TrimPrefix(str("head"), s.opt.Owner+":"), str("base")
	if a, bad := tooLong(c.in["body"]); bad {
		return a
	}
	headSHA, okHead := s.branch(head)
	baseSHA, okBase := s.branch(base)
	draft, _ := c.in["draft"].(bool)
	switch {
	case str("title") == "" || utf8.RuneCountInString(str("title")) > 256:
		return invalid("PullRequest", "title", "missing_field", "")
	case !okHead:
		return invalid("PullRequest", "head", "invalid", "")
	case !okBase:
		return invalid("PullRequest", "base", "invalid", "")
	case headSHA == baseSHA:
		return invalid("PullRequest", "", "custom", fmt.Sprintf("No commits between %s and %s", base, head))
	case draft && s.opt.NoDrafts:
		return refuse(http.StatusUnprocessableEntity, "Draft pull requests are not supported in this repository.")
	}
	for _, i := range s.issues {
		if i.Pull != nil && i.State == "open" && i.Pull.HeadRepo == "" && i.Pull.Head == head && i.Pull.Base == base {
			return invalid("PullRequest", "", "custom", fmt.Sprintf("A pull request already exists for %s:%s.", s.opt.Owner, head))
		}
	}
	i := s.add(&Issue{Author: c.login, Title: str("title"), Body: str("body"), Pull: &Pull{Head: head, Base: base, Draft: draft}})
	return answer{status: http.StatusCreated, body: s.pull("pull-request", i)}
}

func (s *Server) updatePull(c *call, i *Issue) answer {
	if a, bad := tooLong(c.in["body"]); bad {
		return a
	}
	if base, ok := c.in["base"].(string); ok {
		if _, there := s.branch(base); !there {
			return invalid("PullRequest", "base", "invalid", "")
		}
		i.Pull.Base = base
	}
	if v, ok := c.in["title"].(string); ok {
		i.Title = v
	}
	if v, ok := c.in["body"].(string); ok {
		i.Body = v
	}
	if v, ok := c.in["state"].(string); ok {
		i.State = v
	}
	return answer{status: http.StatusOK, body: s.pull("pull-request", i)}
}

func (s *Server) requestReviewers(c *call, i *Issue) answer {
	users, teams := texts(c.in["reviewers"]), texts(c.in["team_reviewers"])
	for _, u := range users {
		if u == i.Author {
			return refuse(http.StatusUnprocessableEntity, "Review cannot be requested from pull request author.")
		}
		if p := s.users[u].Permission; p == "" || p == "none" {
			return refuse(http.StatusUnprocessableEntity,
				"Reviews may only be requested from collaborators. One or more of the users or teams you specified is not a collaborator of "+
					"the "+s.opt.Owner+"/"+s.opt.Name+" repository.")
		}
	}
	for _, t := range teams {
		if !slices.Contains(s.teams, t) {
			return refuse(http.StatusUnprocessableEntity, "Could not resolve to a node with the global id of a team.")
		}
	}
	for _, u := range users {
		if !slices.Contains(i.Pull.Reviewers, u) {
			i.Pull.Reviewers = append(i.Pull.Reviewers, u)
		}
	}
	for _, t := range teams {
		if !slices.Contains(i.Pull.Teams, t) {
			i.Pull.Teams = append(i.Pull.Teams, t)
		}
	}
	return answer{status: http.StatusCreated, body: s.pull("pull-request-simple", i)}
}

func texts(v any) (out []string) {
	list, _ := v.([]any)
	for _, e := range list {
		if t, ok := e.(string); ok {
			out = append(out, t)
		}
	}
	return out
}

func (s *Server) reply(c *call, i *Issue) answer {
	id, _ := strconv.ParseInt(c.params["comment_id"], 10, 64)
	for _, t := range s.threads {
		// Only the first comment of a thread can be replied to.
		if t.pull == i.Number && t.Comments[0].ID == id {
			if a, bad := tooLong(c.in["body"]); bad {
				return a
			}
			t.Comments = append(t.Comments, Text{
				ID: s.id(), Author: c.login, Body: c.in["body"].(string), At: s.now(), issue: i.Number,
				replyTo: id,
			})
			return answer{status: http.StatusCreated, body: s.reviewComment(t, &t.Comments[len(t.Comments)-1])}
		}
	}
	return notFound()
}

func (s *Server) editComment(c *call) answer {
	id, _ := strconv.ParseInt(c.params["comment_id"], 10, 64)
	if a, bad := tooLong(c.in["body"]); bad {
		return a
	}
	edit := func(t *Text) bool {
		mine := t.Author == c.login || s.users[c.login].Permission == "admin"
		if mine {
			t.Body, t.Edited = c.in["body"].(string), s.now()
		}
		return mine
	}
	if c.op.id == "issues/update-comment" {
		for _, t := range s.comments {
			if t.ID == id {
				if !edit(t) {
					return refuse(http.StatusForbidden, "Must have admin rights to Repository.")
				}
				return answer{status: http.StatusOK, body: s.commentView(t)}
			}
		}
		return notFound()
	}
	for _, th := range s.threads {
		for i := range th.Comments {
			if t := &th.Comments[i]; t.ID == id {
				if !edit(t) {
					return refuse(http.StatusForbidden, "Must have admin rights to Repository.")
				}
				return answer{status: http.StatusOK, body: s.reviewComment(th, t)}
			}
		}
	}
	return notFound()
}

func (s *Server) hasLabel(name string) bool {
	return slices.ContainsFunc(s.labels, func(l string) bool { return strings.EqualFold(l, name) })
}

func (s *Server) labelOperation(c *call) answer {
	if c.op.id == "issues/get-label" {
		if !s.hasLabel(c.params["name"]) {
			return notFound()
		}
		return answer{status: http.StatusOK, body: s.label(c.params["name"])}
	}
	name, _ := c.in["name"].(string)
	if s.hasLabel(name) {
		return invalid("Label", "name", "already_exists", "")
	}
	if name == "" || utf8.RuneCountInString(name) > 50 {
		return invalid("Label", "name", "invalid", "")
	}
	s.labels = append(s.labels, name)
	return answer{status: http.StatusCreated, body: s.label(name)}
}

func (s *Server) addLabels(c *call, i *Issue) answer {
	var names []string
	if err := json.Unmarshal(c.body, &names); err != nil {
		names = texts(c.in["labels"])
	}
	for _, n := range names {
		if !s.hasLabel(n) {
			s.labels = append(s.labels, n) // GitHub makes them
		}
		if !slices.Contains(i.Labels, n) {
			i.Labels = append(i.Labels, n)
		}
	}
	return answer{status: http.StatusOK, body: s.labelList(i.Labels)}
}
