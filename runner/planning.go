package runner

import "fmt"

// Planning composes the prompt of a plan-only task. It contains the task byte for byte.
func Planning(task, file string) string {
	return fmt.Sprintf(
		"Make a plan for the task below, but do not carry it out: do not change files of the repository and do not commit, because "+
			"changes are discarded. "+
			"Read the code as far as the plan needs it; you may run commands to find things out.\n\n"+
			"Write the plan as Markdown to the file %s (also in $SANDBOX_AGENT_PLAN_FILE). A person will decide on it, and another agent "+
			"that has not seen your work will carry it out. So be short and concrete about:\n"+
			"- the changes, file by file, and the reasons for them; alternatives that you rejected\n"+
			"- the order of the steps, each small enough to be one commit\n"+
			"- how to check each step: tests to add or change, commands to run\n"+
			"- unclear or risky points, and questions that only a person can answer\n\n"+
			"# The task, as it was given\n\n%s",
		file, task,
	)
}
