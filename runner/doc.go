// Package runner runs the unattended part of a task in the box: the agent, the
// shell commands of setup and the project's own validation, and draws the verdict.
//
// Everything it starts runs as Config.User in the workspace and is untrusted:
// output is redacted, logs, events and memory are bounded whatever is printed, no output
// pipe outlives its process, and what the agent leaves running is killed. It
// decides nothing about git and writes no result; its caller does.
package runner
