package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// helpTopic is a help text that belongs to no command.
type helpTopic struct {
	name, short string
	text        func(root *cobra.Command) string
}

func helpTopics() []helpTopic {
	return []helpTopic{
		{"commands", "All commands, one per line", commandsTopic},
		{"exit-codes", "Exit codes", func(*cobra.Command) string { return exitCodesTopic() }},
		{"environment", "Environment variables", func(*cobra.Command) string { return environmentTopic() }},
		{"networks", "Network modes and rules", func(*cobra.Command) string { return networksTopic }},
		{"names", "Names of tasks and sandboxes, and commands without one", func(*cobra.Command) string { return namesTopic }},
	}
}

func topicNames() (names []string) {
	for _, t := range helpTopics() {
		names = append(names, t.name)
	}
	return names
}

// addTopics adds the help topics. A command that cannot run is a topic to the library.
func addTopics(root *cobra.Command) {
	for _, t := range helpTopics() {
		root.AddCommand(&cobra.Command{Use: t.name, Short: t.short, Long: t.text(root), DisableFlagsInUseLine: true})
	}
}

func commandsTopic(root *cobra.Command) string {
	var b strings.Builder
	for _, g := range helpGroups() {
		fmt.Fprintf(&b, "%s:\n\n", g.title)
		var all []*cobra.Command
		for _, row := range g.rows {
			for verb := range strings.FieldsSeq(row.verbs) {
				if cmd, _, err := root.Find([]string{verb}); err == nil && cmd != root {
					all = append(all, cmd)
				}
			}
		}
		writeCommands(&b, all, helpWidth)
		b.WriteString("\n")
	}
	return b.String()
}

// exitCodeRow documents an exit code.
type exitCodeRow struct {
	code  int
	about string
}

func exitCodes() []exitCodeRow {
	return []exitCodeRow{
		{workorder.ExitOK, "done"},
		{workorder.ExitGeneral, "general error"},
		{workorder.ExitNotFound, "task or sandbox not found"},
		{workorder.ExitNoProject, "project not found"},
		{workorder.ExitPort, "a port of this machine is unavailable"},
		{workorder.ExitBox, "the sandbox did not start or was lost; no engine"},
		{workorder.ExitInvalid, "project or order invalid"},
		{workorder.ExitGit, "git failed, or another sandbox has the task"},
		{workorder.ExitTaskFailed, "the task failed: agent, validation or setup"},
		{workorder.ExitInterrupted, "interrupted; the work so far is pushed"},
		{workorder.ExitTimeout, "time limit reached; the work so far is pushed"},
		{workorder.ExitBudget, "budget used up; the work so far is pushed"},
		{workorder.ExitParked, "parked at a provider's rate limit"},
		{workorder.ExitUnproven, "unproven: checks fail as they did before the task"},
		{workorder.ExitUsage, "usage error; nothing was changed"},
	}
}

func exitCodesTopic() string {
	var b strings.Builder
	b.WriteString("Exit codes of sandbox-agent:\n\n")
	for _, row := range exitCodes() {
		fmt.Fprintf(&b, "  %-5d%s\n", row.code, row.about)
	}
	b.WriteString(`
exec, run, shell and ssh end with the exit code of the command that they run, and
with one of these of their own:

  124  the command was ended at --timeout
  125  whether the command has ended is unknown: the connection was lost
  126  the command could not be started

130 and 143 mean that SIGINT or SIGTERM ended this program. A task that it
followed goes on.
`)
	return b.String()
}

// variableRow documents environment variables.
type variableRow struct{ names, about string }

func environmentTopic() string {
	rows := []variableRow{
		{"SANDBOX_AGENT_STATE_DIR", "directory of tasks, records and keys"},
		{"SANDBOX_AGENT_VERBOSE", "true: --verbose for all commands"},
		{"SANDBOX_AGENT_LOG_FORMAT", "json: --log-format json for all commands"},
		{"SANDBOX_AGENT_DEBUG", "true: --debug for all commands"},
		{app.SandboxVariable, "sandbox of commands without a name"},
		{app.RuntimeVariable, "runtime of new sandboxes"},
		{app.ImageVariable, "image of containers without --image"},
		{"SANDBOX_AGENT_PROJECTS", "more directories with project files"},
		{app.PresetsFile, "file with presets of 'run'"},
		{app.PresetsDir, "directory with artifacts of 'run'"},
		{app.SessionIdle, "seconds until an idle session ends"},
		{app.SessionLife, "seconds until a session of 'run' ends"},
		{"SANDBOX_AGENT_GIT_TOKEN", "token for the git server and its forge"},
		{"SANDBOX_AGENT_GIT_USERNAME", "user name that goes with it"},
		{"GH_TOKEN, GITHUB_TOKEN", "token for GitHub"},
		{"SANDBOX_AGENT_GITHUB_APP_ID", "GitHub App; _KEY, _KEY_FILE: its key"},
		{"SANDBOX_AGENT_GITHUB_APP_INSTALLATION", "its installation, if it has several"},
		{"SANDBOX_AGENT_SSH_KEY", "file with the SSH key for git"},
		{"SANDBOX_AGENT_SSH_KNOWN_HOSTS", "file with the keys of SSH servers"},
		{"SANDBOX_AGENT_PROGRAMS", "directory with the guest's programs"},
		{"SANDBOX_AGENT_MCP_TOKEN", "token of 'mcp --listen'"},
		{"SANDBOX_AGENT_MCP_LOG", "log file of 'mcp'"},
		{"SANDBOX_AGENT_CACHE_VOLUME", "volume of the layer cache"},
		{"DOCKER_HOST", "address of the Docker engine"},
		{"NO_COLOR", "no colors, if not empty"},
	}
	var b strings.Builder
	b.WriteString("Environment variables that sandbox-agent reads:\n\n")
	for _, row := range rows {
		fmt.Fprintf(&b, "  %-37s %s\n", row.names, row.about)
	}
	b.WriteString("\nThese stand for the flags of the " +
		"same name of 'create', 'continue', 'revise' and\n'rebase'. A flag wins over a variable, a variable over the project file:\n\n")
	for _, flag := range app.SettingFlags() {
		fmt.Fprintf(&b, "  %s\n", app.EnvName(flag))
	}
	return b.String()
}

const namesTopic = `TASK is the ID of a task or the beginning of one, in any case and without T-:
a1b2 is T-A1B2C3D4. SANDBOX is the name of a sandbox. Where a command takes both
and a sandbox has the name, the sandbox is meant.

'log', 'diff', 'checkout', 'merge' and 'apply' without a name take, in this order:

  1. the sandbox that SANDBOX_AGENT_SANDBOX names
  2. the last task of the repository in the current directory, or a newer
     sandbox whose branch descends from the current checkout
  3. outside of any repository, the last task

Several such sandboxes are an error, and nothing is changed. A note on standard
error names the choice. 'exec -- COMMAND' chooses in the same way among
sandboxes only, and creates one for the current directory if there is none.
'open', which takes tasks only, chooses the last task. 'continue' chooses the last
task that can be resumed, and with a new text also one that is done.

'stop', 'rm', 'down', 'delete' and 'reset' never choose a task or sandbox for
you: name it, or give --all where there is one.
`

const networksTopic = `A sandbox has one of three network modes:

  full        everything; in a box without metadata services of clouds
  restricted  what the rules of --allow and of the project file name
  none        nothing; ports published with --port or 'ports' still work

--allow alone means --network restricted. A rule is

  HOST        a host name, at ports 80 and 443
  *.DOMAIN    all subdomains of a domain, but not the domain itself
  ADDRESS     an IP address
  ...:PORT    one of these at another port
  ...@private a name that may resolve to a private address

A project file has the same under 'network': mode, allow, learn. In a box the
model gateway, git and the project's services are reachable in every mode.
Only sandboxes of the runtime box can be restricted.

Examples:

  sandbox-agent create "..." --allow example.com
  sandbox-agent network dev none
  sandbox-agent network suggest TASK  propose rules from what a task used
  sandbox-agent network check HOST    say which rule allows a host
`
