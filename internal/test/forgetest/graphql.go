package forgetest

import (
	"cmp"
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// graphPage is the largest page of threads and comments unless Options.PageSize is less.
const graphPage = 50

// graphql answers the queries that review threads need.
func (s *Server) graphql(c *call) answer {
	if c.login == "" {
		return refuse(http.StatusUnauthorized, "Bad credentials")
	}
	var q struct {
		Query     string         `json:"query"`
		Variables map[string]any `json:"variables"`
	}
	if err := json.Unmarshal(c.body, &q); err != nil || c.http.Method != http.MethodPost {
		s.violation("graphql: a request that is no POST of a query: %v", err)
		return refuse(http.StatusBadRequest, "Problems parsing JSON")
	}
	str := func(k string) string { v, _ := q.Variables[k].(string); return v }
	for name := range q.Variables {
		if !strings.Contains(q.Query, "$"+name+":") {
			s.violation("graphql: variable %s is not declared", name)
		}
	}
	switch {
	case strings.Contains(q.Query, "resolveReviewThread("):
		if !s.canWrite(c.login) {
			return graphError("FORBIDDEN", "Resource not accessible by personal access token")
		}
		t := s.thread(str("id"))
		if t == nil {
			return graphError("NOT_FOUND", fmt.Sprintf("Could not resolve to a node with the global id of '%s'", str("id")))
		}
		t.Resolved, t.By = true, c.login
		return data(object{"resolveReviewThread": object{"thread": object{"isResolved": true}}})
	case strings.Contains(q.Query, "reviewThreads("):
		number, _ := q.Variables["number"].(float64)
		if !strings.EqualFold(str("owner"), s.opt.Owner) || !strings.EqualFold(str("name"), s.opt.Name) {
			return graphError("NOT_FOUND", "Could not resolve to a Repository with the name '"+str("owner")+"/"+str("name")+"'.")
		}
		i := s.issue(int(number))
		if i == nil || i.Pull == nil {
			return graphError("NOT_FOUND", fmt.Sprintf("Could not resolve to a PullRequest with the number of %d.", int(number)))
		}
		all := []any{}
		for _, t := range s.threads {
			if t.pull == i.Number && t.Repo == "" {
				all = append(all, s.threadNode(t))
			}
		}
		return data(object{"repository": object{"pullRequest": object{"reviewThreads": s.connection(all, str("after"))}}})
	case strings.Contains(q.Query, "nameWithOwner"):
		t := s.thread(str("id"))
		if t == nil {
			return graphError("NOT_FOUND", fmt.Sprintf("Could not resolve to a node with the global id of '%s'", str("id")))
		}
		own := s.opt.Owner + "/" + s.opt.Name
		home := cmp.Or(t.Repo, own)
		return data(object{
			"repository": object{"id": "R_" + own},
			"node":       object{"pullRequest": object{"number": t.pull, "repository": object{"id": "R_" + home, "nameWithOwner": home}}},
		})
	case strings.Contains(q.Query, "node("):
		t := s.thread(str("id"))
		if t == nil {
			return graphError("NOT_FOUND", fmt.Sprintf("Could not resolve to a node with the global id of '%s'", str("id")))
		}
		return data(object{"node": object{"comments": s.connection(s.commentNodes(t), str("after"))}})
	case strings.Contains(q.Query, "viewer"):
		return data(object{"viewer": object{"login": s.user(c.login)["login"]}})
	}
	s.violation("graphql: not a query of this server: %s", q.Query)
	return graphError("INVALID", "Parse error")
}

func data(v object) answer { return answer{status: http.StatusOK, body: object{"data": v}} }

func graphError(kind, message string) answer {
	return answer{status: http.StatusOK, body: object{"data": nil, "errors": []any{object{"type": kind, "message": message}}}}
}

// connection is a page of nodes; cursors are the index of the next one.
func (s *Server) connection(all []any, after string) object {
	from, _ := strconv.Atoi(after)
	from = min(max(from, 0), len(all))
	per := graphPage
	if s.opt.PageSize > 0 {
		per = min(per, s.opt.PageSize)
	}
	to := min(from+per, len(all))
	return object{"pageInfo": object{"hasNextPage": to < len(all), "endCursor": strconv.Itoa(to)}, "nodes": all[from:to]}
}

func (s *Server) threadNode(t *Thread) object {
	var line any
	if t.Line > 0 && !t.Outdated {
		line = t.Line
	}
	return object{
		"id": t.ID, "path": t.Path, "line": line, "originalLine": t.Line, "isResolved": t.Resolved, "isOutdated": t.Outdated,
		"comments": s.connection(s.commentNodes(t), ""),
	}
}

func (s *Server) commentNodes(t *Thread) []any {
	out := []any{}
	for i := range t.Comments {
		m := &t.Comments[i]
		var author any // of a deleted account: none
		if u, ok := s.users[m.Author]; ok {
			kind := "User"
			if u.Bot {
				kind = "Bot" // whose login has no [bot] here
			}
			author = object{"__typename": kind, "login": m.Author}
		}
		out = append(out, object{
			"databaseId": m.ID, "body": m.Body, "url": s.threadURL(t, m), "createdAt": stamp(m.At), "isMinimized": m.Hidden,
			"authorAssociation": s.association(m.Author), "author": author,
		})
	}
	return out
}

const (
	// installation is the id of the only one.
	installation = 4711
	// appUser is who an installation token belongs to.
	appUser = "sandbox-app"
	// maxClaim is the longest that GitHub takes a signature of an App for.
	maxClaim = 10 * time.Minute
)

// isApp checks the signature of the App.
func (s *Server) isApp(r *http.Request) bool {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	parts := strings.Split(token, ".")
	if !ok || len(parts) != 3 || s.opt.AppKey == nil {
		return false
	}
	sig, err := base64.RawURLEncoding.DecodeString(parts[2])
	sum := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	if err != nil || rsa.VerifyPKCS1v15(s.opt.AppKey, crypto.SHA256, sum[:], sig) != nil {
		return false
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	var claims struct {
		Issuer  string `json:"iss"`
		Issued  int64  `json:"iat"`
		Expires int64  `json:"exp"`
	}
	if err != nil || json.Unmarshal(text, &claims) != nil || claims.Issuer != s.opt.AppID {
		return false
	}
	now := time.Now()
	exp := time.Unix(claims.Expires, 0)
	return exp.After(now) && exp.Before(now.Add(maxClaim)) && !time.Unix(claims.Issued, 0).After(now)
}

// mint makes an installation token, which is valid for an hour.
func (s *Server) mint(c *call) answer {
	if c.params["installation_id"] != strconv.Itoa(installation) {
		return notFound()
	}
	for _, r := range texts(c.in["repositories"]) {
		if !strings.EqualFold(r, s.opt.Name) {
			return refuse(http.StatusUnprocessableEntity,
				"There is at least one repository that does not exist or is not accessible to the parent installation.")
		}
	}
	s.minted++
	token := fmt.Sprintf("ghs_installation%04d", s.minted)
	s.tokens[token] = appUser
	s.users[appUser] = User{Permission: "write", Bot: true, Association: "NONE"}
	return answer{status: http.StatusCreated, body: s.desc.sample("installation-token",
		object{"token": token, "expires_at": stamp(time.Now().Add(time.Hour))})}
}
