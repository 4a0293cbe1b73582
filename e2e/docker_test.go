//go:build e2e

package e2e

import (
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/git/gittest"
	"github.com/sandbox-agent/sandbox-agent/internal/host/doctor/conformance"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// dockerFiles are the files of the checks, as a repository has them.
func dockerFiles(t *testing.T) map[string]string {
	t.Helper()
	files, err := conformance.Files()
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// The agent, user sandbox, uses Docker as people do. What it does is in
// checks.sh of package conformance, which `doctor --deep` runs too; each check is a subtest here.
func TestDockerInTheBox(t *testing.T) {
	for name, project := range map[string]string{
		// The engine starts with the agent's first command.
		"lazy": "",
		"services": `
services:
  redis:
    image: ` + redisImage + `
`,
	} {
		t.Run(name, func(t *testing.T) {
			u := newUser(t)
			repo := u.repo(dockerFiles(t))
			c := u.run("", "create", "--repo", repo, "--task", "use docker", "-p", u.project(`
name: docker
packages: [`+conformance.Package+`]
env:
  REDIS_IMAGE: `+redisImage+`
timeout_minutes: 4
harness:
  name: command
  command: |
    export SANDBOX_NETWORK=sandbox-agent-$SANDBOX_AGENT_TASK_ID
    exec bash checks.sh `+name+`
`+project))
			r := u.result(c.task(t))
			if c.code != 0 || r.Status != workorder.StatusSuccess {
				t.Fatalf("exit code %d, %s: %s", c.code, r.Status, r.Reason)
			}
			if r.Host.StorageDriver == "" || r.Host.InnerVersion == "" {
				t.Errorf("host %+v", r.Host)
			}
			report := strings.Split(gittest.Git(t, repo, "show", r.Branch+":report"), "\n")
			if want := strings.Count(dockerFiles(t)["checks.sh"], "\tcheck \""); len(report) < 10 || len(report) >= want {
				t.Errorf("%d checks ran of %d in both parts", len(report), want)
			}
			for _, line := range report {
				name, output, _ := strings.Cut(line, "|")
				t.Run(strings.TrimPrefix(strings.TrimPrefix(name, "ok "), "FAIL "), func(t *testing.T) {
					if !strings.HasPrefix(name, "ok ") {
						t.Error(strings.ReplaceAll(output, "|", "\n"))
					}
				})
			}
			if files := gittest.Git(t, repo, "diff", "--name-only", "main", r.Branch); files != "report" {
				t.Errorf("left in the workspace: %s", files)
			}
		})
	}
}
