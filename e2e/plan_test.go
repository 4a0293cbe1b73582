//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// A plan changes nothing in the repository; the user changes the plan, and another box carries it out. Another machine
// finds the plan on the remote.
func TestPlanThenCarryItOut(t *testing.T) {
	t.Parallel()
	u := newCarefulUser(t)
	repo := u.repo(map[string]string{"README": "x"})
	project := u.project(scripted("", `if [ "$SANDBOX_AGENT_MODE" = plan ]; then
  echo changed >made; git add made; git commit -qm "Not asked for"
  printf '1. Make the file\n' >"$SANDBOX_AGENT_PLAN_FILE"
else
  cp "$SANDBOX_AGENT_PROMPT_FILE" prompt.txt
fi`))
	c := u.run("", "create", "--plan", "--task", "Make something", "--repo", repo, "-p", project)
	r := u.plainResult(c.task(t))
	if c.code != 0 || r.Status != workorder.StatusPlanned || r.Plan != "1. Make the file\n" || r.Pushed || r.Branch != "" {
		t.Fatalf("exit code %d, %s, plan %q", c.code, r.Status, r.Plan)
	}
	if want := "sandbox-agent create --from-plan " + r.TaskID; !strings.Contains(c.stdout, "1. Make the file") || r.NextCommand != want {
		t.Errorf("next is %q, want %q; the user saw\n%s", r.NextCommand, want, c.stdout)
	}
	if refs := gittest.Git(t, repo, "for-each-ref", "--format=%(refname)", "refs/heads"); strings.Contains(refs, "agent/") {
		t.Errorf("the plan has a branch:\n%s", refs)
	}
	plan := filepath.Join(u.state, r.TaskID, workorder.PlanFile)
	if err := os.WriteFile(plan, []byte("1. Make it, as changed by the user\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	done := u.run("", "create", "--from-plan", r.TaskID, "--task", "And be quick", "--repo", repo)
	d := u.plainResult(done.task(t))
	if done.code != 0 || d.Status != workorder.StatusSuccess {
		t.Fatalf("exit code %d\n%s", done.code, done.stdout)
	}
	prompt := gittest.Git(t, repo, "show", d.Branch+":prompt.txt")
	for _, want := range []string{"Make something", "1. Make it, as changed by the user", "And be quick"} {
		if !strings.Contains(prompt, want) {
			t.Errorf("the prompt lacks %q:\n%s", want, prompt)
		}
	}
	other := newCarefulUser(t) // knows nothing of the task
	there := other.run("", "create", "--from-plan", r.TaskID, "--repo", repo, "-p", project)
	o := other.plainResult(there.task(t))
	if prompt := gittest.Git(t, repo, "show", o.Branch+":prompt.txt"); there.code != 0 || !strings.Contains(prompt, "1. Make the file") {
		t.Errorf("exit code %d, the prompt:\n%s", there.code, prompt)
	}
	if c := other.run("", "continue", r.TaskID, "--repo", repo, "-p", project, "--task", "more"); c.code != workorder.ExitUsage {
		t.Errorf("going on with a plan: exit code %d\n%s", c.code, c.stdout)
	}
}

// Failed validation goes back to the agent, which sees what failed.
func TestRepair(t *testing.T) {
	t.Parallel()
	u := newCarefulUser(t)
	repo := u.repo(map[string]string{"README": "x"})
	project := u.project(scripted("repair: {max_attempts: 3}\nvalidate: {good: \"echo droppings >left-by-validation; grep -q good made || { echo it is $(cat made), not good; exit 3; }\"}\n",
		`if grep -q 'it is better, not good' "$SANDBOX_AGENT_PROMPT_FILE"; then echo good >made
elif grep -q 'it is bad, not good' "$SANDBOX_AGENT_PROMPT_FILE"; then echo better >made
else echo bad >made; fi`))
	c := u.run("", "create", "--task", "Make it", "--repo", repo, "-p", project)
	r := u.plainResult(c.task(t))
	if c.code != 0 || r.Status != workorder.StatusSuccess || len(r.Repairs) != 2 || len(r.Validation) != 1 || !r.Validation[0].Passed {
		t.Fatalf("exit code %d, %s, %+v\n%s", c.code, r.Status, r.Repairs, c.stdout)
	}
	if got := gittest.Git(t, repo, "show", r.Branch+":made"); got != "good" {
		t.Errorf("the branch has %q", got)
	}
	if files := gittest.Git(t, repo, "ls-tree", "--name-only", r.Branch); strings.Contains(files, "left-by-validation") {
		t.Errorf("what validation left was committed:\n%s", files)
	}
	for _, log := range []string{"logs/agent.stdout.log", "logs/repair-1/agent.stdout.log", "logs/repair-2/validate-good.log"} {
		if _, err := os.Stat(filepath.Join(u.state, r.TaskID, log)); err != nil {
			t.Error(err)
		}
	}
}
