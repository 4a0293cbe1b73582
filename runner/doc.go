// Package runner runs the unattended part of a task in the box: the agent, the shell commands of setup and
// the project's own validation. It then determines the verdict.
//
// Everything it starts runs as Config.User in the workspace and is untrusted: output is redacted; logs,
// events and memory are bounded; no output pipe outlives its process; and processes that the agent leaves
// running are killed. The package makes no decisions about git and writes no result; its caller does.
package runner
