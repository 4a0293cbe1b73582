package github_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/forge"
	"github.com/sandbox-agent/sandbox-agent/internal/forge/github"
	"github.com/sandbox-agent/sandbox-agent/internal/test/forgetest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// TestCreatedOnce: whatever GitHub answers to the request that creates, there is one.
func TestCreatedOnce(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]forgetest.Fault{
		"refused by the server":         {Status: http.StatusBadGateway, Times: 2},
		"answer lost behind a proxy":    {Status: http.StatusGatewayTimeout, After: true},
		"an answer that cannot be read": {Status: http.StatusCreated, Body: "<html>", After: true},
		"limited": {
			Status: http.StatusForbidden, Body: `{"message":"You have exceeded a secondary rate limit."}`,
			Times: 2,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv, c, p := scripted(t, forgetest.Options{})
			fault := func(op string) forgetest.Fault { f := f; f.Op = op; return f }
			srv.Inject(fault("pulls/create"))
			pr, err := c.OpenPR(t.Context(), spec())
			if err != nil || pr.Number != 1 || !pr.Created || len(srv.Pulls()) != 1 {
				t.Fatalf("got %+v, %v; %v", pr, err, srv.Pulls())
			}
			srv.Inject(fault("issues/create-comment"))
			if got, err := c.Comment(t.Context(), 1, "k", "text"); err != nil || got.ID == 0 || !got.Created || len(srv.Comments(1)) != 1 {
				t.Errorf("comment: %+v, %v; %v", got, err, srv.Comments(1))
			}
			th := srv.AddThread(1, forgetest.Thread{Path: "a"}, "ann", "?")
			srv.Inject(fault("pulls/create-reply-for-review-comment"))
			if got, err := c.ReplyThread(t.Context(), 1, th, "k", "text"); err != nil || got.ID == 0 || len(srv.Threads(1)[0].Comments) != 2 {
				t.Errorf("reply: %+v, %v; %v", got, err, srv.Threads(1))
			}
			if len(p.all) == 0 {
				t.Error("sent again without a pause")
			}
		})
	}
}

// TestCreatedBySomebodyElse: the list was late, and the forge refuses a second one.
func TestCreatedBySomebodyElse(t *testing.T) {
	t.Parallel()
	srv, c, _ := scripted(t, forgetest.Options{})
	srv.AddPull("robot", "old title", "", forgetest.Pull{Head: branch, Base: "main"})
	srv.Inject(forgetest.Fault{Op: "pulls/list", Status: http.StatusOK, Body: "[]"})
	pr, err := c.OpenPR(t.Context(), spec())
	if got, _ := srv.Issue(1); err != nil || pr.Created || !pr.Updated || got.Title != "Add pagination" || count(srv, "pulls/create") != 1 {
		t.Errorf("got %+v, %v", pr, err)
	}
}

func TestReadsAreRepeated(t *testing.T) {
	t.Parallel()
	srv, c, p := scripted(t, forgetest.Options{})
	n := srv.AddIssue("ann", "t", "b")
	srv.Inject(forgetest.Fault{Op: "issues/get", Status: http.StatusServiceUnavailable, Times: 3})
	srv.Inject(forgetest.Fault{Op: "issues/list-comments", Status: http.StatusRequestTimeout})
	srv.Inject(forgetest.Fault{Op: "repos/get-collaborator-permission-level", Status: http.StatusOK, Body: "not JSON"})
	if _, err := c.Issue(t.Context(), n); err != nil || len(p.all) != 5 {
		t.Errorf("%v after %d pauses", err, len(p.all))
	}
	srv.Inject(forgetest.Fault{Status: http.StatusInternalServerError, Times: 1000})
	_, err := c.Issue(t.Context(), n)
	wantKind(t, err, forge.Unavailable, "try again later")
	if n := len(p.all); n != 5+4 {
		t.Errorf("%d pauses", n)
	}
}

// TestLimits: each form of a limit is waited for, as long as it says, and not beyond the deadline.
func TestLimits(t *testing.T) {
	t.Parallel()
	now := time.Now()
	secs := func(d time.Duration) string { return strconv.FormatInt(now.Add(d).Unix(), 10) }
	wrongClock := now.Add(-3 * time.Hour) // the server's; what counts is the distance
	for name, c := range map[string]struct {
		fault forgetest.Fault
		want  time.Duration
	}{
		"primary": {forgetest.Fault{Status: 403, Header: map[string]string{
			"X-RateLimit-Remaining": "0",
			"X-RateLimit-Reset":     secs(20 * time.Minute),
		}}, 20 * time.Minute},
		"primary with 429": {forgetest.Fault{Status: 429, Header: map[string]string{
			"X-RateLimit-Remaining": "0",
			"X-RateLimit-Reset":     secs(20 * time.Minute),
		}}, 20 * time.Minute},
		"clocks differ": {forgetest.Fault{Status: 403, Header: map[string]string{
			"X-RateLimit-Remaining": "0",
			"Date":                  wrongClock.UTC().Format(http.TimeFormat), "X-RateLimit-Reset": strconv.FormatInt(wrongClock.Unix()+300, 10),
		}}, 5 * time.Minute},
		"secondary":          {forgetest.Fault{Status: 403, Header: map[string]string{"Retry-After": "7"}}, 7 * time.Second},
		"secondary with 429": {forgetest.Fault{Status: 429, Header: map[string]string{"Retry-After": "7"}}, 7 * time.Second},
		"secondary, no header": {forgetest.Fault{
			Status: 403,
			Body:   `{"message":"You have exceeded a secondary rate limit. Please wait."}`,
		}, time.Minute},
		"a date": {forgetest.Fault{
			Status: 429,
			Header: map[string]string{"Retry-After": now.Add(time.Hour).UTC().Format(http.TimeFormat)},
		}, time.Hour},
		"nonsense": {forgetest.Fault{Status: 429, Header: map[string]string{"Retry-After": "99999999999999"}}, 24 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv, cl, p := scripted(t, forgetest.Options{})
			n := srv.AddPull("ann", "t", "b", forgetest.Pull{Head: branch, Base: "main"})
			srv.Inject(func() forgetest.Fault { f := c.fault; f.Op = "pulls/get"; return f }())
			ctx, cancel := context.WithTimeout(t.Context(), 48*time.Hour)
			defer cancel()
			if _, err := cl.PRByNumber(ctx, n); err != nil || len(p.all) != 1 {
				t.Fatalf("%v, pauses %v", err, p.all)
			}
			// The clocks run on between the test's beginning and the answer.
			if d := p.all[0]; d < c.want-time.Minute || d > c.want+3*time.Second {
				t.Errorf("waited %v, want %v", d, c.want)
			}
			srv.Inject(c.fault)
			short, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			_, err := cl.PRByNumber(short, n)
			e := wantKind(t, err, forge.RateLimited, "until 20")
			if e.Until.Before(time.Now()) || len(p.all) != 1 {
				t.Errorf("until %v, pauses %v", e.Until, p.all)
			}
		})
	}
}

func TestGraphLimits(t *testing.T) {
	t.Parallel()
	srv, c, p := scripted(t, forgetest.Options{})
	n := srv.AddPull("ann", "t", "b", forgetest.Pull{Head: branch, Base: "main"})
	th := srv.AddThread(n, forgetest.Thread{Path: "a"}, "ann", "?")
	srv.Inject(forgetest.Fault{
		Op: "graphql", Status: 200,
		Body: `{"errors":[{"type":"RATE_LIMITED","message":"API rate limit exceeded"}]}`, Header: map[string]string{"Retry-After": "3"},
	})
	srv.Inject(forgetest.Fault{
		Op: "graphql", Status: 200,
		Body: `{"data":null,"errors":[{"message":"Something went wrong while executing your query. This may be the result of a timeout."}]}`,
	})
	if err := c.ResolveThread(t.Context(), n, th); err != nil || len(p.all) != 2 {
		t.Errorf("%v, pauses %v", err, p.all)
	}
	srv.Inject(forgetest.Fault{
		Op: "graphql", Status: 200,
		Body: `{"data":null,"errors":[{"type":"FORBIDDEN","message":"Resource not accessible by integration"}]}`,
	})
	wantKind(t, c.ResolveThread(t.Context(), n, th), forge.Permission)
}

// TestDeadline: a forge that does not answer costs what the caller allows.
func TestDeadline(t *testing.T) {
	t.Parallel()
	block := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-block }))
	t.Cleanup(srv.Close)
	t.Cleanup(func() { close(block) })
	c, err := github.New(forge.Config{Remote: "https://github.com/o/r", APIURL: srv.URL, Token: token})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = c.PRByNumber(ctx, 1)
	wantKind(t, err, forge.Unavailable, "not done in time")
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
}

// TestTokenStays: not to other hosts by redirects, not to hosts that are no GitHub, not into errors and logs.
func TestTokenStays(t *testing.T) {
	t.Parallel()
	var stolen []string
	thief := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		stolen = append(stolen, r.Header.Get("Authorization"))
		_, _ = io.WriteString(w, "{}")
	}))
	t.Cleanup(thief.Close)
	evil := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-GitHub-Request-Id", "1")
		switch {
		case strings.HasSuffix(r.URL.Path, "/meta"):
			if r.Header.Get("Authorization") != "" {
				t.Error("the question whether it is a GitHub had the token in it")
			}
		case strings.HasSuffix(r.URL.Path, "/1"):
			http.Redirect(w, r, thief.URL+"/x", http.StatusTemporaryRedirect)
		case strings.HasSuffix(r.URL.Path, "/2"):
			w.WriteHeader(http.StatusTeapot)
			_, _ = io.WriteString(w, `{"message":"you sent \u001b[31m`+strings.Replace(r.Header.Get("Authorization"), "can", `can\u200b`, 1)+`"}`)
		case strings.HasSuffix(r.URL.Path, "/3"):
			http.Redirect(w, r, "/api/v3/repos/o/r/pulls/4", http.StatusMovedPermanently)
		case strings.HasSuffix(r.URL.Path, "/4"):
			_, _ = io.WriteString(w, `{"number":4,"title":"moved `+strings.Repeat("x", 10)+`"}`)
		default:
			http.Redirect(w, r, "/api/v3/repos/new/name/pulls", http.StatusMovedPermanently)
		}
	}))
	t.Cleanup(evil.Close)
	var log bytes.Buffer
	p := &pauses{}
	c, err := github.New(forge.Config{
		Remote: evil.URL + "/o/r.git", Token: token,
		Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	if err != nil {
		t.Fatal(err)
	}
	c.SetPause(p.wait)
	_, err = c.PRByNumber(t.Context(), 1)
	wantKind(t, err, forge.Invalid, "redirected")
	_, err = c.PRByNumber(t.Context(), 2)
	e := wantKind(t, err, forge.Invalid, "you sent")
	if strings.ContainsAny(e.Said, "\x1b\u200b\n") {
		t.Errorf("said %q", e.Said)
	}
	if pr, err := c.PRByNumber(t.Context(), 3); err != nil || pr.Number != 4 {
		t.Errorf("redirect within the host: %+v, %v", pr, err)
	}
	// 301 would make a GET of the request that creates or asks.
	wantKind(t, c.ResolveThread(t.Context(), 1, "x"), forge.NotFound, "renamed")
	if len(stolen) != 0 || strings.Contains(log.String(), "canary") {
		t.Errorf("stolen %q, log %s", stolen, log.String())
	}
	// A host that is not known by name is asked first, without the token.
	c, err = github.New(forge.Config{Remote: thief.URL + "/o/r.git", Token: token})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.PRByNumber(t.Context(), 1)
	wantKind(t, err, forge.Unsupported, "by hand")
	if len(stolen) != 1 || stolen[0] != "" {
		t.Errorf("stolen %q", stolen)
	}
}

func TestNew(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		conf forge.Config
		kind forge.Kind
	}{
		{forge.Config{Remote: "/srv/git/r.git"}, forge.Unsupported},
		{forge.Config{Remote: "https://gitlab.com/o/r.git"}, forge.Unsupported},
		{forge.Config{Remote: "https://github.com/o/r", APIURL: "ftp://x"}, forge.Invalid},
		{forge.Config{Remote: "https://github.com/o/r", Token: "a\nb"}, forge.Auth},
		{forge.Config{Remote: "https://github.com/o/r", App: &workorder.ForgeApp{ID: "1", PrivateKey: "x"}}, forge.Auth},
		{forge.Config{Remote: "/srv/r.git", Repository: "o/r"}, forge.Invalid},
	} {
		_, err := github.New(c.conf)
		wantKind(t, err, c.kind)
	}
	for _, remote := range []string{"https://u:" + token + "@gitlab.com/o/r.git", "https://u:" + token + "%zz\n@gitlab.com/o/r.git"} {
		_, err := github.New(forge.Config{Remote: remote})
		wantKind(t, err, forge.Unsupported)
	}
	c, err := github.New(forge.Config{Remote: "/srv/r.git", Repository: "o/r", APIURL: "https://ghe.example.com"})
	if err != nil || c.Repo().API != "https://ghe.example.com/api/v3/" || c.Repo().GraphQL != "https://ghe.example.com/api/graphql" ||
		c.Repo().String() != "o/r" {
		t.Errorf("got %+v, %v", c.Repo(), err)
	}
	c, err = github.New(forge.Config{Remote: "https://github.com/o/r"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.OpenPR(t.Context(), spec())
	wantKind(t, err, forge.Auth, "no token")
}

func TestApp(t *testing.T) {
	t.Parallel()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range []*pem.Block{
		{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)},
		{Type: "PRIVATE KEY", Bytes: pkcs8},
	} {
		f := forgetest.New(forgetest.Options{Owner: "acme", Name: "app", AppID: "Iv1.x", AppKey: &key.PublicKey})
		f.SetBranch(branch, forgetest.SHA("head"))
		remote, stop := f.Start()
		t.Cleanup(stop)
		c, err := github.New(forge.Config{Remote: remote, App: &workorder.ForgeApp{ID: "Iv1.x", PrivateKey: string(pem.EncodeToMemory(block))}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.OpenPR(t.Context(), spec()); err != nil {
			t.Fatal(err)
		}
		one, err1 := c.Token(t.Context())
		two, err2 := c.Token(t.Context())
		if err := errors.Join(err1, err2); err != nil || one != two || !strings.HasPrefix(one, "ghs_") ||
			count(f, "apps/create-installation-access-token") != 1 {
			t.Errorf("tokens %q %q, %v", one, two, err)
		}
		// An installation token that is refused is renewed, once.
		f.RevokeTokens()
		if pr, err := c.OpenPR(t.Context(), spec()); err != nil || pr.Created {
			t.Errorf("got %+v, %v", pr, err)
		}
		if p, err := c.Comment(t.Context(), 1, "k", "a"); err != nil || !p.Created {
			t.Error(err)
		}
		if p, err := c.Comment(t.Context(), 1, "k", "b"); err != nil || p.Created {
			t.Errorf("an App does not know itself: %v", err)
		}
		wrong, err := github.New(forge.Config{Remote: remote, App: &workorder.ForgeApp{ID: "other", PrivateKey: string(pem.EncodeToMemory(block))}})
		if err != nil {
			t.Fatal(err)
		}
		_, err = wrong.Token(t.Context())
		wantKind(t, err, forge.Auth, "private key")
		if v := f.Violations(); len(v) != 0 {
			t.Errorf("violations %q", v)
		}
	}
}
