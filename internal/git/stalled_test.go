package git

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

// A remote that takes the request and never answers is an error by itself, also
// where there is no credential.
func TestStalledRemoteIsAnError(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	defer srv.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	dir := t.TempDir()
	for _, args := range [][]string{
		{"init", "-q"},
		{"ls-remote", "--", srv.URL + "/r.git"},
		{"fetch", "--", srv.URL + "/r.git", "main"},
		{"push", "--", srv.URL + "/r.git", "HEAD:refs/heads/x"},
	} {
		err := Repo{Dir: dir, quiet: time.Second, Env: []string{"HOME=" + dir}}.Run(ctx, args...)
		if args[0] == "init" {
			if err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err == nil || ctx.Err() != nil {
			t.Errorf("%s: got %v", args[0], err)
		}
		if KindOf(err) != KindUnreachable && args[0] != "push" { // which has nothing to push, and may say so first
			t.Errorf("%s: it is %q: %v", args[0], KindOf(err), err)
		}
	}
}

const (
	// busy is how long a server of the next tests says nothing but that it lives, each second.
	busy = 9 * time.Second
	// enough is how long a silent one is let live: longer than machines of tests stand still between two of its packets.
	enough = 4 * time.Second
)

// server is a real git over HTTP whose commands get these options.
func server(t *testing.T, root string, options ...string) *httptest.Server {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		service := strings.TrimPrefix(r.URL.Query().Get("service"), "git-")
		flags := []string{"--stateless-rpc"}
		kind := "result"
		if service == "" {
			service = strings.TrimPrefix(filepath.Base(r.URL.Path), "git-")
		} else {
			flags, kind = append(flags, "--advertise-refs"), "advertisement"
		}
		w.Header().Set("Content-Type", "application/x-git-"+service+"-"+kind)
		if kind == "advertisement" {
			line := "# service=git-" + service + "\n"
			_, _ = io.WriteString(w, "00"+string("0123456789abcdef"[(len(line)+4)/16])+string("0123456789abcdef"[(len(line)+4)%16])+line+"0000")
		}
		_ = proc.Run(r.Context(), proc.Spec{ // the client sees what came of it
			Argv: append(append(append([]string{"git"}, options...), append([]string{service}, flags...)...), root), Stdin: r.Body,
			Stdout: flushed{w},
			Env:    append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_PROTOCOL="+r.Header.Get("Git-Protocol")),
		})
	}))
	t.Cleanup(srv.Close)
	return srv
}

type flushed struct{ w http.ResponseWriter }

func (f flushed) Write(b []byte) (int, error) {
	n, err := f.w.Write(b)
	return n, errors.Join(err, http.NewResponseController(f.w).Flush())
}

// origin is a bare repository with a commit.
func origin(t *testing.T) (root string, work Repo) {
	t.Helper()
	dir := t.TempDir()
	root = filepath.Join(dir, "r.git")
	env := []string{"HOME=" + dir, "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b"}
	work = Repo{Dir: filepath.Join(dir, "w"), Env: env, quiet: enough}
	if err := os.Mkdir(work.Dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"init", "-q", "-b", "main"},
		{"commit", "-q", "--allow-empty", "-m", "one"},
		{"init", "-q", "--bare", root},
		{"push", "-q", root, "main"},
		{"commit", "-q", "--allow-empty", "-m", "two"},
	} {
		if err := work.Run(t.Context(), args...); err != nil {
			t.Fatal(err)
		}
	}
	return root, work
}

// A remote that packs, or looks at what was pushed, for longer than a silent one lives is not dead: it says so by packets of
// five bytes.
func TestBusyRemoteIsAlive(t *testing.T) {
	t.Parallel()
	if !canSee() {
		t.Fatal("this kernel does not let us look at connections (Linux 5.6)")
	}
	script := func(t *testing.T, path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte("#!/bin/sh\nsleep "+busy.String()+"\n"+text+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("packs", func(t *testing.T) {
		t.Parallel()
		root, work := origin(t)
		hook := filepath.Join(t.TempDir(), "pack")
		script(t, hook, `exec "$@"`)
		for name, keepalive := range map[string]string{"and says so": "1", "and does not": "0"} {
			srv := server(t, root, "-c", "uploadpack.packObjectsHook="+hook, "-c", "uploadpack.keepAlive="+keepalive)
			into := Repo{Dir: t.TempDir(), Env: work.Env, quiet: enough}
			if err := into.Run(t.Context(), "init", "-q"); err != nil {
				t.Fatal(err)
			}
			err := into.Run(t.Context(), "fetch", "--quiet", "--", srv.URL+"/r.git", "main")
			if alive := keepalive == "1"; alive != (err == nil) {
				t.Errorf("%s: %v", name, err)
			} else if !alive && KindOf(err) != KindUnreachable {
				t.Errorf("%s: it is %q: %v", name, KindOf(err), err)
			}
		}
	})
	t.Run("takes a push", func(t *testing.T) {
		t.Parallel()
		root, work := origin(t)
		script(t, filepath.Join(root, "hooks", "pre-receive"), "exit 0")
		for name, keepalive := range map[string]string{"and says nothing": "0", "and says so": "1"} {
			srv := server(t, root, "-c", "receive.keepAlive="+keepalive)
			err := work.Run(t.Context(), "push", "--quiet", "--", srv.URL+"/r.git", "main:refs/heads/new"+keepalive)
			if alive := keepalive == "1"; alive != (err == nil) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// A remote that git reaches by a program without a connection of its own (ssh with a ProxyCommand in another session)
// cannot be looked at, and is not dead for that.
func TestRemoteBehindProgramIsAlive(t *testing.T) {
	t.Parallel()
	root, work := origin(t)
	ssh := filepath.Join(t.TempDir(), "ssh")
	script := "#!/bin/sh\nwhile [ $# -gt 1 ]; do shift; done\nsleep " + busy.String() + "\nexec sh -c \"$1\"\n"
	if err := os.WriteFile(ssh, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	work.Env = append(work.Env, "GIT_SSH="+ssh, "GIT_SSH_VARIANT=simple")
	if err := work.Run(t.Context(), "push", "--quiet", "--", "host:"+root, "main:refs/heads/new"); err != nil {
		t.Error(err)
	}
}

// Git's own work on what it got is no silence.
func TestActivity(t *testing.T) {
	t.Parallel()
	was := activity{wire: 100, cpu: time.Second, disk: 1 << 20, seen: true}
	for name, c := range map[string]struct {
		change func(*activity)
		want   bool
	}{
		"nothing":               {func(*activity) {}, false},
		"a packet of keepalive": {func(a *activity) { a.wire += 5 }, true},
		"looks at its sockets":  {func(a *activity) { a.cpu += 2 * 10 * time.Millisecond }, false},
		"checks a pack":         {func(a *activity) { a.cpu += awake }, true},
		"reads a pack":          {func(a *activity) { a.disk += moved }, true},
		"writes a line":         {func(a *activity) { a.disk += 100 }, false},
	} {
		now := was
		c.change(&now)
		if got := now.progress(was); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if got := (Repo{}).patience("push"); got != silence {
		t.Errorf("a push: %v", got)
	}
	if got := (Repo{}).patience("status"); got != 0 {
		t.Errorf("what asks no remote: %v", got)
	}
}
