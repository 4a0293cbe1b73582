package projects

import (
	"regexp"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

var (
	projectName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)
	// imageRef accepts [host[:port]/]path[:tag][@digest], loosely: the engine has
	// the last word, the check is there to catch slips and options.
	imageRef    = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:/@-]{0,254}$`)
	runtimeName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/-]{0,127}$`)
	// packageName ends in no hyphen: apt-get would remove such a package.
	packageName = regexp.MustCompile(`^[a-z0-9][a-z0-9+.-]*[a-z0-9+.](:[a-z0-9]+)?(=[A-Za-z0-9.+:~-]*[A-Za-z0-9.+~])?$`)
	ownerName   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9-]*/[A-Za-z0-9._-]+$`)
	plainWord   = regexp.MustCompile(`^[^-\s][^\s]*$`)
	// agentName is a window's in tmux, which would take a number for the window of that number.
	agentName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]{0,31}$`)
	urlPath   = regexp.MustCompile(`^/[!-~]{0,500}$`)
	portSpec  = regexp.MustCompile(`^[1-9][0-9]{0,4}(/(tcp|udp))?$`)
)

// ValidPackage reports whether s can name a package of the distribution, optionally NAME=VERSION.
func ValidPackage(s string) bool { return packageName.MatchString(s) }

const (
	maxPort = 65535
	// maxMinutes keeps a timeout representable as a duration: a year is longer
	// than any run.
	maxMinutes = 365 * 24 * 60
)

// definition is the project file. The order is the one of documentation and of
// `project show`.
func definition() *schema {
	env := func() *schema {
		return &schema{
			kind: mapping,
			doc:  "Environment of setup, agent, validate and dev commands, also written to the generated .env. $NAME and ${NAME} in a value are the image's variables, $$ is a dollar.",
			item: &schema{kind: text, doc: "Value, kept as written but for references: 1.10 stays 1.10.", allowEmpty: true, examples: []string{"/opt/tool/bin:$PATH"}}, names: workorder.ValidEnvName,
			namesRule: "letters, digits and _, not starting with a digit",
		}
	}
	validate := func() *schema {
		return &schema{
			kind: mapping, doc: "Named commands that judge the agent's work, run after it in the order of the file.",
			item:      &schema{kind: text, doc: "Shell command; exit code 0 passes."},
			names:     projectName.MatchString,
			namesRule: "letters, digits, dot, dash and _, at most 63",
		}
	}
	dev := func() *schema {
		return &schema{kind: object, doc: "Development server. Its pages are looked at in a browser on base and head, and the agent is told how to look at them.", keys: []key{
			{name: "command", required: true, slips: []string{"cmd", "run"}, schema: &schema{kind: text, doc: "Shell command that starts it, in the foreground, with PORT set.", examples: []string{"npm run dev"}}},
			{name: "port", required: true, schema: &schema{kind: integer, max: maxPort, doc: "TCP port it listens on.", examples: []string{"3000"}}},
			{name: "ready_path", slips: []string{"ready", "health"}, schema: &schema{kind: text, def: "/", doc: "Path that answers with less than 500 when the server is ready.", pattern: urlPath, rule: "a path such as /health", examples: []string{"/health"}}},
			{name: "pages", slips: []string{"paths", "urls"}, schema: &schema{
				kind: list, doc: "Paths that pictures are taken of, before and after the task's commits, at desktop and phone width. Default: ready_path.",
				item: &schema{kind: text, doc: "Path.", pattern: urlPath, rule: "a path such as /login?next=/", examples: []string{"/", "/login"}},
			}},
			{name: "start_timeout", slips: []string{"timeout"}, schema: &schema{kind: duration, def: "60s", doc: "Time from start to ready.", examples: []string{"60s"}}},
		}}
	}
	return &schema{kind: object, doc: "Project file of sandbox-agent.", keys: []key{
		{name: "name", required: true, schema: &schema{
			kind: text, doc: "Name of the project.", pattern: projectName,
			rule: "letters, digits, dot, dash and _, at most 63, starting with a letter or digit", examples: []string{"my-saas-app"},
		}},
		{name: "description", schema: &schema{kind: text, doc: "What it is for, in a line: of a template, which is a project without repo.", examples: []string{"Python with our tools"}}},
		{name: "repo", slips: []string{"repository", "git", "url"}, schema: &schema{
			kind: text, doc: "Repository to work on: an https or ssh URL, user@host:path, or a folder (relative to this file). Without it the task has no repository and makes no branch.",
			check: checkRepo, examples: []string{"https://github.com/myorg/my-saas-app", "git@github.com:myorg/my-saas-app.git", "."},
		}},
		{name: "branch", slips: []string{"base"}, schema: &schema{
			kind: text, doc: "Base branch the work starts from. Default: the repository's default branch.",
			check: checkBranch, examples: []string{"main"},
		}},
		{name: "supabase", schema: &schema{kind: boolean, def: "false", doc: "Start a complete local Supabase stack in the sandbox and export DATABASE_URL and the rest."}},
		{name: "services", slips: []string{"containers"}, schema: services(env)},
		{name: "env", slips: []string{"environment", "variables"}, schema: env()},
		{name: "secrets", schema: secrets()},
		{name: "packages", slips: []string{"apt"}, schema: &schema{
			kind: list, doc: "Distribution packages to install in the sandbox before setup.",
			item: &schema{kind: text, doc: "Package name, optionally =version.", pattern: packageName, rule: "a package name such as libpq-dev"},
		}},
		{name: "tools", slips: []string{"toolchains", "versions", "engines"}, schema: &schema{
			kind: mapping, doc: "Tools that setup, agent and checks need, by version. Each is there in a version that satisfies, or the run ends and says what is to be had. Tools: " + strings.Join(workorder.ToolNames(), ", ") + ".",
			item:  &schema{kind: text, doc: "A version, a beginning of one (22 is any 22.x), or a range such as >=20 <23.", check: checkToolVersion, examples: []string{"22", "1.26", ">=20 <23"}},
			names: workorder.ValidTool, namesRule: "one of " + strings.Join(workorder.ToolNames(), ", "),
		}},
		{name: "lifecycle", schema: &schema{kind: object, doc: "Commands around the agent's work.", keys: []key{
			{name: "setup", slips: []string{"install", "before"}, schema: &schema{
				kind: list, doc: "Shell commands run in order as the user sandbox when the services are up, before the agent. The first that fails ends the run.",
				item: &schema{kind: text, doc: "Shell command.", examples: []string{"npm ci"}},
			}},
			{name: "env", schema: env()},
			{name: "validate", slips: []string{"test", "tests", "checks"}, schema: validate()},
			{name: "dev", schema: dev()},
		}}},
		{name: "validate", slips: []string{"tests", "checks"}, schema: validate()},
		{name: "proof", schema: &schema{kind: boolean, def: "true", doc: "Run the validate commands on base and head in clean checkouts as well, and compare them test by test; with dev, take pictures of its pages there. false: neither."}},
		{name: "strict", schema: &schema{kind: boolean, doc: "true: a check that fails ends the task as failed. false: one that failed before the task as well, and is no worse, does not keep it from success. Default: that ends it as unproven, unless something that failed passes now."}},
		{name: "dev", schema: dev()},
		{name: "repair", schema: &schema{kind: object, doc: "Send failed validation back to the agent.", keys: []key{
			{name: "max_attempts", required: true, slips: []string{"attempts", "max"}, schema: &schema{kind: integer, max: workorder.MaxRepairs, doc: "How often, within the task's budget and time.", examples: []string{"2"}}},
		}}},
		{name: "harness", slips: []string{"agent"}, schema: harness()},
		{name: "push_secrets", schema: &schema{kind: text, def: workorder.PushSecretsRefuse, enum: []string{workorder.PushSecretsRefuse, workorder.PushSecretsAllow}, doc: "Commits that have the value of one of secrets (8 bytes and more, also in base64 and hexadecimal) in a file, a message or a name. refuse: they are not pushed but kept beside the result, and the task does not succeed. allow: they are pushed, and the pull request says so."}},
		{name: "author", slips: []string{"committer", "git_author"}, schema: &schema{kind: text, check: checkAuthor, doc: "Who commits, as Name <email>. Default: the user's git identity, with a trailer Co-authored-by for the agent.", examples: []string{"Build Bot <bot@example.com>"}}},
		{name: "agents", schema: &schema{
			kind: mapping, doc: "Agents that `sandbox-agent start` can start at a terminal, by a name of yours, beside harness.", names: agentName.MatchString,
			namesRule: "letters, digits, dash and _, a letter first, at most 32", item: agent(),
		}},
		{name: "init", schema: &schema{
			kind: list, doc: "Shell commands run in order in a new sandbox without a task, after setup. One that fails is told, and the next one is run.",
			item: &schema{kind: text, doc: "Shell command."},
		}},
		{name: "briefing", schema: &schema{kind: text, doc: "More that agents of `sandbox-agent start` are told of the sandbox."}},
		{name: "max_budget_usd", slips: []string{"budget", "max_budget", "budget_usd"}, schema: &schema{kind: number, doc: "Most that the agent may spend, in US dollars; fractions count. Default: no cap.", examples: []string{"5.0"}}},
		{name: "timeout_minutes", slips: []string{"timeout"}, schema: &schema{kind: number, def: "30", max: maxMinutes, doc: "Wall-clock limit of the run, in minutes; fractions count."}},
		{name: "pr", slips: []string{"pull_request"}, schema: pullRequest()},
		{name: "network", slips: []string{"egress", "firewall", "internet"}, schema: network()},
		{name: "gateway", slips: []string{"llm", "models", "proxy"}, schema: gateway()},
		{name: "trust_branch_config", slips: []string{"trust_branch", "trust_config"}, schema: &schema{kind: boolean, def: "false", doc: "On continue, let the agent use the agents' settings, hooks and MCP files that the branch itself changed. Default: they are those of the base branch while the agent works."}},
		{name: "limits", slips: []string{"resources"}, schema: &schema{kind: object, doc: "Limits of the whole sandbox.", keys: []key{
			{name: "memory", slips: []string{"mem"}, schema: &schema{kind: size, doc: "Memory, from 64m. Default: nine tenths of the machine's.", check: checkMemory, examples: []string{"4g", "512m"}}},
			{name: "cpus", slips: []string{"cpu"}, schema: &schema{kind: number, doc: "Processors; fractions count.", examples: []string{"1.5"}}},
			{name: "pids", schema: &schema{kind: integer, doc: "Processes and threads of the agent, of commands and of inner containers. Default: 4096.", examples: []string{"4096"}}},
			{name: "disk", slips: []string{"storage"}, schema: &schema{kind: size, doc: "Most that the task may take of the disk, inner images and containers included; a run that takes more is ended, and its work lands. Default: no limit.", examples: []string{"20g"}}},
		}}},
		{name: "isolation", schema: &schema{kind: text, def: workorder.IsolationConfined, enum: []string{workorder.IsolationConfined, workorder.IsolationPrivileged}, doc: "How the sandbox is held: confined (capability list, no host devices) or privileged (classic --privileged)."}},
		{name: "oci_runtime", slips: []string{"runtime"}, schema: &schema{kind: text, doc: "OCI runtime of the engine, such as sysbox-runc, kata or runsc. Default: the engine's own.", pattern: runtimeName, rule: "the name of a runtime the engine knows"}},
		{name: "image", schema: &schema{kind: text, doc: "Image of the sandbox. A custom image must exist; it is never built over. Default: the image built by the CLI.", pattern: imageRef, rule: "an image reference such as name:tag"}},
		{name: "push_interval", schema: &schema{kind: duration, def: "2m", doc: "Longest time between pushes of committed work; a commit is pushed within seconds.", examples: []string{"2m"}}},
		{name: "checkpoint_interval", schema: &schema{kind: duration, def: "60s", doc: "Time between snapshots of uncommitted work; the most that a sudden end can cost.", examples: []string{"60s"}}},
		{name: "hang_timeout", slips: []string{"watchdog", "idle_timeout"}, schema: &schema{kind: duration, def: "15m", doc: "An agent that for so long shows no sign of life (no event, no change in the tree, no work of its processes) is stopped; where its harness can, its session is resumed once.", examples: []string{"15m"}}},
	}}
}

func services(env func() *schema) *schema {
	volume := &schema{kind: text, doc: "name:/path, a volume that is gone with the sandbox. Host folders do not exist there.", check: checkVolume, examples: []string{"data:/var/lib/postgresql/data"}}
	serviceEnv := env()
	serviceEnv.doc = "Environment of the container, kept as written."
	serviceEnv.item = &schema{kind: text, doc: "Value, kept as written: 1.10 stays 1.10.", allowEmpty: true}
	return &schema{
		kind: mapping, doc: "Containers the task needs, in the sandbox's own Docker. Each is reachable by its name.",
		names: validServiceName, namesRule: "a host name in lower case such as redis, at most 63 characters",
		item: &schema{kind: object, doc: "A service.", keys: []key{
			{name: "image", required: true, schema: &schema{kind: text, doc: "Image reference.", pattern: imageRef, rule: "an image reference such as redis:7-alpine", examples: []string{"redis:7-alpine"}}},
			{name: "command", slips: []string{"cmd", "args", "entrypoint"}, schema: argv("Command of the container instead of the image's.")},
			{name: "env", slips: []string{"environment"}, schema: serviceEnv},
			{name: "ports", slips: []string{"expose", "port"}, schema: &schema{
				kind: list, doc: "Container ports. The first TCP port says when the service is ready, if it has no healthcheck. 5433:5432 is also localhost:5433 in the sandbox. Nothing is published on the host.",
				item: &schema{kind: text, doc: "Port, or port/udp; the sandbox's own port may stand before it.", check: checkPort, examples: []string{"6379", "53/udp", "5433:5432"}},
			}},
			{name: "healthcheck", schema: &schema{kind: object, doc: "Says when the service is ready. Default: the image's own, else the first port.", keys: []key{
				{name: "test", required: true, slips: []string{"command", "cmd"}, schema: argv("Command run in the container; a text is run by its shell, a list as it is.")},
				{name: "interval", schema: &schema{kind: duration, doc: "Time between tries.", examples: []string{"2s"}}},
				{name: "timeout", schema: &schema{kind: duration, doc: "Time one try may take.", examples: []string{"5s"}}},
				{name: "retries", schema: &schema{kind: integer, max: 1000, doc: "Failures in a row that make it unhealthy.", examples: []string{"10"}}},
			}}},
			{name: "volumes", slips: []string{"volume", "mounts"}, schema: &schema{kind: list, doc: "Volumes of the container.", item: volume}},
			{name: "start_timeout", slips: []string{"start_period", "timeout"}, schema: &schema{kind: duration, def: "60s", doc: "Time from creation to ready; then the run ends with the service's log."}},
		}},
	}
}

// argv is a command as a shell text or as a list of arguments.
func argv(doc string) *schema {
	return &schema{
		kind: list, doc: doc, item: &schema{kind: text, doc: "Argument.", allowEmpty: true}, check: checkArgv,
		alt: &schema{kind: text, doc: doc},
	}
}

// agent is a harness by another name, which none is by default.
func agent() *schema {
	s := harness()
	s.doc, s.def = "Its program: the name of a harness, or a mapping as of harness.", ""
	return s
}

func harness() *schema {
	name := &schema{kind: text, doc: "The inner agent.", enum: workorder.Harnesses()}
	short := *name
	short.check = checkHarness
	return &schema{
		kind: object, doc: "The inner agent: its name, or a mapping. Default: " + workorder.HarnessClaudeCode + ".", alt: &short, def: workorder.HarnessClaudeCode, check: checkHarness,
		keys: []key{
			{name: "name", required: true, schema: name},
			{name: "command", slips: []string{"cmd", "run"}, schema: argv("Program of the command harness: a text for sh -c, or a list of arguments. It gets the task on standard input and in the file SANDBOX_AGENT_PROMPT_FILE.")},
			{name: "model", schema: &schema{kind: text, doc: "Model, as the harness names it; for opencode provider/model.", pattern: plainWord, rule: "a word that is no option"}},
			{name: "args", slips: []string{"arguments", "flags"}, schema: &schema{kind: list, doc: "More arguments for the harness.", item: &schema{kind: text, doc: "Argument.", allowEmpty: true}}},
			{name: "version", schema: &schema{kind: text, doc: "Version of the harness that must be used.", pattern: plainWord, rule: "a word that is no option"}},
		},
	}
}

func pullRequest() *schema {
	return &schema{kind: object, doc: "Open a pull request when the branch is pushed.", keys: []key{
		{name: "labels", slips: []string{"label"}, schema: &schema{kind: list, doc: "Labels.", item: &schema{kind: text, doc: "Label."}}},
		{name: "draft", schema: &schema{kind: boolean, def: "false", doc: "Open it as a draft."}},
		{name: "reviewers", slips: []string{"reviewer"}, schema: &schema{kind: list, doc: "Users or org/team to ask for a review.", item: &schema{kind: text, doc: "User or team.", pattern: plainWord, rule: "a user or team name"}}},
		{name: "base", schema: &schema{kind: text, doc: "Branch to merge into. Default: the base branch.", check: checkBranch}},
		{name: "api_url", slips: []string{"api"}, schema: &schema{kind: text, doc: "API of a GitHub Enterprise server. Default: from the repository's URL. On another host it gets only a token of that host.", check: checkBaseURL, examples: []string{"https://ghe.example.com/api/v3"}}},
		{name: "repository", slips: []string{"repo"}, schema: &schema{kind: text, doc: "owner/name on the forge, where the repository's URL has another path. Needs api_url.", pattern: ownerName, rule: "owner/name"}},
	}}
}
