// Package harness adapts inner agents: it defines how to start and stop them, and parses their output. It
// starts no process and opens no file; package runner does. Parsers are pure and never fail, so that recorded
// streams serve as their tests.
//
// # Events
//
// All output of an agent becomes events of one schema (workorder.Event), the same for all harnesses:
//
//	agent.text         text: message of the agent
//	agent.tool         name: the tool, as the agent calls it; id; text: its input, shortened
//	agent.tool_result  id: of the call; status: ok or error; text: its output
//	agent.usage        usage: totals of the process so far, tokens normalised: input without cached ones, output with reasoning
//	agent.error        text: the error; it ends nothing by itself
//
// A call that the agent reports only at its end has both events at once. Details that are not needed to
// follow a run (reasoning, to-do lists, the start of a step) are not events. An unknown line, JSON or not, is
// text: the runner keeps it as agent.output. The whole stream is in the logs.
//
//	                  claude-code        codex                 opencode             command
//	session           ours, resumed      its own, resumed      its own, resumed     not resumed
//	notice at 80 %    with a tool result with a tool result    with the next call   by a file
//	tokens            while it works (*) at the end of a turn  at the end of a step optional
//	cost              its own            the gateway's         its own, where known optional
//	usage limit       parks the task     parks the task        not detected         parks the task
//	transcript        kept               kept                  none (a database)    none
//	version           checked            checked               checked              not known
//	stopped by        SIGINT, SIGTERM    SIGTERM               SIGTERM              SIGTERM
//
// (*) with --include-partial-messages in harness.args. The gateway's count comes before all of them.
//
// # command
//
// Runs any program. harness.command is an argument list, or a single string that runs by sh -c; harness.args
// follow as arguments. The prompt is on standard input and, byte for byte, in the file that
// SANDBOX_AGENT_PROMPT_FILE names (readable by the agent's user only, outside the workspace, gone after the
// run). SANDBOX_AGENT_TASK_ID, SANDBOX_AGENT_MODE, SANDBOX_AGENT_WORKSPACE and, when harness.model is set,
// SANDBOX_AGENT_MODEL are set as well. Exit code 0 is success, any other code is failure.
//
// If the project has a development server, SANDBOX_AGENT_DEV_COMMAND and SANDBOX_AGENT_DEV_PORT hold its
// command and port. Files in the directory SANDBOX_AGENT_MEDIA (pictures, videos, text) are kept with the
// result.
//
// If the order has routes to models, ANTHROPIC_BASE_URL (without a version) and OPENAI_BASE_URL,
// OPENAI_API_BASE (with /v1) name the box's gateway, and ANTHROPIC_API_KEY, ANTHROPIC_AUTH_TOKEN,
// CLAUDE_CODE_OAUTH_TOKEN, OPENAI_API_KEY, CODEX_API_KEY, as far as the project has such secrets, are
// placeholders that only the gateway accepts. A program that is configured in another way must pass them on.
// The gateway then counts the usage, whatever the program prints, and enforces max_budget_usd: when it is
// spent, every call is refused with HTTP 400.
//
// SANDBOX_AGENT_NOTICE_FILE names a file that does not exist at first. It appears when 80 % of the budget or
// of the time is used up, with a text for the agent, and is replaced atomically when there is another notice.
// A long-running program should check for it periodically.
//
// A line of standard output that is one JSON object with a known "type" is an event. Every other line, JSON
// or not, is text and is kept as such. Known events:
//
//	{"type":"agent.text","text":"…"}                      message of the agent
//	{"type":"agent.tool","id":"1","name":"Bash","text":"ls"}   a tool call; "input":{…} may replace text
//	{"type":"agent.tool_result","id":"1","status":"ok","text":"…"}   status: ok or error
//	{"type":"agent.usage","usage":{"cost_usd":0.12,"input_tokens":1,"output_tokens":2,
//	   "cache_read_tokens":3,"cache_write_tokens":4}}     totals of the run so far
//	{"type":"agent.error","text":"…"}                     does not end the run; explains a failing exit code
//	{"type":"limit","resume_at":"2026-11-21T03:00:00Z","text":"…"}   a usage limit of the model's provider
//
// agent.usage REPLACES earlier values: it carries totals. input_tokens excludes cached ones, output_tokens
// includes reasoning; absent fields keep their value.
//
// limit ends the run: the agent is stopped and the task is parked, until resume_at (RFC 3339) if that is
// given and within the next eight days. No exit code has this meaning.
//
// A program of this harness cannot be resumed: if it shows no sign of life, it is stopped and the task ends.
//
// The JSON lines of "opencode run --format json" are known too: step_start, text, tool_use, error and
//
//	{"type":"step_finish","part":{"reason":"stop","cost":0.01,"tokens":{"input":1,"output":2,
//	   "reasoning":3,"cache":{"read":4,"write":5}}}}
//
// whose fields may also be next to "type", without "part". Each step_finish ADDS to the totals: it carries
// one step. A program should use one of the two ways; if it uses both, the sum of the steps is added to the
// last agent.usage.
//
// Lines of Claude Code's stream-json (type system, assistant, user, result or stream_event, with a
// session_id) are understood as below, so that a script around that program loses nothing.
//
// # claude-code
//
// Runs the Claude Code CLI headless with stream-json, under a session id that the runner chooses, and reads
// text, tool calls, cost, tokens, turns and verdict from the stream. The exit code alone is never the
// verdict: the CLI exits with 0 after an interrupt and reports API failures as subtype "success", so is_error
// is read first.
//
// A usage limit of the account (api_error usage_limit_reached, which a login with CLAUDE_CODE_OAUTH_TOKEN
// gets) parks the task until the time in rate_limit_event. HTTP 429 with an API key is not such a limit: the
// CLI retries it, or gives up, which is a failure. A credit balance that is too low is a failure, too.
//
// A hook of the adapter notifies the agent when time or budget are nearly used up, with its next tool result.
// The hook is in the settings that the adapter passes, above those of the repository: with --settings in
// harness.args there are no notices. The repository's own hooks run as well, even if its settings turn hooks
// off.
//
// After a hang the session is resumed once. The CLI counts --max-budget-usd per process.
//
// # codex
//
// Runs "codex exec --json" with the prompt on standard input and without its own sandbox, which needs user
// namespaces and prevents the agent from committing: the box is the sandbox. The key is OPENAI_API_KEY or
// CODEX_API_KEY; if the box has OPENAI_BASE_URL, the CLI receives it on its command line, which overrides
// every file. A repository's .codex/config.toml is ignored: the CLI does not trust the directory. A login
// with ChatGPT is not supported, because the gateway cannot count its usage. harness.args may name another
// provider (-c model_provider=…), whose settings setup must write to ~/.codex/config.toml.
//
// The run succeeds if its last turn was completed and the exit code is 0. The stream has only tokens, and
// only at the end of a turn; they are those of the whole session, so the usage of earlier processes is
// subtracted. A turn is one prompt, however many model calls it takes.
//
// "You've hit your usage limit" parks the task until the time in that message. The CLI does not retry HTTP
// 429: a short throttle (also by requests_per_minute) ends the run as failed. A wrong key ends it at the
// first refusal.
//
// A hook of the adapter notifies the agent of time and budget, as with Claude Code.
//
// # opencode
//
// Runs "opencode run --format json" with the prompt on standard input. harness.model is provider/model; one
// without a provider belongs to openai or anthropic, whichever the box has a key for (names that begin with
// claude: anthropic). Other providers must be configured in the repository's opencode.json. Servers and keys
// of the two are fixed in OPENCODE_CONFIG_CONTENT, which overrides the repository's settings.
//
// The run succeeds if its last step ended with "stop" and the exit code is 0. Tokens and cost of steps add
// up; sub-agents are not in the stream. A step at no cost means that the CLI does not know the price: then no
// cost is reported. The gateway counts all of it.
//
// The CLI retries HTTP 429 silently and without end: a usage limit is not detected, and the run ends by
// hang_timeout or timeout_minutes. A wrong key ends it at once.
//
// A file among its instructions, which the CLI reads again before each call, notifies the agent of time and
// budget.
package harness
