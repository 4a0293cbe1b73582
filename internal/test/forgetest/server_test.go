package forgetest_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/test/forgetest"
)

// TestStrict: what GitHub would refuse, or ignore to the harm of whoever mistyped it, is refused and noted.
func TestStrict(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, method, path, token, body string
		status                          int
		violation                       string
	}{
		{"fits", "POST", "/api/v3/repos/o/r/pulls", "good", `{"title":"t","head":"b","base":"main"}`, 201, ""},
		{"as api.github.com", "GET", "/repos/o/r", "good", "", 200, ""},
		{"no token", "GET", "/repos/o/r", "", "", 401, ""},
		{"unknown token", "POST", "/graphql", "bad", `{"query":"{viewer{login}}"}`, 401, ""},
		{"may not write", "POST", "/repos/o/r/labels", "reader", `{"name":"x"}`, 403, ""},
		{"another repository", "GET", "/repos/o/other", "good", "", 404, ""},
		{"no operation", "GET", "/repos/o/r/nonsense", "good", "", 404, ""},
		{"no method", "DELETE", "/repos/o/r/pulls", "good", "", 405, "not the method"},
		{"unknown field", "POST", "/repos/o/r/pulls", "good", `{"title":"t","head":"b","base":"main","labels":["x"]}`, 422, "labels"},
		{"missing field", "POST", "/repos/o/r/pulls", "good", `{"title":"t","head":"b"}`, 422, "base"},
		{"wrong type", "POST", "/repos/o/r/labels", "good", `{"name":1}`, 422, "name"},
		{"no JSON", "POST", "/repos/o/r/labels", "good", `{`, 422, "JSON"},
		{"unknown parameter", "GET", "/repos/o/r/pulls?stat=all", "good", "", 422, "stat"},
		{"wrong parameter", "GET", "/repos/o/r/pulls?state=merged", "good", "", 422, "state"},
		{"unexpected body", "GET", "/repos/o/r", "good", `{}`, 422, "body"},
		{"unknown query", "POST", "/graphql", "good", `{"query":"{ rateLimit { cost } }"}`, 200, "not a query"},
		{"undeclared variable", "POST", "/graphql", "good", `{"query":"{viewer{login}}","variables":{"x":1}}`, 200, "x is not declared"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := forgetest.New(forgetest.Options{Owner: "o", Name: "r"})
			f.AddUser("w", forgetest.User{Permission: "write"})
			f.AddUser("r", forgetest.User{Permission: "read"})
			f.AddToken("good", "w")
			f.AddToken("reader", "r")
			f.SetBranch("b", forgetest.SHA("b"))
			remote, stop := f.Start()
			t.Cleanup(stop)
			req, err := http.NewRequestWithContext(t.Context(), c.method, strings.TrimSuffix(remote, "/o/r.git")+c.path, strings.NewReader(c.body))
			if err != nil {
				t.Fatal(err)
			}
			if c.token != "" {
				req.Header.Set("Authorization", "Bearer "+c.token)
			}
			req.Header.Set("Content-Type", "application/json")
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			if err != nil || resp.StatusCode != c.status {
				t.Errorf("status %d, %v: %s", resp.StatusCode, err, body)
			}
			got := strings.Join(f.Violations(), "\n")
			if (got == "") != (c.violation == "") || !strings.Contains(got, c.violation) {
				t.Errorf("violations %q, want one of %q", got, c.violation)
			}
		})
	}
}
