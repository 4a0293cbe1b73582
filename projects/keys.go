package projects

import (
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
	"github.com/sandbox-agent/sandbox-agent/internal/yamlkeys"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

var (
	projectName = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)
	// imageRef accepts [host[:port]/]path[:tag][@digest] loosely: it catches typing errors, and the engine decides.
	imageRef    = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9._:/@-]{0,254}$`)
	runtimeName = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9._/-]{0,127}$`)
	// packageName must not end with a hyphen: apt-get would remove such a package.
	packageName = lazyregexp.New(`^[a-z0-9][a-z0-9+.-]*[a-z0-9+.](:[a-z0-9]+)?(=[A-Za-z0-9.+:~-]*[A-Za-z0-9.+~])?$`)
	ownerName   = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9-]*/[A-Za-z0-9._-]+$`)
	plainWord   = lazyregexp.New(`^[^-\s][^\s]*$`)
	// agentName names a window of tmux, which treats a number as an index.
	agentName = lazyregexp.New(`^[A-Za-z][A-Za-z0-9_-]{0,31}$`)
	urlPath   = lazyregexp.New(`^/[!-~]{0,500}$`)
	portSpec  = lazyregexp.New(`^[1-9][0-9]{0,4}(/(tcp|udp))?$`)
)

// ValidPackage reports whether s is the name of a distribution package, with an optional =VERSION.
func ValidPackage(s string) bool { return packageName.MatchString(s) }

// MaxStandby is the most sandboxes that wait for tasks of a project: each has memory.
const MaxStandby = 100

// Codes of problems that only project files have. They are stable.
const (
	codeEmpty       = "empty-file"
	codeUnsupported = "not-supported"
	codeConflict    = "conflict"
	codeHostMount   = "host-mount"
)

const (
	maxPort    = 65535
	maxMinutes = 365 * 24 * 60 // a year, and fits into a time.Duration
)

// definition defines the project file, in the order of the documentation and of `project show`.
func definition() *schema {
	env := func() *schema {
		return &schema{
			Kind: yamlkeys.Mapping,
			Doc: "Environment of setup, agent, validate and dev commands, also written to the generated .env. $NAME and ${NAME} in a " +
				"value are the image's variables, $$ is a dollar.",
			Item: &schema{
				Kind: yamlkeys.Text, Doc: "Value, kept as written but for references: 1.10 stays 1.10.", AllowEmpty: true,
				Examples: []string{"/opt/tool/bin:$PATH"},
			}, Names: workorder.ValidEnvName,
			NamesRule: "letters, digits and _, not starting with a digit",
		}
	}
	validate := func() *schema {
		return &schema{
			Kind: yamlkeys.Mapping, Doc: "Named commands that judge the agent's work, run after it in the order of the file.",
			Item:      &schema{Kind: yamlkeys.Text, Doc: "Shell command; exit code 0 passes."},
			Names:     projectName.MatchString,
			NamesRule: "letters, digits, dot, dash and _, at most 63",
		}
	}
	dev := func() *schema {
		return &schema{
			Kind: yamlkeys.Object,
			Doc:  "Development server. A browser opens its pages on base and head; the agent can start it with `entrypoint dev start`.", Keys: []key{
				{Name: "command", Required: true, Slips: []string{"cmd", "run"}, Schema: &schema{
					Kind: yamlkeys.Text,
					Doc:  "Shell command that starts it, in the foreground, with PORT set.", Examples: []string{"npm run dev"},
				}},
				{Name: "port", Required: true, Schema: &schema{
					Kind: yamlkeys.Integer, Max: maxPort, Doc: "TCP port it listens on.",
					Examples: []string{"3000"},
				}},
				{Name: "ready_path", Slips: []string{"ready", "health"}, Schema: &schema{
					Kind: yamlkeys.Text, Def: "/",
					Doc: "Path that answers with less than 500 when the server is ready.", Pattern: urlPath, Rule: "a path such as /health",
					Examples: []string{"/health"},
				}},
				{Name: "pages", Slips: []string{"paths", "urls"}, Schema: &schema{
					Kind: yamlkeys.List, Doc: "Paths that pictures are taken of, before and after the task's commits, at desktop and phone width. " +
						"Default: ready_path.",
					Item: &schema{
						Kind: yamlkeys.Text, Doc: "Path.", Pattern: urlPath, Rule: "a path such as /login?next=/",
						Examples: []string{"/", "/login"},
					},
				}},
				{Name: "start_timeout", Slips: []string{"timeout"}, Schema: &schema{
					Kind: yamlkeys.Duration, Def: "60s",
					Doc: "Time from start to ready.", Examples: []string{"60s"},
				}},
			},
		}
	}
	return &schema{Kind: yamlkeys.Object, Doc: "Project file of sandbox-agent.", Ignore: "x-", Keys: []key{
		{Name: "name", Required: true, Schema: &schema{
			Kind: yamlkeys.Text, Doc: "Name of the project.", Pattern: projectName,
			Rule: "letters, digits, dot, dash and _, at most 63, starting with a letter or digit", Examples: []string{"my-saas-app"},
		}},
		{Name: "description", Schema: &schema{
			Kind: yamlkeys.Text,
			Doc:  "What it is for, in a line: of a template, which is a project without repo.", Examples: []string{"Python with our tools"},
		}},
		{Name: "repo", Slips: []string{"repository", "git", "url"}, Schema: &schema{
			Kind: yamlkeys.Text, Doc: "Repository to work on: an https or ssh URL, user@host:path, or a directory (relative to this file). " +
				"Without it the task has no repository and makes no branch.",
			Check: checkRepo, Examples: []string{"https://github.com/myorg/my-saas-app", "git@github.com:myorg/my-saas-app.git", "."},
		}},
		{Name: "branch", Slips: []string{"base"}, Schema: &schema{
			Kind: yamlkeys.Text, Doc: "Base branch the work starts from. Default: the repository's default branch.",
			Check: checkBranch, Examples: []string{"main"},
		}},
		{Name: "repos", Slips: []string{"repositories"}, Schema: &schema{
			Kind: yamlkeys.Mapping, Doc: "Further repositories of a task, each at /workspace/NAME, with a branch and a pull request of its own. " +
				"Standalone sandboxes take theirs from `up --repo NAME=REPO`.",
			Names: workorder.ValidRepoName, NamesRule: "letters, digits, dot, dash and _, at most 63, a letter or digit first", Item: furtherRepo(),
		}},
		{Name: "supabase", Schema: &schema{
			Kind: yamlkeys.Boolean, Def: "false",
			Doc: "Start a complete local Supabase stack in the sandbox and export DATABASE_URL and the rest.",
		}},
		{Name: "browser", Slips: []string{"chromium", "chrome", "playwright"}, Schema: &schema{
			Kind: yamlkeys.Boolean, Def: "false",
			Doc: "Add a headless Chromium, ffmpeg and agent-browser to the default image, for tests with a browser. With dev they are there anyway.",
		}},
		{Name: "services", Slips: []string{"containers"}, Schema: services(env)},
		{Name: "env", Slips: []string{"environment", "variables"}, Schema: env()},
		{Name: "secrets", Schema: secrets()},
		{Name: "packages", Slips: []string{"apt"}, Schema: &schema{
			Kind: yamlkeys.List, Doc: "Distribution packages to install in the sandbox before setup.",
			Item: &schema{
				Kind: yamlkeys.Text, Doc: "Package name, optionally =version.", Pattern: packageName,
				Rule: "a package name such as libpq-dev",
			},
		}},
		{Name: "tools", Slips: []string{"toolchains", "versions", "engines"}, Schema: &schema{
			Kind: yamlkeys.Mapping, Doc: "Tools that setup, agent and checks need, by version. Each is there in a version that satisfies, " +
				"or the run ends and says what is to be had. Tools: " + strings.Join(workorder.ToolNames(), ", ") + ".",
			Item: &schema{
				Kind: yamlkeys.Text, Doc: "A version, a beginning of one (22 is any 22.x), or a range such as >=20 <23.",
				Check: checkToolVersion, Examples: []string{"22", "1.26", ">=20 <23"},
			},
			Names: workorder.ValidTool, NamesRule: "one of " + strings.Join(workorder.ToolNames(), ", "),
		}},
		{Name: "lifecycle", Schema: &schema{Kind: yamlkeys.Object, Doc: "Commands around the agent's work.", Keys: []key{
			{Name: "setup", Slips: []string{"install", "before"}, Schema: &schema{
				Kind: yamlkeys.List, Doc: "Shell commands run in order as the user sandbox when the services are up, before the agent. The " +
					"first that fails ends the run.",
				Item: &schema{Kind: yamlkeys.Text, Doc: "Shell command.", Examples: []string{"npm ci"}},
			}},
			{Name: "env", Schema: env()},
			{Name: "validate", Slips: []string{"test", "tests", "checks"}, Schema: validate()},
			{Name: "dev", Schema: dev()},
		}}},
		{Name: "validate", Slips: []string{"tests", "checks"}, Schema: validate()},
		{Name: "proof", Schema: &schema{
			Kind: yamlkeys.Boolean, Def: "true",
			Doc: "Run the validate commands on base and head in clean checkouts as well, and compare them test by test; with dev, take " +
				"pictures of its pages there. false: neither.",
		}},
		{Name: "strict", Schema: &schema{
			Kind: yamlkeys.Boolean,
			Doc: "true: a check that fails ends the task as failed. false: one that failed before the task as well, and is no worse, does " +
				"not keep it from success. Default: that ends it as unproven, unless something that failed passes now.",
		}},
		{Name: "dev", Schema: dev()},
		{Name: "repair", Schema: &schema{Kind: yamlkeys.Object, Doc: "Send failed validation back to the agent.", Keys: []key{
			{Name: "max_attempts", Required: true, Slips: []string{"attempts", "max"}, Schema: &schema{
				Kind: yamlkeys.Integer,
				Max:  workorder.MaxRepairs, Doc: "How often, within the task's budget and time.", Examples: []string{"2"},
			}},
		}}},
		{Name: "harness", Slips: []string{"agent"}, Schema: harness()},
		{Name: "push_secrets", Schema: &schema{
			Kind: yamlkeys.Text, Def: workorder.PushSecretsRefuse,
			Enum: []string{workorder.PushSecretsRefuse, workorder.PushSecretsAllow},
			Doc: "Commits that have the value of one of secrets (8 bytes and more, also in base64 and hexadecimal) in a file, a message or " +
				"a name. refuse: they are not pushed but kept beside the result, and the task does not succeed. allow: they are pushed, and " +
				"the pull request says so.",
		}},
		{Name: "author", Slips: []string{"committer", "git_author"}, Schema: &schema{
			Kind: yamlkeys.Text, Check: checkAuthor,
			Doc:      "Who commits, as Name <email>. Default: the user's git identity, with a trailer Co-authored-by for the agent.",
			Examples: []string{"Build Bot <bot@example.com>"},
		}},
		{Name: "agents", Schema: &schema{
			Kind: yamlkeys.Mapping, Doc: "Agents that `sandbox-agent start` can start at a terminal, by a name that you choose, in " +
				"addition to harness.", Names: agentName.MatchString,
			NamesRule: "letters, digits, dash and _, a letter first, at most 32", Item: agent(),
		}},
		{Name: "init", Schema: &schema{
			Kind: yamlkeys.List, Doc: "Shell commands run in order in a new standalone sandbox, after setup. A failure is reported, and " +
				"the next command runs.",
			Item: &schema{Kind: yamlkeys.Text, Doc: "Shell command."},
		}},
		{Name: "briefing", Schema: briefing()},
		{Name: "max_budget_usd", Slips: []string{"budget", "max_budget", "budget_usd"}, Schema: &schema{
			Kind: yamlkeys.Number,
			Doc:  "Most that the agent may spend, in US dollars; fractions count. Default: no cap.", Examples: []string{"5.0"},
		}},
		{Name: "timeout_minutes", Slips: []string{"timeout"}, Schema: &schema{
			Kind: yamlkeys.Number, Def: "30", Max: maxMinutes,
			Doc: "Wall-clock limit of the run, in minutes; fractions count.",
		}},
		{Name: "pr", Slips: []string{"pull_request"}, Schema: pullRequest()},
		{Name: "network", Slips: []string{"egress", "firewall", "internet"}, Schema: network()},
		{Name: "gateway", Slips: []string{"llm", "models", "proxy"}, Schema: gateway()},
		{Name: "trust_branch_config", Slips: []string{"trust_branch", "trust_config"}, Schema: &schema{
			Kind: yamlkeys.Boolean,
			Def:  "false", Doc: "On continue, let the agent use the agents' settings, hooks and MCP files that the branch itself changed. " +
				"Default: they are those of the base branch while the agent works.",
		}},
		{Name: "limits", Slips: []string{"resources"}, Schema: &schema{Kind: yamlkeys.Object, Doc: "Limits of the whole sandbox.", Keys: []key{
			{Name: "memory", Slips: []string{"mem"}, Schema: &schema{
				Kind: yamlkeys.Size,
				Doc:  "Memory, from 64m. Default: nine tenths of the machine's.", Check: checkMemory, Examples: []string{"4g", "512m"},
			}},
			{Name: "cpus", Slips: []string{"cpu"}, Schema: &schema{
				Kind: yamlkeys.Number, Doc: "Processors; fractions count.",
				Examples: []string{"1.5"},
			}},
			{Name: "pids", Schema: &schema{
				Kind: yamlkeys.Integer,
				Doc:  "Processes and threads of the agent, of commands and of inner containers. Default: 4096.", Examples: []string{"4096"},
			}},
			{Name: "disk", Slips: []string{"storage"}, Schema: &schema{
				Kind: yamlkeys.Size,
				Doc: "Most that the task may take of the disk, inner images and containers included; a run that takes more is ended, and its " +
					"work lands. Default: no limit.", Examples: []string{"20g"},
			}},
		}}},
		{Name: "isolation", Schema: &schema{
			Kind: yamlkeys.Text, Def: workorder.IsolationConfined,
			Enum: []string{workorder.IsolationConfined, workorder.IsolationPrivileged},
			Doc:  "How the sandbox is held: confined (capability list, no host devices) or privileged (classic --privileged).",
		}},
		{Name: "oci_runtime", Slips: []string{"runtime"}, Schema: &schema{
			Kind: yamlkeys.Text,
			Doc:  "OCI runtime of the engine, such as sysbox-runc, kata or runsc. Default: the engine's own.", Pattern: runtimeName,
			Rule: "the name of a runtime the engine knows",
		}},
		{Name: "image", Schema: &schema{
			Kind:    yamlkeys.Text,
			Doc:     "Image of the sandbox. A custom image must exist; it is never built over. Default: the image built by the CLI.",
			Pattern: imageRef, Rule: "an image reference such as name:tag",
		}},
		{Name: "standby", Schema: &schema{
			Kind: yamlkeys.Integer, Max: MaxStandby,
			Doc: "How many sandboxes `sandbox-agent standby` keeps booted for the next tasks. Default: 1.", Examples: []string{"2"},
		}},
		{Name: "push_interval", Schema: &schema{
			Kind: yamlkeys.Duration, Def: "2m",
			Doc: "Longest time between pushes of committed work; a commit is pushed within seconds.", Examples: []string{"2m"},
		}},
		{Name: "checkpoint_interval", Schema: &schema{
			Kind: yamlkeys.Duration, Def: "60s",
			Doc: "Time between snapshots of uncommitted work; the most that a sudden end can cost.", Examples: []string{"60s"},
		}},
		{Name: "hang_timeout", Slips: []string{"watchdog", "idle_timeout"}, Schema: &schema{
			Kind: yamlkeys.Duration, Def: "15m",
			Doc: "An agent that for so long shows no sign of life (no event, no change in the tree, no work of its processes) is stopped; " +
				"where its harness can, its session is resumed once.", Examples: []string{"15m"},
		}},
	}}
}

func services(env func() *schema) *schema {
	volume := &schema{
		Kind: yamlkeys.Text, Doc: "name:/path, a volume that is gone with the sandbox. Host directories do not exist there.",
		Check: checkVolume, Examples: []string{"data:/var/lib/postgresql/data"},
	}
	serviceEnv := env()
	serviceEnv.Doc = "Environment of the container, kept as written."
	serviceEnv.Names = lazyregexp.New(`^[A-Za-z_][A-Za-z0-9_.-]*$`).MatchString // images read settings such as discovery.type
	serviceEnv.Item = &schema{Kind: yamlkeys.Text, Doc: "Value, kept as written: 1.10 stays 1.10.", AllowEmpty: true}
	return &schema{
		Kind: yamlkeys.Mapping, Doc: "Containers the task needs, in the sandbox's own Docker. Each is reachable by its name.",
		Names: validServiceName, NamesRule: "a host name in lower case such as redis, at most 63 characters",
		Item: &schema{Kind: yamlkeys.Object, Doc: "A service.", Keys: []key{
			{Name: "image", Required: true, Schema: &schema{
				Kind: yamlkeys.Text, Doc: "Image reference.", Pattern: imageRef,
				Rule: "an image reference such as redis:7-alpine", Examples: []string{"redis:7-alpine"},
			}},
			{Name: "command", Slips: []string{"cmd", "args", "entrypoint"}, Schema: argv("Command of the container instead of the image's.")},
			{Name: "env", Slips: []string{"environment"}, Schema: serviceEnv},
			{Name: "ports", Slips: []string{"expose", "port"}, Schema: &schema{
				Kind: yamlkeys.List, Doc: "Container ports. The first TCP port says when the service is ready, if it has no healthcheck. " +
					"5433:5432 is also localhost:5433 in the sandbox. Nothing is published on the host.",
				Item: &schema{
					Kind: yamlkeys.Text, Doc: "Port, or port/udp; the sandbox's own port may stand before it.", Check: checkPort,
					Examples: []string{"6379", "53/udp", "5433:5432"},
				},
			}},
			{Name: "healthcheck", Schema: &schema{
				Kind: yamlkeys.Object,
				Doc:  "Says when the service is ready. Default: the image's own, else the first port.", Keys: []key{
					{
						Name: "test", Required: true, Slips: []string{"command", "cmd"},
						Schema: argv("Command run in the container; a text is run by its shell, a list as it is."),
					},
					{Name: "interval", Schema: &schema{Kind: yamlkeys.Duration, Doc: "Time between tries.", Examples: []string{"2s"}}},
					{Name: "timeout", Schema: &schema{Kind: yamlkeys.Duration, Doc: "Time one try may take.", Examples: []string{"5s"}}},
					{Name: "retries", Schema: &schema{
						Kind: yamlkeys.Integer, Max: 1000, Doc: "Failures in a row that make it unhealthy.",
						Examples: []string{"10"},
					}},
				},
			}},
			{Name: "volumes", Slips: []string{"volume", "mounts"}, Schema: &schema{
				Kind: yamlkeys.List, Doc: "Volumes of the container.",
				Item: volume,
			}},
			{Name: "start_timeout", Slips: []string{"start_period", "timeout"}, Schema: &schema{
				Kind: yamlkeys.Duration, Def: "60s",
				Doc: "Time from creation to ready; then the run ends with the service's log.",
			}},
		}},
	}
}

// argv is a command: a shell text or a list of arguments.
func argv(doc string) *schema {
	return &schema{
		Kind: yamlkeys.List, Doc: doc, Item: &schema{Kind: yamlkeys.Text, Doc: "Argument.", AllowEmpty: true}, Check: checkArgv,
		Alt: &schema{Kind: yamlkeys.Text, Doc: doc},
	}
}

func briefing() *schema {
	const text = "Additional text about the sandbox for agents of `sandbox-agent start`"
	part := func(name, doc string) key {
		return key{Name: name, Schema: &schema{Kind: yamlkeys.Boolean, Def: "true", Doc: doc}}
	}
	return &schema{
		Kind: yamlkeys.Object, Doc: text + ", or a mapping.", Alt: &schema{Kind: yamlkeys.Text, Doc: text + "."},
		Keys: []key{
			{Name: "text", Schema: &schema{Kind: yamlkeys.Text, Doc: text + "."}},
			part("tools", "Name the project's tools."), part("checks", "Name the checks, also detected ones."),
			part("network", "Describe the network and its rules."),
		},
	}
}

// furtherRepo is one of repos.
func furtherRepo() *schema {
	repo := &schema{
		Kind: yamlkeys.Text, Doc: "An https or ssh URL, user@host:path, or a directory (relative to this file).", Check: checkRepo,
		Examples: []string{"https://github.com/myorg/my-api"},
	}
	return &schema{Kind: yamlkeys.Object, Doc: "The repository, or a mapping.", Alt: repo, Keys: []key{
		{Name: "repo", Required: true, Slips: []string{"repository", "git", "url"}, Schema: repo},
		{Name: "branch", Slips: []string{"base"}, Schema: &schema{
			Kind: yamlkeys.Text, Doc: "Base branch the work starts from. Default: the repository's default branch.", Check: checkBranch,
			Examples: []string{"main"},
		}},
		{Name: "forge_name", Schema: &schema{
			Kind: yamlkeys.Text, Doc: "owner/name on the forge of pr.api_url, if it differs from the repository's path, as pr.repository.",
			Pattern: ownerName, Rule: "owner/name", Examples: []string{"myorg/my-api"},
		}},
	}}
}

// agent is a harness under another name.
func agent() *schema {
	s := harness()
	s.Doc, s.Def = "Its program: the name of a harness, or a mapping as of harness.", ""
	rule := &schema{Kind: yamlkeys.Text, Doc: "Rule.", Check: checkPermission}
	s.Keys = append(s.Keys, key{Name: "permissions", Schema: &schema{
		Kind: yamlkeys.Object, Check: checkPermissions,
		Doc: "What it may do without asking. Default: everything. Rules: a tool (" + strings.Join(Tools(), ", ") +
			"), or Bash(PREFIX:*) for commands that begin with these words.",
		Keys: []key{
			{Name: "skip", Schema: &schema{Kind: yamlkeys.Boolean, Doc: "true: ask about nothing; excludes the lists."}},
			{Name: "allow", Schema: &schema{Kind: yamlkeys.List, Doc: "Allowed without asking; it asks about the rest.", Item: rule}},
			{Name: "deny", Schema: &schema{Kind: yamlkeys.List, Doc: "Never allowed.", Item: rule}},
		},
	}})
	s.Check = checkAgent
	return s
}

func harness() *schema {
	name := &schema{Kind: yamlkeys.Text, Doc: "The inner agent.", Enum: workorder.Harnesses()}
	short := *name
	short.Check = checkHarness
	return &schema{
		Kind: yamlkeys.Object, Doc: "The inner agent: its name, or a mapping. Default: " + workorder.HarnessClaudeCode + ".", Alt: &short,
		Def: workorder.HarnessClaudeCode, Check: checkHarness,
		Keys: []key{
			{Name: "name", Required: true, Instead: "command", Schema: name},
			{
				Name: "command", Slips: []string{"cmd", "run"},
				Schema: argv("Program of the command harness: a text for sh -c, or a list of arguments. It gets the task on standard input " +
					"and in the file SANDBOX_AGENT_PROMPT_FILE."),
			},
			{Name: "model", Schema: &schema{
				Kind: yamlkeys.Text, Doc: "Model, as the harness names it; for opencode provider/model.",
				Pattern: plainWord, Rule: "a word that is no option",
			}},
			{Name: "args", Slips: []string{"arguments", "flags"}, Schema: &schema{
				Kind: yamlkeys.List,
				Doc:  "More arguments for the harness.", Item: &schema{Kind: yamlkeys.Text, Doc: "Argument.", AllowEmpty: true},
			}},
			{Name: "version", Schema: &schema{
				Kind: yamlkeys.Text, Doc: "Version of the harness that must be used.", Pattern: plainWord,
				Rule: "a word that is no option",
			}},
		},
	}
}

func pullRequest() *schema {
	return &schema{Kind: yamlkeys.Object, Doc: "Open a pull request when the branch is pushed.", Keys: []key{
		{Name: "labels", Slips: []string{"label"}, Schema: &schema{Kind: yamlkeys.List, Doc: "Labels.", Item: &schema{
			Kind: yamlkeys.Text,
			Doc:  "Label.",
		}}},
		{Name: "draft", Schema: &schema{Kind: yamlkeys.Boolean, Def: "false", Doc: "Open it as a draft."}},
		{Name: "reviewers", Slips: []string{"reviewer"}, Schema: &schema{
			Kind: yamlkeys.List,
			Doc:  "Users or org/team to ask for a review.", Item: &schema{
				Kind: yamlkeys.Text, Doc: "User or team.", Pattern: plainWord,
				Rule: "a user or team name",
			},
		}},
		{Name: "base", Schema: &schema{Kind: yamlkeys.Text, Doc: "Branch to merge into. Default: the base branch.", Check: checkBranch}},
		{Name: "api_url", Slips: []string{"api"}, Schema: &schema{
			Kind:  yamlkeys.Text,
			Doc:   "API of a GitHub Enterprise server. Default: from the repository's URL. On another host it gets only a token of that host.",
			Check: checkBaseURL, Examples: []string{"https://ghe.example.com/api/v3"},
		}},
		{Name: "repository", Slips: []string{"repo"}, Schema: &schema{
			Kind: yamlkeys.Text,
			Doc:  "owner/name on the forge, where the repository's URL has another path. Needs api_url.", Pattern: ownerName, Rule: "owner/name",
		}},
	}}
}
