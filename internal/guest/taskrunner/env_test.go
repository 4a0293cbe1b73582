package taskrunner

import (
	"slices"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/runner"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

func TestCommandEnv(t *testing.T) {
	t.Setenv("FROM_THE_IMAGE", "1")
	t.Setenv("HOME", "/root")
	t.Setenv("SANDBOX_AGENT_RESCUE_REASON", "x")
	env := commandEnv(&workorder.Envelope{
		Order: workorder.Order{
			TaskID: "T-A1B2C3D4", BoxSpec: workorder.BoxSpec{Setup: []string{"cd web && pnpm install"}, Env: map[string]string{"A": "project", "KEY": "project", "CI": ""}},
			Author: workorder.Identity{Name: "Agent", Email: "a@example.org"},
		},
		Secrets: map[string]string{"KEY": "secret"},
		Git:     &workorder.GitCredential{Token: "the-git-token"},
	})
	for _, want := range []string{
		"FROM_THE_IMAGE=1", "HOME=/home/sandbox", "USER=sandbox", "A=project", "KEY=secret", "CI=", "GIT_TERMINAL_PROMPT=0",
		"GIT_AUTHOR_NAME=Agent", "GIT_COMMITTER_EMAIL=a@example.org", "SANDBOX_AGENT_TASK_ID=T-A1B2C3D4", "SANDBOX_AGENT_WORKSPACE=/workspace",
		"npm_config_store_dir=/home/sandbox/.local/share/pnpm/store", "PIP_CACHE_DIR=/home/sandbox/.cache/pip",
	} {
		if !slices.Contains(env, want) {
			t.Errorf("%s is missing", want)
		}
	}
	names := map[string]bool{}
	for _, kv := range env {
		name, value, _ := strings.Cut(kv, "=")
		if names[name] {
			t.Errorf("%s is there twice", name)
		}
		names[name] = true
		if value == "the-git-token" {
			t.Errorf("%s is the git token", name)
		}
	}
}

// A service that is lost is in the verdict on a run that failed.
func TestVerdictNamesLostServices(t *testing.T) {
	t.Parallel()
	o := &workorder.Order{}
	tk := &Task{
		agent: runner.AgentOutcome{
			Ending: workorder.Ending{
				Status:  workorder.StatusFailed,
				EndedBy: workorder.EndedByAgent,
				Reasons: workorder.Because(workorder.ReasonAgent, "it gave up"),
			},
		},
	}
	tk.cfg.Order = o
	tk.AddFailedService("service db failed during the run: its container exited with code 1")
	if reason := tk.Verdict(
		nil,
		0,
		nil,
	).Reasons; len(reason) != 2 || reason[1].Code != workorder.ReasonServiceLost ||
		!strings.Contains(reason[1].Detail, "db") {
		t.Errorf("reason %q", reason)
	}
}
