package credentials_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-git/go-git/v5/plumbing/transport"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/host/credentials"
	"github.com/sandbox-agent/sandbox-agent/projects"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// finder has an environment and programs that answer by their argv.
func finder(env, programs map[string]string) *credentials.Finder {
	return &credentials.Finder{
		Getenv: func(k string) string { return env[k] },
		Run: func(_ context.Context, argv []string, _ string) (string, error) {
			if out, ok := programs[strings.Join(argv, " ")]; ok {
				return out, nil
			}
			return "", errors.New("exit status 1")
		},
	}
}

// TestWhoGetsWhichToken: a token goes where its owner meant it to go, and nowhere else.
func TestWhoGetsWhichToken(t *testing.T) {
	t.Parallel()
	fill := map[string]string{"git --git-dir=/dev/null credential fill": "protocol=https\nhost=x\nusername=me\npassword=stored=1\n"}
	for _, c := range []struct {
		name, url  string
		env, progs map[string]string
		want       string // user:token; empty: none
	}{
		{"ours goes anywhere", "https://git.example/r.git", map[string]string{"SANDBOX_AGENT_GIT_TOKEN": "a", "GH_TOKEN": "b"}, nil, "x-access-token:a"},
		{"ours first", "https://github.com/o/r", map[string]string{"SANDBOX_AGENT_GIT_TOKEN": "a", "GH_TOKEN": "b"}, nil, "x-access-token:a"},
		{"GH_TOKEN to GitHub", "https://github.com/o/r", map[string]string{"GH_TOKEN": "b", "GITHUB_TOKEN": "c"}, nil, "x-access-token:b"},
		{"GITHUB_TOKEN to GitHub", "https://GitHub.com/o/r", map[string]string{"GITHUB_TOKEN": "c"}, nil, "x-access-token:c"},
		{"GH_TOKEN to nobody else", "https://git.example/r.git", map[string]string{"GH_TOKEN": "b", "GITHUB_TOKEN": "c"}, nil, ""},
		{"nor to a look-alike", "https://github.com.evil.example/r.git", map[string]string{"GH_TOKEN": "b"}, nil, ""},
		{"GH_HOST is the user's word", "https://ghe.corp/o/r", map[string]string{"GH_TOKEN": "b", "GH_HOST": "ghe.corp"}, nil, "x-access-token:b"},
		{"gh", "https://github.com/o/r", nil, map[string]string{"gh auth token --hostname github.com": "g\n"}, "x-access-token:g"},
		{"gh of GitHub's own servers", "https://corp.ghe.com/o/r", nil, map[string]string{"gh auth token --hostname corp.ghe.com": "g\n"}, "x-access-token:g"},
		{"gh's variables to nobody else", "https://git.example/r.git", nil, map[string]string{"gh auth token --hostname git.example": "g\n"}, ""},
		{"what gh has stored", "https://git.example/r.git", nil, map[string]string{"env -u GH_ENTERPRISE_TOKEN -u GITHUB_ENTERPRISE_TOKEN gh auth token --hostname git.example": "g\n"}, "x-access-token:g"},
		{"helper", "https://git.example/r.git", nil, fill, "me:stored=1"},
		{"none", "https://git.example/r.git", nil, nil, ""},
		{"no URL", "/some/path", map[string]string{"SANDBOX_AGENT_GIT_TOKEN": "a"}, fill, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, err := finder(c.env, c.progs).Git(t.Context(), c.url)
			if err != nil {
				t.Fatal(err)
			}
			s := ""
			if got != nil {
				s = got.Username + ":" + got.Token
			}
			if s != c.want {
				t.Errorf("got %q, want %q", s, c.want)
			}
		})
	}
}

func TestSecrets(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte("from file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f := finder(map[string]string{"SRC": "from env"}, map[string]string{"sh -c pass show x": "from command\n", "sh -c true": "\n", "sh -c nul": "a\x00b"})
	got, _, err := f.Secrets(t.Context(), []projects.Secret{
		{Name: "A", From: []projects.Ref{{Scheme: projects.SecretEnv, Target: "SRC"}}},
		{Name: "B", From: []projects.Ref{{Scheme: projects.SecretFile, Target: file}}},
		{Name: "C", From: []projects.Ref{{Scheme: projects.SecretCmd, Target: "pass show x"}}},
	}, "")
	if err != nil || got["A"] != "from env" || got["B"] != "from file" || got["C"] != "from command" {
		t.Errorf("got %v, %v", got, err)
	}
	_, _, err = f.Secrets(t.Context(), []projects.Secret{
		{Name: "A", From: []projects.Ref{{Scheme: projects.SecretEnv, Target: "ABSENT"}}},
		{Name: "B", From: []projects.Ref{{Scheme: projects.SecretFile, Target: file + ".absent"}}},
		{Name: "C", From: []projects.Ref{{Scheme: projects.SecretCmd, Target: "false"}}},
		{Name: "D", From: []projects.Ref{{Scheme: projects.SecretCmd, Target: "true"}}},
		{Name: "E", From: []projects.Ref{{Scheme: projects.SecretCmd, Target: "nul"}}},
		{Name: "F", From: []projects.Ref{{Scheme: projects.SecretFile, Target: t.TempDir()}}},
		{Name: "G", From: []projects.Ref{{Scheme: projects.SecretEnv, Target: "SRC"}}},
	}, "")
	if exiterr.Code(err) != workorder.ExitInvalid {
		t.Fatalf("error %v", err)
	}
	for _, name := range []string{"A", "B", "C", "D", "E", "F"} {
		if !strings.Contains(err.Error(), " "+name+": ") {
			t.Errorf("%s is not reported: %v", name, err)
		}
	}
	if strings.Contains(err.Error(), "from env") || strings.Contains(err.Error(), " G: ") {
		t.Errorf("the error says too much: %v", err)
	}
}

// A secret that is visibly missing is reported early; no command runs for it, and no value is read.
func TestAbsent(t *testing.T) {
	t.Parallel()
	env := func(name string) string { return map[string]string{"SRC": "x"}[name] }
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, nil, 0); err != nil {
		t.Fatal(err)
	}
	env1 := func(target string) projects.Ref { return projects.Ref{Scheme: projects.SecretEnv, Target: target} }
	file1 := func(target string) projects.Ref { return projects.Ref{Scheme: projects.SecretFile, Target: target} }
	for _, c := range []struct {
		from []projects.Ref
		want []string // in the error; none: no error
	}{
		{[]projects.Ref{env1("SRC")}, nil},
		{[]projects.Ref{file1(file)}, nil},
		{[]projects.Ref{{Scheme: projects.SecretCmd, Target: "touch " + file + ".ran; false"}}, nil},
		{[]projects.Ref{{Scheme: projects.SecretCmd, Target: "true", Tool: "no-such-tool"}}, []string{" S: ", "no-such-tool"}},
		{[]projects.Ref{{Scheme: projects.SecretCmd, Target: "true", Tool: "no-such-tool"}, file1(file)}, nil},
		{[]projects.Ref{env1("ABSENT")}, []string{" S: ", " ABSENT "}},
		{[]projects.Ref{file1(file + ".absent")}, []string{" S: ", file + ".absent"}},
		{[]projects.Ref{env1("ABSENT"), file1(file)}, nil},
		{[]projects.Ref{env1("ABSENT"), file1(file + ".absent")}, []string{" S: ", " ABSENT ", file + ".absent"}},
	} {
		err := credentials.CheckAvailable(env, projects.Secret{Name: "S", From: c.from})
		if (err == nil) != (c.want == nil) {
			t.Errorf("%v: error %v, want %q", c.from, err, c.want)
		}
		for _, want := range c.want {
			if err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%v: error %v, want %q", c.from, err, want)
			}
		}
	}
	if _, err := os.Stat(file + ".ran"); err == nil {
		t.Error("a command ran")
	}
}

// Of several places the first that has the secret counts, and one that may be missing is no error.
func TestSecretOfSeveralPlaces(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte("from file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f := finder(map[string]string{"SRC": "from env"}, map[string]string{"sh -c true": "\n"})
	absent, empty := projects.Ref{Scheme: projects.SecretEnv, Target: "ABSENT"}, projects.Ref{Scheme: projects.SecretCmd, Target: "true"}
	got, gone, err := f.Secrets(t.Context(), []projects.Secret{
		{Name: "A", From: []projects.Ref{absent, empty, {Scheme: projects.SecretFile, Target: file}, {Scheme: projects.SecretEnv, Target: "SRC"}}},
		{Name: "B", From: []projects.Ref{empty}, Optional: true},
	}, "")
	if err != nil || len(got) != 1 || got["A"] != "from file" || len(gone) != 1 || gone["B"] == nil {
		t.Errorf("got %v, absent %v, %v", got, gone, err)
	}
	if _, _, err := f.Secrets(t.Context(), []projects.Secret{{Name: "A", From: []projects.Ref{absent, empty}}}, ""); exiterr.Code(err) != workorder.ExitInvalid {
		t.Errorf("nowhere: %v", err)
	}
}

// advertisement is what a server with branches and tags answers.
func advertisement() string {
	pkt := func(s string) string { return fmt.Sprintf("%04x%s", len(s)+4, s) }
	sha := strings.Repeat("1", 40)
	return pkt("# service=git-upload-pack\n") + "0000" + pkt(sha+" HEAD\x00symref=HEAD:refs/heads/main agent=x\n") + pkt(sha+" refs/heads/agent\n") + pkt(sha+" refs/heads/main\n") + pkt(sha+" refs/tags/main\n") + pkt(sha+" refs/tags/v1\n") + "0000"
}

func TestCheck(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, pass, _ := r.BasicAuth()
		switch {
		case strings.HasPrefix(r.URL.Path, "/private") && pass != "good":
			w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
			w.WriteHeader(http.StatusUnauthorized)
		case strings.HasPrefix(r.URL.Path, "/absent"):
			w.WriteHeader(http.StatusNotFound)
		default:
			w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
			_, _ = io.WriteString(w, advertisement())
		}
	}))
	t.Cleanup(s.Close)
	// A port that was ours a moment ago and that nobody listens on.
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := "http://" + ln.Addr().String() + "/r.git"
	ln.Close()
	good, bad := &workorder.GitCredential{Username: "x", Token: "good"}, &workorder.GitCredential{Username: "x", Token: "cnry123"}
	for _, c := range []struct {
		name, url, branch string
		cred              *workorder.GitCredential
		want              string // in the error; empty: none
		next              string // in the hint
	}{
		{"public", s.URL + "/public.git", "main", nil, "", ""},
		{"any branch", s.URL + "/public.git", "", nil, "", ""},
		{"private", s.URL + "/private.git", "main", good, "", ""},
		{"wrong token", s.URL + "/private.git", "main", bad, "/private.git", ""},
		{"no token", s.URL + "/private.git", "main", nil, "/private.git", "SANDBOX_AGENT_GIT_TOKEN"},
		{"no such branch", s.URL + "/public.git", "dev", nil, `"dev"`, "main"},
		{"no such repository", s.URL + "/absent.git", "main", nil, transport.ErrRepositoryNotFound.Error(), ""},
		{"nobody there", closed, "main", nil, "connection refused", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, err := credentials.New(os.Getenv).Check(t.Context(), c.url, c.branch, "", c.cred)
			if c.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if exiterr.Code(err) != workorder.ExitGit || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error()+exiterr.Hint(err), "cnry") {
				t.Errorf("error %v", err)
			}
			if next := exiterr.Hint(err); next == "" || !strings.Contains(next, c.next) || c.next == "" && strings.Contains(next, "SANDBOX_AGENT_GIT_TOKEN") {
				t.Errorf("hint %q, want %q", next, c.next)
			}
		})
	}
}

// A run's base may be a tag or a commit, and its branch must not clash with one that is there.
func TestCheckNames(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
		_, _ = io.WriteString(w, advertisement())
	}))
	t.Cleanup(s.Close)
	sha := strings.Repeat("2", 40)
	for _, c := range []struct{ base, target, want string }{
		{"main", "x/agent", "refs/heads/main"},
		{"v1", "", "refs/tags/v1"},
		{sha, "agents/x", sha},
		{"main", "agent/T-1", ""},
		{"main", "main/x/y", ""},
		{sha[:39], "", ""},
	} {
		name, err := credentials.New(os.Getenv).Check(t.Context(), s.URL+"/r.git", c.base, c.target, nil)
		if name != c.want || (err == nil) != (c.want != "") || err != nil && exiterr.Code(err) != workorder.ExitGit {
			t.Errorf("%+v: %q, %v", c, name, err)
		}
	}
}

// TestCheckIsBounded: a server that accepts and never answers does not hold the user.
func TestCheckIsBounded(t *testing.T) {
	t.Parallel()
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := credentials.New(os.Getenv).Check(ctx, "http://"+ln.Addr().String()+"/r.git", "main", "", nil); exiterr.Code(err) != workorder.ExitGit {
		t.Errorf("error %v", err)
	}
}
