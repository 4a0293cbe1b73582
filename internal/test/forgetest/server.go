package forgetest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
)

// maxRequest bounds a body; GitHub's own limit is of this order.
const maxRequest = 1 << 20

type answer struct {
	status int
	body   any
	header map[string]string
}

func refuse(status int, message string, errs ...object) answer {
	body := object{"message": message, "documentation_url": "https://docs.github.com/rest"}
	if len(errs) > 0 {
		list := make([]any, 0, len(errs))
		for _, e := range errs {
			list = append(list, e)
		}
		body["errors"] = list
	}
	return answer{status: status, body: body}
}

func notFound() answer { return refuse(http.StatusNotFound, "Not Found") }

type call struct {
	op     *operation
	params map[string]string
	body   []byte
	in     object // body, decoded
	http   *http.Request
	login  string
}

// ServeHTTP answers a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
	if err != nil {
		http.Error(w, "the body cannot be read", http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	path := r.URL.EscapedPath()
	req := Request{Method: r.Method, Path: r.URL.RequestURI(), Body: string(body), Login: s.login(r)}
	c := &call{http: r, body: body, login: req.Login}
	graph := path == "/graphql" || path == "/api/graphql"
	exists := graph
	if graph {
		req.Op = "graphql"
	} else if c.op, c.params, exists = s.desc.find(r.Method, strings.TrimPrefix(path, "/api/v3")); c.op != nil {
		req.Op = c.op.id
	}
	f := s.fault(req.Op, req.Body)
	var a answer
	switch {
	case f != nil && !f.After:
	case !exists:
		a = notFound()
	case graph:
		a = s.graphql(c)
	case c.op == nil:
		s.violation("%s %s: the description has the path and not the method", r.Method, path)
		a = refuse(http.StatusMethodNotAllowed, "Method Not Allowed")
	default:
		a = s.rest(c)
	}
	s.send(w, c, req, a, f)
}

// send writes the answer, or the bad luck in its place.
func (s *Server) send(w http.ResponseWriter, c *call, req Request, a answer, f *Fault) {
	if f != nil && f.Drop {
		s.requests = append(s.requests, req)
		panic(http.ErrAbortHandler) // the way to break a connection; the lock is released by the caller
	}
	h := w.Header()
	h.Set("Content-Type", "application/json; charset=utf-8")
	h.Set("X-GitHub-Request-Id", fmt.Sprintf("TEST:%d", len(s.requests)))
	h.Set("X-RateLimit-Limit", "5000")
	h.Set("X-RateLimit-Remaining", "4999")
	var data []byte
	if f != nil {
		a = answer{status: f.Status, header: f.Header}
		data = []byte(f.Body)
	} else {
		var buf bytes.Buffer
		enc := json.NewEncoder(&buf)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(a.body); err != nil {
			s.violation("%s: the answer cannot be written: %v", req.Op, err)
		}
		data = buf.Bytes()
		if c.op != nil {
			if err := s.desc.checkResponse(c.op, a.status, data); err != nil {
				s.violation("%s: our answer %d does not fit the description: %v", req.Op, a.status, err)
			}
		}
	}
	for k, v := range a.header {
		h.Set(k, v)
	}
	req.Status = a.status
	s.requests = append(s.requests, req)
	w.WriteHeader(a.status)
	_, _ = w.Write(data) // a client that is gone reads nothing
}

// fault is the bad luck that is due for an operation.
func (s *Server) fault(op, body string) *Fault {
	for i, f := range s.faults {
		if (f.Op == "" || f.Op == op) && strings.Contains(body, f.Query) {
			if f.Times--; f.Times == 0 {
				s.faults = append(s.faults[:i:i], s.faults[i+1:]...)
			}
			return f
		}
	}
	return nil
}

// login is who a request's token belongs to, "" without a known one.
func (s *Server) login(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "bearer") && !strings.EqualFold(scheme, "token") {
		return ""
	}
	return s.tokens[token]
}

// rest checks a request as GitHub would, and more strictly, and carries it out.
func (s *Server) rest(c *call) answer {
	app := strings.HasPrefix(c.op.id, "apps/")
	switch {
	case c.http.Header.Get("User-Agent") == "":
		return refuse(http.StatusForbidden, "Request forbidden by administrative rules. Please make sure your request has a User-Agent header")
	case c.op.id == "meta/get":
		return answer{status: http.StatusOK, body: s.desc.sample("api-overview", object{"verifiable_password_authentication": true})}
	case app && !s.isApp(c.http):
		return refuse(http.StatusUnauthorized, "A JSON web token could not be decoded")
	case !app && c.login == "":
		return refuse(http.StatusUnauthorized, "Bad credentials")
	}
	if err := s.desc.checkQuery(c.op, c.http.URL.Query()); err != nil {
		s.violation("%s: %v", c.op.id, err)
		return refuse(http.StatusUnprocessableEntity, "Validation Failed: "+err.Error())
	}
	if err := s.desc.checkRequest(c.op, c.body); err != nil {
		s.violation("%s: %v", c.op.id, err)
		return refuse(http.StatusUnprocessableEntity, "Invalid request.\n\n"+err.Error())
	}
	if len(c.body) > 0 {
		if c.http.Header.Get("Content-Type") != "application/json" {
			s.violation("%s: a body of type %q", c.op.id, c.http.Header.Get("Content-Type"))
		}
		_ = json.Unmarshal(c.body, &c.in) // a list of labels stays what it is
	}
	if o, ok := c.params["owner"]; ok && (!strings.EqualFold(o, s.opt.Owner) || !strings.EqualFold(c.params["repo"], s.opt.Name)) {
		return notFound()
	}
	if !app && c.op.method != http.MethodGet && !s.canWrite(c.login) {
		return refuse(http.StatusForbidden, "Resource not accessible by personal access token")
	}
	return s.operate(c)
}

func (s *Server) canWrite(login string) bool {
	switch s.users[login].Permission {
	case "admin", "maintain", "write":
		return true
	}
	return false
}

// Start serves at an address of its own until close is called. The remote is a clone URL on it.
func (s *Server) Start() (remote string, closeServer func()) {
	srv := httptest.NewServer(s)
	return srv.URL + "/" + s.opt.Owner + "/" + s.opt.Name + ".git", srv.Close
}
