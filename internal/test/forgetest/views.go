package forgetest

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"
)

const timeForm = "2006-01-02T15:04:05Z"

func stamp(t time.Time) string { return t.UTC().Format(timeForm) }

// user is an account as REST gives it.
func (s *Server) user(login string) object {
	kind := "User"
	if s.users[login].Bot {
		kind, login = "Bot", login+"[bot]"
	}
	return s.desc.sample("simple-user", object{"login": login, "type": kind})
}

func (s *Server) userList(logins []string) []any {
	out := []any{}
	for _, l := range logins {
		out = append(out, s.user(l))
	}
	return out
}

// association of an account with the repository.
func (s *Server) association(login string) string {
	u, ok := s.users[login]
	switch {
	case u.Association != "":
		return u.Association
	case s.opt.UserOwned && login == s.opt.Owner:
		return "OWNER"
	case ok && s.canWrite(login):
		return "COLLABORATOR"
	}
	return "NONE"
}

func (s *Server) repo(schema, fullName string) object {
	kind := "Organization"
	if s.opt.UserOwned {
		kind = "User"
	}
	if fullName == "" {
		fullName = s.opt.Owner + "/" + s.opt.Name
	}
	owner := s.desc.sample("simple-user", object{"login": s.opt.Owner, "type": kind})
	return s.desc.sample(schema, object{"full_name": fullName, "name": s.opt.Name, "owner": owner, "default_branch": s.opt.DefaultBranch})
}

func (s *Server) url(i *Issue, fragment string) string {
	kind := "issues"
	if i.Pull != nil {
		kind = "pull"
	}
	return fmt.Sprintf("http://forge.invalid/%s/%s/%s/%d%s", s.opt.Owner, s.opt.Name, kind, i.Number, fragment)
}

// pull is a pull request: "pull-request" by itself, "pull-request-simple" in lists.
func (s *Server) pull(schema string, i *Issue) object {
	p := i.Pull
	sha, _ := s.branch(p.Head)
	baseSHA, _ := s.branch(p.Base)
	out := s.desc.sample(schema, object{
		"number": i.Number, "state": i.State, "title": i.Title, "body": i.Body, "draft": p.Draft, "html_url": s.url(i, ""),
		"user": s.user(i.Author), "author_association": s.association(i.Author), "labels": s.labelList(i.Labels),
		"assignees":           []any{},
		"requested_reviewers": s.userList(p.Reviewers), "requested_teams": s.teamList(p.Teams), "created_at": stamp(i.At),
		"updated_at": stamp(i.At),
	})
	merge(out, "head", object{
		"ref": p.Head, "sha": sha, "repo": s.repo("repository", p.HeadRepo), "user": s.user(i.Author),
		"label": s.opt.Owner + ":" + p.Head,
	})
	merge(out, "base", object{
		"ref": p.Base, "sha": baseSHA, "repo": s.repo("repository", ""), "user": s.user(i.Author),
		"label": s.opt.Owner + ":" + p.Base,
	})
	if p.Merged {
		out["merged_at"] = stamp(i.At)
		if schema == "pull-request" {
			out["merged"] = true
		}
	}
	return out
}

// merge lays properties over those of an inner object.
func merge(out object, name string, over object) {
	inner, _ := out[name].(object)
	if inner == nil {
		inner = object{}
	}
	maps.Copy(inner, over)
	out[name] = inner
}

func (s *Server) labelList(names []string) []any {
	out := []any{}
	for _, n := range names {
		out = append(out, s.label(n))
	}
	return out
}

func (s *Server) label(name string) object {
	return s.desc.sample("label", object{"name": name, "color": "ededed", "description": ""})
}

func (s *Server) teamList(slugs []string) []any {
	out := []any{}
	for _, t := range slugs {
		out = append(out, s.desc.sample("team", object{"slug": t, "name": t}))
	}
	return out
}

func (s *Server) issueView(i *Issue) object {
	out := s.desc.sample("issue", object{
		"number": i.Number, "state": i.State, "title": i.Title, "body": i.Body, "html_url": s.url(i, ""), "user": s.user(i.Author),
		"author_association": s.association(i.Author), "labels": s.labelList(i.Labels), "assignees": []any{},
		"created_at": stamp(i.At), "updated_at": stamp(i.At),
	})
	if i.Pull != nil {
		out["pull_request"] = object{
			"url": s.url(i, ""), "html_url": s.url(i, ""), "diff_url": s.url(i, ".diff"),
			"patch_url": s.url(i, ".patch"),
		}
	}
	return out
}

func (s *Server) commentView(t *Text) object {
	return s.desc.sample("issue-comment", object{
		"id": t.ID, "body": t.Body, "user": s.user(t.Author), "author_association": s.association(t.Author),
		"created_at": stamp(t.At), "updated_at": stamp(t.Edited), "html_url": s.url(s.issue(t.issue), fmt.Sprintf("#issuecomment-%d", t.ID)),
	})
}

func (s *Server) reviewView(t *Text) object {
	out := s.desc.sample("pull-request-review", object{
		"id": t.ID, "body": t.Body, "state": t.State, "user": s.user(t.Author), "author_association": s.association(t.Author),
		"html_url": s.url(s.issue(t.issue), fmt.Sprintf("#pullrequestreview-%d", t.ID)),
	})
	if t.State != "PENDING" {
		out["submitted_at"] = stamp(t.At)
	}
	return out
}

func (s *Server) reviewComment(th *Thread, t *Text) object {
	out := s.desc.sample("pull-request-review-comment", object{
		"id": t.ID, "body": t.Body, "path": th.Path, "user": s.user(t.Author), "author_association": s.association(t.Author),
		"created_at": stamp(t.At), "updated_at": stamp(t.At), "html_url": s.threadURL(th, t),
	})
	if t.replyTo != 0 {
		out["in_reply_to_id"] = t.replyTo
	}
	return out
}

func (s *Server) threadURL(th *Thread, t *Text) string {
	return s.url(s.issue(th.pull), fmt.Sprintf("#discussion_r%d", t.ID))
}

// page cuts a list as page and per_page say, with the Link header that leads on.
func (s *Server) page(c *call, all []any) answer {
	q := c.http.URL.Query()
	per, err := strconv.Atoi(q.Get("per_page"))
	if err != nil {
		per = 30 // GitHub's default
	}
	per = min(max(per, 1), 100)
	if s.opt.PageSize > 0 {
		per = min(per, s.opt.PageSize)
	}
	n, _ := strconv.Atoi(q.Get("page"))
	n = max(n, 1)
	from, to := min((n-1)*per, len(all)), min(n*per, len(all))
	a := answer{status: http.StatusOK, body: slices.Clone(all[from:to])}
	if len(all) == 0 || from == to {
		a.body = []any{}
	}
	if to < len(all) {
		q.Set("page", strconv.Itoa(n+1))
		next := url.URL{Scheme: "http", Host: c.http.Host, Path: c.http.URL.Path, RawQuery: q.Encode()}
		a.header = map[string]string{"Link": fmt.Sprintf(`<%s>; rel="next"`, next.String())}
	}
	return a
}
