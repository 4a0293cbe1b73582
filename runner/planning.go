package runner

import "fmt"

// Planning composes the prompt of a task that is only planned. The task is in it byte for byte.
func Planning(task, file string) string {
	return fmt.Sprintf("Make a plan for the task below, and do not carry it out: change no file of the repository and commit nothing, it would be thrown away. "+
		"Look at the code as far as the plan needs it; you may run commands to find things out.\n\n"+
		"Write the plan as Markdown to the file %s (also in $SANDBOX_AGENT_PLAN_FILE). A person decides by it, and another agent carries it out who has not seen what you saw. So say, short and concrete:\n"+
		"- what is to be changed, file by file, and why that way; what was considered and left\n"+
		"- the order of the steps, each small enough to be one commit\n"+
		"- how each is checked: tests to add or change, commands to run\n"+
		"- what is unclear or risky, and the questions that only a person can answer\n\n"+
		"# The task, as it was given\n\n%s", file, task)
}
