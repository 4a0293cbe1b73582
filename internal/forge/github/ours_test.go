package github

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-github/v60/github"

	"github.com/sandbox-agent/sandbox-agent/internal/forge"
)

// TestOurs: an account counts by its name and its kind, and a failure to learn whose the token is is not for good.
func TestOurs(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Github-Request-Id", "1")
		body := `{"data":{"viewer":{"login":"acme-bot[bot]"}}}`
		if asked.Add(1) <= 2 { // the first one asks whether this is a GitHub
			body = `{"errors":[{"type":"FORBIDDEN","message":"Resource not accessible by integration"}]}`
		}
		_, _ = w.Write([]byte(body))
	}))
	t.Cleanup(srv.Close)
	c, err := New(forge.Config{Remote: srv.URL + "/o/r", Token: "t"})
	if err != nil {
		t.Fatal(err)
	}
	user := func(login, kind string) *github.User { return &github.User{Login: &login, Type: &kind} }
	body := "x\n\n" + forge.Mark("T-1/answer-1")
	for range 3 {
		if ours, sure := c.ours(t.Context(), body, user("acme-bot[bot]", "Bot")); ours || sure {
			t.Error("ours, without knowing who we are")
		}
	}
	if n := asked.Load(); n != 2 {
		t.Errorf("asked %d times at once", n)
	}
	c.askAgain = time.Time{}
	for _, x := range []struct {
		body, login, kind string
		want              bool
	}{
		{body, "acme-bot[bot]", "Bot", true}, // REST
		{body, "Acme-bot", "Bot", true},      // GraphQL
		{body, "acme-bot", "User", false},
		{body, "eve", "User", false},
		{body, "eve[bot]", "Bot", false},
		{"no mark", "acme-bot[bot]", "Bot", false},
	} {
		if ours, sure := c.ours(t.Context(), x.body, user(x.login, x.kind)); ours != x.want || !sure {
			t.Errorf("%+v: %v, %v", x, ours, sure)
		}
	}
}
