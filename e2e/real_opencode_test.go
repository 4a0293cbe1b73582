//go:build e2e

package e2e

import (
	"testing"
)

func opencodeSays(command string) reply {
	return reply{Tool: "bash", Input: map[string]string{"command": command, "description": "work"}}
}

func TestRealOpencode(t *testing.T) {
	t.Parallel()
	const harness = "{name: opencode, model: openai/" + openaiModel + ", version: 1.18.18}"
	task := "Say good evening in «greeting.txt»; $(touch pwned)"
	// A server that a repository names is not used.
	elsewhere := `{"provider": {"openai": {"options": {"baseURL": "http://127.0.0.1:1/v1"}}}, "small_model": "other/model", "model": "other/model"}`
	read := reply{Tool: "read", Input: map[string]string{"filePath": "/workspace/greeting.txt"}, Usage: modelUsage{3000, 50, 0, 0}}
	commit := opencodeSays("id -un >who.txt && docker ps >/dev/null && git add -A && git commit -q -m 'Greet in the evening'")
	commit.Usage = modelUsage{100, 60, 3200, 0}
	end := reply{Text: "Finished: it greets in the evening.", Usage: modelUsage{90, 40, 3200, 0}}
	check := func(t *testing.T, c realCLI, path string, tools ...string) {
		t.Helper()
		r := c.run(t)
		r.succeeded(t, c, tools...)
		if got := r.show(t, "greeting.txt") + " " + r.show(t, "who.txt"); got != "good evening sandbox" {
			t.Errorf("the branch has %q", got)
		}
		if len(r.result.Commits) != 1 || r.result.Commits[0].Subject != "Greet in the evening" {
			t.Errorf("commits %+v", r.result.Commits)
		}
		if a := r.result.Agent; a.Harness != "opencode" || a.Version != "1.18.18" || a.Turns != len(c.replies) {
			t.Errorf("agent %+v", a)
		}
		for _, call := range r.calls {
			if call.Path != path || call.Model != openaiModel {
				t.Errorf("call %s with model %s", call.Path, call.Model)
			}
		}
	}
	t.Run("responses", func(t *testing.T) {
		patch := reply{
			Tool:  "apply_patch",
			Input: map[string]string{"patchText": "*** Begin Patch\n*** Update File: greeting.txt\n@@\n-good morning\n+good evening\n*** End Patch"},
			Usage: modelUsage{300, 80, 2900, 0},
		}
		check(t, realCLI{
			harness: harness, task: task, files: map[string]string{"opencode.json": elsewhere}, replies: []reply{read, patch, commit, end},
		}, "/v1/responses", "read", "apply_patch", "bash")
	})
	if !nightly {
		return
	}
	t.Run("chat completions", func(t *testing.T) {
		// A provider of the repository's own, which goes through the gateway like all others.
		own := `{"provider": {"mine": {"npm": "@ai-sdk/openai-compatible", "options": {"baseURL": "{env:OPENAI_BASE_URL}", "apiKey": "{env:OPENAI_API_KEY}"},
			"models": {"` + openaiModel + `": {}}}}}`
		patch := reply{
			Tool:  "apply_patch",
			Input: map[string]string{"patchText": "*** Begin Patch\n*** Update File: greeting.txt\n@@\n-good morning\n+good evening\n*** End Patch"},
			Usage: modelUsage{300, 80, 2900, 0},
		}
		check(t, realCLI{
			harness: "{name: opencode, model: mine/" + openaiModel + ", version: 1.18.18}", task: task,
			files: map[string]string{"opencode.json": own}, replies: []reply{read, patch, commit, end},
		}, "/v1/chat/completions", "read", "apply_patch", "bash")
	})
	checkEnds(t, harness, opencodeSays("[ -e committed ] && exit; echo 1 >committed && git add -A && git commit -q -m 'work so far' && echo 2 >uncommitted"))
	t.Run("told of the budget", func(t *testing.T) {
		checkTold(t, harness, opencodeSays("echo told >told; until ls /tmp/sandbox-agent-notice-*/notice; do sleep 0.2; done"))
	})
	t.Run("hang", func(t *testing.T) {
		checkHang(t, harness, "10s", opencodeSays("exec sleep 600"), opencodeSays("echo after >after"))
	})
}
