//go:build e2e && nightly

package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// lockAddress is where the tests of lockModule look for a Redis.
const lockAddress = `"127.0.0.1:6379"`

// lockTests are tests of the project that fail without a Redis.
var lockTests = []string{
	"TestClient", "TestObtain", "TestObtain_metadata", "TestObtain_custom_token", "TestObtain_retry_success",
	"TestObtain_retry_failure", "TestObtain_concurrent", "TestLock_Refresh", "TestLock_Refresh_expired",
	"TestLock_Release_expired", "TestLock_Release_not_own", "TestLock_Release_not_held",
	"Example",
}

// goEnv is how this machine's Go gets modules, as lines of a project's env: the box's Go has to do it the same way.
func goEnv(t *testing.T) string {
	t.Helper()
	names := []string{"GOPROXY", "GOSUMDB", "GONOSUMDB", "GOPRIVATE"}
	out, err := proc.Output(t.Context(), proc.Spec{Argv: append([]string{"go", "env", "-json"}, names...), Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	var set map[string]string
	if err := json.Unmarshal(out, &set); err != nil {
		t.Fatal(err)
	}
	var lines strings.Builder
	for _, n := range names {
		if set[n] != "" {
			lines.WriteString("  " + n + ": " + jsonString(t, set[n]) + "\n")
		}
	}
	return lines.String()
}

// jsonString quotes s for YAML, which reads JSON.
func jsonString(t *testing.T, s string) string {
	t.Helper()
	b, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// The whole job on a real project: its own test suite against a real Redis
// decides, before the change (it fails) and after it.
func TestRealProjectWithRedis(t *testing.T) {
	t.Parallel()
	const token = "t0ken-of-the-forge-5566778899"
	files := module(t, lockModule)
	hard := 0
	for _, content := range files {
		hard += strings.Count(content, lockAddress)
	}
	if hard == 0 {
		t.Fatalf("%s has no %s any more: choose another project", lockModule, lockAddress)
	}
	srv := gittest.NewAt(t, token, hostAddress(t))
	url := srv.Create(t, "redislock.git", files)
	u := newUser(t, "SANDBOX_AGENT_GIT_TOKEN="+token)
	project := u.project(`
name: redislock
repo: ` + url + `
branch: main
packages: [golang-go]
services:
  redis:
    image: ` + redisImage + `
    ports: [6379]
    healthcheck:
      test: redis-cli ping
env:
  REDIS_ADDR: redis:6379
` + goEnv(t) + `lifecycle:
  setup:
    - go version && go mod download && go vet ./...
validate:
  test: go test -v -count=1 ./...
  vet: go vet ./... && test -z "$(gofmt -l .)"
timeout_minutes: 10
harness:
  name: command
  command: |
    set -e
    # Before the change nothing can work: nobody listens on the box's own port 6379.
    if go test -count=1 -run 'TestClient$' . >before.log 2>&1; then echo "the tests passed without a Redis"; exit 9; fi
    grep -q "127.0.0.1:6379: connect: connection refused" before.log
    rm before.log
    sed -i 's/"127\.0\.0\.1:6379"/redisAddr()/' *_test.go
    cat >redis_addr_test.go <<'EOF'
    package redislock_test

    import "os"

    // redisAddr is where the tests find their Redis.
    func redisAddr() string {
    	if addr := os.Getenv("REDIS_ADDR"); addr != "" {
    		return addr
    	}
    	return "127.0.0.1:6379"
    }
    EOF
    gofmt -l . && go vet ./...
    git add -A && git commit -q -m "Tests: take the address of Redis from REDIS_ADDR"
`)
	c := u.run("", "create", "-p", project, "--task", "Make the tests' Redis address configurable by REDIS_ADDR")
	r := u.result(c.task(t))
	if c.code != 0 || r.Status != workorder.StatusSuccess || r.EndedBy != workorder.EndedByAgent || !r.Pushed {
		t.Fatalf("exit code %d, %s by %s, pushed %v: %s", c.code, r.Status, r.EndedBy, r.Pushed, r.Reasons)
	}

	// The remote has the change and main is as it was.
	bare := srv.Repo("redislock.git").Dir
	if got := gittest.Git(t, bare, "rev-parse", "refs/heads/"+r.Branch); got != r.HeadSHA {
		t.Errorf("the remote has %s, want %s", got, r.HeadSHA)
	}
	if got := gittest.Git(t, bare, "rev-parse", "main"); got != r.BaseSHA {
		t.Errorf("main moved to %s", got)
	}
	if len(r.Commits) != 1 || r.Commits[0].Subject != "Tests: take the address of Redis from REDIS_ADDR" || r.Commits[0].SHA != r.HeadSHA {
		t.Errorf("commits %+v", r.Commits)
	}
	changed := gittest.Git(t, bare, "diff", "--name-only", "main", r.Branch)
	if changed != "example_test.go\nredis_addr_test.go\nredislock_test.go" {
		t.Errorf("changed: %s", changed)
	}
	diff := gittest.Git(t, bare, "diff", "main", r.Branch)
	if !strings.Contains(diff, "+\tAddr:    redisAddr(),") || !strings.Contains(diff, `os.Getenv("REDIS_ADDR")`) {
		t.Errorf("the change is not on the branch:\n%s", diff)
	}

	// The project's own tests really ran, against the service.
	if len(r.Validation) != 2 || !r.Validation[0].Passed || !r.Validation[1].Passed {
		t.Fatalf("validation %+v", r.Validation)
	}
	dir := filepath.Dir(resultPath(t, u, r.TaskID))
	log, err := os.ReadFile(filepath.Join(dir, r.Validation[0].Log))
	if err != nil {
		t.Fatal(err)
	}
	passed := strings.Count(string(log), "\n--- PASS: ")
	for _, name := range lockTests {
		if !strings.Contains(string(log), "--- PASS: "+name+" (") {
			t.Errorf("%s did not run", name)
		}
	}
	if strings.Contains(string(log), "--- FAIL") || strings.Contains(string(log), "--- SKIP") || passed < len(lockTests) {
		t.Errorf("%d tests passed:\n%s", passed, log)
	}
	if len(r.Services) != 1 || r.Services[0].Name != "redis" || r.Services[0].State != "ready" {
		t.Errorf("services %+v", r.Services)
	}
	for _, name := range []workorder.StepName{"prepare", "docker", "clone", "services", "packages", "env", "setup", "agent", "validate", "push"} {
		if s := step(t, r, name); s.Status != workorder.StepDone {
			t.Errorf("step %s: %s %s", name, s.Status, s.Error)
		}
	}
	if r.Agent.ExitCode == nil || *r.Agent.ExitCode != 0 || r.Repo != url || r.BaseBranch != "main" || r.Platform.StorageDriver == "" {
		t.Errorf("result %+v", r)
	}
	nowhere(t, u, c, token)
	if strings.Contains(diff, token) || strings.Contains(gittest.Git(t, bare, "log", "-p", "--all"), token) {
		t.Error("the token is on the branch")
	}
	t.Logf("%d of the project's own tests passed in %d ms; packages %d ms, setup %d ms", passed,
		r.Validation[0].DurationMS, step(t, r, "packages").DurationMS, step(t, r, "setup").DurationMS)
}
