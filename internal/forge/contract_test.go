//go:build e2e

package forge

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-github/v60/github"

	"github.com/sandbox-agent/sandbox-agent/internal/forge/forgetest"
)

const (
	prism         = "@stoplight/prism-cli@5.16.0"
	graphqlSchema = "@octokit/graphql-schema@15.26.1"
	graphqlTool   = "graphql@16.15.0"
	// startLimit bounds the mock server's start, which takes a few seconds on two cores.
	startLimit = 2 * time.Minute
)

// npmInstall puts packages into a folder of the test's own.
func npmInstall(t *testing.T, packages ...string) string {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "npm", append([]string{"install", "--prefix", dir, "--no-audit", "--no-fund", "--ignore-scripts"}, packages...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("npm install %v: %v\n%s", packages, err, out)
	}
	return filepath.Join(dir, "node_modules")
}

// seen is what the independent server said to one request.
type seen struct {
	method, path, violations string
	status                   int
}

// independent starts the mock server that Prism makes of the description. A proxy before it notes what it
// says, marks answers as GitHub does, asks it for the refusal of a label that is missing, and answers GraphQL.
func independent(t *testing.T) (addr string, requests func() []seen) {
	t.Helper()
	modules := npmInstall(t, prism)
	doc := filepath.Join(t.TempDir(), "github.json")
	if err := os.WriteFile(doc, forgetest.Excerpt(), 0o600); err != nil {
		t.Fatal(err)
	}
	// A port that was free a moment ago.
	free := httptest.NewServer(http.NotFoundHandler())
	u, err := url.Parse(free.URL)
	if err != nil {
		t.Fatal(err)
	}
	free.Close()
	cmd := exec.CommandContext(t.Context(), "node", filepath.Join(modules, "@stoplight", "prism-cli", "dist", "index.js"), "mock", "--port", u.Port(), "--host", "127.0.0.1", "--multiprocess=false", doc)
	log := &strings.Builder{}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String()+"/meta", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if resp, err := http.DefaultClient.Do(req); err == nil {
			resp.Body.Close()
			break
		}
		if err := sleep(ctx, 100*time.Millisecond); err != nil {
			t.Fatalf("the mock server did not start within %v", startLimit)
		}
	}
	var mu sync.Mutex
	var all []seen
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(u)
			r.Out.URL.Path = strings.TrimPrefix(r.In.URL.Path, "/api/v3")
			r.Out.URL.RawPath = strings.TrimPrefix(r.In.URL.EscapedPath(), "/api/v3")
			// GitHub's own media types, which the description names in prose only, are JSON.
			if strings.HasPrefix(r.In.Header.Get("Accept"), "application/vnd.github.") {
				r.Out.Header.Set("Accept", "application/json")
			}
			if strings.HasSuffix(r.Out.URL.Path, "/labels/missing one") {
				r.Out.Header.Set("Prefer", "code=404")
			}
		},
		ModifyResponse: func(r *http.Response) error {
			r.Header.Set("X-GitHub-Request-Id", "1")
			// The description does not say that this text is a time, and the mock makes up any.
			if strings.HasSuffix(r.Request.URL.Path, "/access_tokens") {
				body, err := io.ReadAll(r.Body)
				body = bytes.Replace(body, []byte(`"expires_at":"string"`), []byte(`"expires_at":"2100-01-01T00:00:00Z"`), 1)
				r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
				r.Header.Set("Content-Length", strconv.Itoa(len(body)))
				if err != nil {
					return err
				}
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, seen{r.Request.Method, r.Request.URL.EscapedPath(), r.Header.Get("Sl-Violations"), r.StatusCode})
			return nil
		},
	}
	mux := http.NewServeMux()
	mux.Handle("/api/v3/", proxy)
	mux.HandleFunc("/api/graphql", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"data": {"viewer": {"login": "app[bot]"}}}`)
	})
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	return srv.URL, func() []seen { mu.Lock(); defer mu.Unlock(); return slices.Clone(all) }
}

// TestContract: a server that others made of GitHub's own description takes every REST request of ours, and
// we understand every answer that it makes up. The operations are all there are in the excerpt.
func TestContract(t *testing.T) {
	addr, requests := independent(t)
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	key := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(rsaKey)})
	c, err := New(Config{Remote: addr + "/octo/repo.name.git", App: &AppKey{ID: "Iv1.x", PEM: key}})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	if tok, err := c.Token(ctx); err != nil || tok == "" {
		t.Fatalf("token: %q, %v", tok, err)
	}

	spec := PRSpec{
		Head: "b", Base: "main", Title: "t", Body: "text", Draft: true, Labels: []string{"a b/c", "missing one"},
		Reviewers: []string{"ann"}, TeamReviewers: []string{"core"}, Assignees: []string{"ann"},
	}
	var old github.PullRequest
	if err := json.Unmarshal([]byte(`{"number": 7, "title": "old", "base": {"ref": "old"}}`), &old); err != nil {
		t.Fatal(err)
	}
	var reply github.PullRequestComment
	for name, call := range map[string]func() error{
		"open": func() error {
			pr, err := c.OpenPR(ctx, spec)
			return said(err, pr.Created && pr.URL != "")
		},
		"update": func() error { _, err := c.updatePR(ctx, &old, spec, "body"); return err },
		"dress":  func() error { return c.dress(ctx, &PR{Number: 7}, spec) },
		"read":   func() error { pr, err := c.PRByNumber(ctx, 7); return said(err, pr.URL != "") },
		"issue":  func() error { i, err := c.Issue(ctx, 7); return said(err, i.Author.Login != "" && len(i.Comments) > 0) },
		"label": func() error {
			return said(nil, labelName(json.RawMessage(`"a"`)) == "a" && labelName(json.RawMessage(`{"name": "b"}`)) == "b")
		},
		"since":   func() error { _, _, err := c.comments(ctx, 7, time.Now()); return err },
		"comment": func() error { p, err := c.Comment(ctx, 7, "key", "text"); return said(err, p.Created) },
		"edit":    func() error { return c.editComment(ctx, 7, 1, "text") },
		"reply": func() error {
			return c.fetch(ctx, "reply", func(ctx context.Context, gh *github.Client) error { return c.reply(ctx, gh, 7, 1, "text", &reply) })
		},
		"edit a reply": func() error { return c.editReply(ctx, 7, 1, "text") },
		"permission": func() error {
			p, err := c.person(ctx, "ann", false, "MEMBER")
			return said(err, p.Permission != "" && !p.Guessed)
		},
		"repository": func() error { r, err := c.repository(ctx); return said(err, r.GetOwner().GetType() != "") },
	} {
		if err := call(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	covered(t, requests())
}

// said is an error when the answer was not understood.
func said(err error, understood bool) error {
	if err == nil && !understood {
		return errors.New("the answer was not understood")
	}
	return err
}

// covered checks that nothing was refused and every operation of the excerpt was asked for.
func covered(t *testing.T, all []seen) {
	t.Helper()
	var doc struct {
		Paths map[string]map[string]any `json:"paths"`
	}
	if err := json.Unmarshal(forgetest.Excerpt(), &doc); err != nil {
		t.Fatal(err)
	}
	left := map[string]bool{}
	for path, methods := range doc.Paths {
		for m := range methods {
			left[strings.ToUpper(m)+" "+path] = true
		}
	}
	for _, s := range all {
		if s.status >= 400 && !strings.HasSuffix(s.path, "/labels/missing%20one") || s.violations != "" {
			t.Errorf("%s %s: %d %s", s.method, s.path, s.status, s.violations)
		}
		for op := range left {
			m, path, _ := strings.Cut(op, " ")
			if m == s.method && matches(path, s.path) {
				delete(left, op)
			}
		}
	}
	for op := range left {
		t.Errorf("not asked for: %s", op)
	}
	t.Logf("%d requests", len(all))
}

func matches(template, path string) bool {
	return slices.EqualFunc(strings.Split(template, "/"), strings.Split(path, "/"), func(x, y string) bool {
		return x == y || strings.HasPrefix(x, "{") && y != "comments"
	})
}

// TestQueries: the queries are valid by GitHub's public GraphQL schema.
func TestQueries(t *testing.T) {
	modules := npmInstall(t, graphqlSchema, graphqlTool)
	script := `const {buildSchema, parse, validate} = require("graphql");
const schema = buildSchema(require("fs").readFileSync(process.argv[1] + "/@octokit/graphql-schema/schema.graphql", "utf8"), {assumeValidSDL: true}); // it has a field twice
let bad = 0;
for (const q of JSON.parse(process.argv[2])) for (const e of validate(schema, parse(q))) { console.log(e.message); bad = 1; }
process.exit(bad);`
	run := func(queries ...string) (string, error) {
		list, err := json.Marshal(queries)
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), "node", "-e", script, modules, string(list))
		cmd.Dir = filepath.Dir(modules)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := run(viewerQuery, threadsQuery, homeQuery, threadQuery, resolveMutation); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := run(`query { viewer { nonsense } }`); err == nil || !strings.Contains(out, "nonsense") {
		t.Errorf("the check finds nothing: %v %s", err, out)
	}
}
