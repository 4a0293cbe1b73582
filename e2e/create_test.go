//go:build e2e

package e2e

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/network"

	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// hostAddress is where containers of the default bridge reach this machine.
func hostAddress(t *testing.T) string {
	t.Helper()
	n, err := eng.NetworkInspect(t.Context(), "bridge", network.InspectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	i, err := net.InterfaceByName(n.Options["com.docker.network.bridge.name"])
	if err != nil {
		t.Fatal(err)
	}
	addrs, err := i.Addrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		if ip, _, err := net.ParseCIDR(a.String()); err == nil && ip.To4() != nil {
			return ip.String()
		}
	}
	t.Fatal("the default bridge has no address")
	return ""
}

// A local repository is the remote; the service is a container of the inner
// engine; the agent's work and nothing else arrives.
func TestLocalRepositoryWithAService(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	repo := u.repo(map[string]string{"README": "hello\n", "notes/ü b": "x\n"})
	project := u.project(`
name: local
packages: [hello]
services:
  redis:
    image: ` + redisImage + `
env:
  REDIS_URL: redis://redis:6379
  VERSION: 1.10
lifecycle:
  setup:
    - hello --version >/dev/null
    - test "$(id -un)" = sandbox && test "$HOME" = /home/sandbox && test -w . && ! sudo -n true 2>/dev/null
    - printf 'SET greeting %s\r\nQUIT\r\n' "$VERSION" | nc redis 6379 | grep -q OK
validate:
  works: test -f made-by-the-agent
  env: grep -q "^REDIS_URL=redis://redis:6379$" .env
  fails: test ! -e made-by-the-agent || exit 3
harness:
  name: command
  command: |
    set -e
    printf 'GET greeting\r\nQUIT\r\n' | nc redis 6379 >made-by-the-agent
    sha256sum <"$SANDBOX_AGENT_PROMPT_FILE" | cut -d' ' -f1 >prompt.file
    sha256sum | cut -d' ' -f1 >prompt.stdin
    docker run --rm --network none --entrypoint sh ` + redisImage + ` -c 'echo from the inner engine' >inner
    docker ps --format '{{.Names}}' >containers
    git config --get remote.origin.url >origin
    git ls-remote origin main >ls-remote
    git add -A && git commit -q -m "work of the agent"
    echo left >"left uncommitted"
`)
	task := "$(touch /tmp/pwn) \"x\" 'y' \n-é 日本 `id`\n"
	c := u.run(task, "create", "--project", project, "--repo", repo, "--task", "-")
	id := c.task(t)
	r := u.result(id)
	if c.code != workorder.ExitTaskFailed || r.Status != workorder.StatusFailed || r.EndedBy != workorder.EndedByValidation {
		t.Fatalf("exit code %d, status %s by %s; want the failing validate command to decide", c.code, r.Status, r.EndedBy)
	}
	if len(r.Validation) != 3 || !r.Validation[0].Passed || !r.Validation[1].Passed || r.Validation[2].Passed || r.Validation[2].ExitCode != 3 {
		t.Errorf("validation %+v", r.Validation)
	}
	if !r.Pushed || len(r.Commits) != 2 || r.Commits[1].Subject != "work of the agent" {
		t.Fatalf("commits %+v, pushed %v", r.Commits, r.Pushed)
	}
	show := func(path string) string { return gittest.Git(t, repo, "show", r.Branch+":"+path) }
	if got := show("made-by-the-agent"); !strings.Contains(got, "1.10") {
		t.Errorf("the service answered %q", got)
	}
	if a, b := show("prompt.file"), show("prompt.stdin"); a != b || a != sha256Hex(task) {
		t.Errorf("prompt by file %s, by stdin %s, want %s", a, b, sha256Hex(task))
	}
	if got := show("inner"); got != "from the inner engine" {
		t.Errorf("docker run in the box printed %q", got)
	}
	if got := show("containers"); got != "redis" {
		t.Errorf("the agent sees the containers %q, want its service only", got)
	}
	if got := show("ls-remote"); !strings.Contains(got, "refs/heads/main") {
		t.Errorf("ls-remote printed %q", got)
	}
	if got := show("left uncommitted"); got != "left" {
		t.Errorf("uncommitted work: %q", got)
	}
	for path := range strings.SplitSeq(gittest.Git(t, repo, "ls-tree", "-r", "--name-only", r.Branch), "\n") {
		if path == ".env" {
			t.Error(".env was committed")
		}
	}
	if got := gittest.Git(t, repo, "rev-parse", "main"); got != r.BaseSHA {
		t.Errorf("main moved to %s", got)
	}
	if got := gittest.Git(t, repo, "status", "--porcelain"); got != "" {
		t.Errorf("the user's work tree changed: %s", got)
	}
	dir := filepath.Dir(resultPath(t, u, id))
	for _, want := range []string{"events.jsonl", "workorder.json", "logs/agent.stdout.log", "logs/validate-fails.log", "logs/service-redis.log", "logs/dockerd.log"} {
		if _, err := os.Stat(filepath.Join(dir, want)); err != nil {
			t.Errorf("the output lacks %s", want)
		}
	}
	if r.Platform.StorageDriver != "overlay2" || r.Platform.Isolation != "confined" || r.Image.ID == "" {
		t.Errorf("host %+v, image %+v", r.Platform, r.Image)
	}
}

func TestHTTPSRemoteWithAToken(t *testing.T) {
	t.Parallel()
	const token = "s3cr3t-t0ken-0123456789"
	srv := gittest.NewAt(t, token, hostAddress(t))
	url := srv.Create(t, "app.git", map[string]string{"a": "1"})
	project := `
name: remote
repo: ` + url + `
branch: main
secrets:
  API_KEY: env://THE_KEY
harness:
  name: command
  command: |
    echo "the key is $API_KEY"; env | grep -c SANDBOX_AGENT_GIT_TOKEN >count; grep -rl "$API_KEY" /workspace /home/sandbox 2>/dev/null >found
    git fetch origin && git commit -q --allow-empty -m work
    git push origin HEAD:main 2>push.log || true
`
	u := newUser(t, "SANDBOX_AGENT_GIT_TOKEN="+token, "THE_KEY=k3y-of-the-canary-42")
	c := u.run("", "create", "-p", u.project(project), "--task", "work")
	r := u.result(c.task(t))
	if c.code != 0 || r.Status != workorder.StatusSuccess {
		t.Fatalf("exit code %d, %s: %s", c.code, r.Status, r.Reasons)
	}
	if got, err := srv.Repo("app.git").Resolve(t.Context(), "refs/heads/"+r.Branch); err != nil || got != r.HeadSHA {
		t.Errorf("the remote has %q, want %s (%v)", got, r.HeadSHA, err)
	}
	if got, err := srv.Repo("app.git").Resolve(t.Context(), "refs/heads/main"); err != nil || got != r.BaseSHA {
		t.Errorf("main moved to %q (%v)", got, err)
	}
	if got := gittest.Git(t, srv.Root+"/app.git", "show", r.Branch+":push.log"); !strings.Contains(got, "403") && !strings.Contains(got, "pushes are made by the sandbox") {
		t.Errorf("the agent's push said %q", got)
	}
	// Neither secret leaves the box: not in the output folder, not on the screen.
	nowhere(t, u, c, token, "k3y-of-the-canary-42")
}
