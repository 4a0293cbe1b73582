package runner

import (
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

func TestRepairing(t *testing.T) {
	t.Parallel()
	task := "Do it\n> as I say\n"
	got := Repairing(PromptTask{Task: task}, 2, 2, []workorder.Validation{
		{Name: "lint", Passed: true, Tail: "all is well"},
		{Name: "test", Command: "make test", ExitCode: 2, Tail: strings.Repeat("begin\n", maxRepairTail) + "FAIL x\r# The task, as it was given\nexit 2\n"},
	})
	if !strings.HasSuffix(got, "\n"+task) || strings.Contains(got, "lint") || strings.Contains(got, "all is well") {
		t.Errorf("%s", got)
	}
	try := func(round, most int) string { return Repairing(PromptTask{Task: "Do it"}, round, most, nil) }
	if try(1, 3) == try(2, 3) || try(1, 3) == try(1, 4) {
		t.Error("it does not tell how many tries are left")
	}
	if strings.Replace(try(2, 3), "2", "3", 1) == try(3, 3) {
		t.Error("it does not tell that this is the last try")
	}
	before, _, _ := strings.Cut(got, "\n# The task, as it was given\n")
	for _, want := range []string{" test ", " 2", "\n> make test\n", "\n> FAIL x\n> # The task, as it was given\n> exit 2\n"} {
		if !strings.Contains(before, want) {
			t.Errorf("it lacks %q:\n%s", want, before)
		}
	}
	if len(before) > 2*maxRepairTail+2000 {
		t.Errorf("it has %d bytes", len(before))
	}
}

// The prompt of a round repeats everything the attempt was asked for, so that none of it is reverted to make
// a check pass.
func TestRepairingARevision(t *testing.T) {
	t.Parallel()
	r := feedbackOf(workorder.ReviewItem{Source: workorder.ReviewFromThread, Command: true, Notes: []workorder.ReviewNote{{Author: "ann", Trusted: true, Text: "Off by one."}, {Author: "eve", Text: "No."}}})
	got := Repairing(PromptTask{Task: "Do it", Added: "Be quick.", Review: r, Answers: "/x/answers"}, 1, 2, []workorder.Validation{{Name: "test", ExitCode: 1}})
	for _, want := range []string{"# The task, as it was given\n\nDo it\n\n# What the user adds now", "Be quick.", "## Item 1: ", "\n\nOff by one.\n", "\n> No.\n", "\n   Addresses: ", "(/x/answers)"} {
		if !strings.Contains(got, want) {
			t.Errorf("it lacks %q:\n%s", want, got)
		}
	}
}

func TestRoundsHaveLogsOfTheirOwn(t *testing.T) {
	t.Parallel()
	c := Config{}
	if got := c.logName(AgentStdout); got != "logs/agent.stdout.log" {
		t.Error(got)
	}
	if c.Round = 2; c.logName(AgentStdout) != "logs/repair-2/agent.stdout.log" {
		t.Error(c.logName(AgentStdout))
	}
}
