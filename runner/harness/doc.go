// Package harness adapts inner agents: it says how one is started and stopped,
// and understands what it prints. It starts nothing and opens no file; package runner
// does. Parsers are pure and never fail, so that recorded streams are their tests.
//
// # Events
//
// All that an agent prints becomes events of one schema (workorder.Event), the same for all harnesses:
//
//	agent.text         text: what the agent says
//	agent.tool         name: the tool, as the agent calls it; id; text: its input, as far as a reader follows a run by it
//	agent.tool_result  id: of the call; status: ok or error; text: its output
//	agent.usage        usage: all that the process used so far, tokens normalised: input without cached ones, output with reasoning
//	agent.error        text: what went wrong; it ends nothing by itself
//
// A call that the agent reports only when it is over has both events at once. Facts that a parser knows and nobody
// needs to follow a run (reasoning, lists of things to do, the beginning of a step) are no events. A line that it
// does not know, JSON or not, is text: the runner keeps it as agent.output. The whole stream is in the logs.
//
//	                  claude-code        codex                 opencode             command
//	session           ours, resumed      its own, resumed      its own, resumed     not resumed
//	told at 80 %      with a tool result with a tool result    with the next call   by a file
//	tokens            while it works (*) at the end of a turn  at the end of a step as it likes
//	cost              its own            the gateway's         its own, where known as it likes
//	usage limit       parks the task     parks the task        not seen             parks the task
//	transcript        kept               kept                  none (a database)    none
//	version           checked            checked               checked              not known
//	stopped by        SIGINT, SIGTERM    SIGTERM               SIGTERM              SIGTERM
//
// (*) with --include-partial-messages in harness.args. The gateway's count comes before all of them.
//
// # command
//
// Runs any program. harness.command is an argument list, or a single string
// that runs by sh -c; harness.args follow as arguments. The prompt is on standard input and, byte for byte,
// in the file that SANDBOX_AGENT_PROMPT_FILE names (readable by the agent's
// user only, outside the workspace, gone after the run). SANDBOX_AGENT_TASK_ID,
// SANDBOX_AGENT_MODE, SANDBOX_AGENT_WORKSPACE and, when harness.model is set, SANDBOX_AGENT_MODEL
// are set as well. Exit code 0 is success, any other is failure.
//
// Where the project has a development server SANDBOX_AGENT_DEV_COMMAND and SANDBOX_AGENT_DEV_PORT say how it is started and
// where it answers. Files in the folder SANDBOX_AGENT_MEDIA (pictures, videos, text) are kept with the result.
//
// Where the order has routes to models, ANTHROPIC_BASE_URL (without a version) and OPENAI_BASE_URL, OPENAI_API_BASE (with /v1)
// name the box's gateway, and ANTHROPIC_API_KEY, ANTHROPIC_AUTH_TOKEN, CLAUDE_CODE_OAUTH_TOKEN, OPENAI_API_KEY, CODEX_API_KEY,
// as far as the project has such secrets, are placeholders that only the gateway takes. A
// program that is told a server and a key in another way has to pass these on. Its use is counted on
// the wire then, whatever it prints itself, and so is max_budget_usd: when that is spent every call is
// refused with HTTP 400.
//
// SANDBOX_AGENT_NOTICE_FILE names a file that is not there at first. When 80 % of the budget or of the
// time is used up it appears, with a text for the agent; it is replaced in one piece when
// there is more to say. A program that lasts should look for it now and then.
//
// A line of standard output that is one JSON object with a known "type" is an
// event. Every other line, JSON or not, is text and is kept as such. Known are:
//
//	{"type":"agent.text","text":"…"}                      what the agent says
//	{"type":"agent.tool","id":"1","name":"Bash","text":"ls"}   a tool call; "input":{…} may stand for text
//	{"type":"agent.tool_result","id":"1","status":"ok","text":"…"}   status: ok or error
//	{"type":"agent.usage","usage":{"cost_usd":0.12,"input_tokens":1,"output_tokens":2,
//	   "cache_read_tokens":3,"cache_write_tokens":4}}     totals of the run so far
//	{"type":"agent.error","text":"…"}                     does not end the run; explains a failing exit code
//	{"type":"limit","resume_at":"2026-11-21T03:00:00Z","text":"…"}   a usage limit of the model's provider
//
// agent.usage REPLACES what was known: it carries totals. input_tokens excludes
// cached ones, output_tokens includes reasoning; fields that are absent keep their value.
//
// limit ends the run: the agent is stopped and the task is parked, until resume_at (RFC 3339) when that is
// given and lies within the next eight days. No exit code has this meaning.
//
// A program of this harness cannot be resumed: one that shows no sign of life is stopped, and the task ends.
//
// The JSON lines of "opencode run --format json" are known too: step_start,
// text, tool_use, error and
//
//	{"type":"step_finish","part":{"reason":"stop","cost":0.01,"tokens":{"input":1,"output":2,
//	   "reasoning":3,"cache":{"read":4,"write":5}}}}
//
// whose fields may also stand beside "type", without "part". Each step_finish
// ADDS to the totals: it carries one step. A program should use one of the two ways; when it uses both,
// the sum of the steps is added to the last agent.usage.
//
// Lines of Claude Code's stream-json (type system, assistant, user, result or
// stream_event, with a session_id) are understood as below, so that a script around
// that program loses nothing.
//
// # claude-code
//
// Runs the Claude Code CLI headless with stream-json, under a session id of our
// choice, and takes text, tool calls, cost, tokens, turns and verdict from the
// stream. The exit code alone is never the verdict: the CLI exits with 0 after an interrupt and
// reports API failures as subtype "success", so is_error is read first.
//
// A usage limit of the account (api_error usage_limit_reached, which a login with CLAUDE_CODE_OAUTH_TOKEN
// gets) parks the task until the time that rate_limit_event named. HTTP 429 with an API key is no such
// limit: the CLI retries it, or gives up, which is a failure. So is a credit balance that is too low.
//
// The agent is told of the time and budget that are nearly used up by a hook of ours, with its next
// tool result. It is in the settings that the adapter passes, above those of the repository: with
// --settings in harness.args the agent cannot be told. Hooks that the repository has itself run as
// well, also when its settings turn hooks off.
//
// After a hang the session is resumed once. The CLI counts --max-budget-usd anew for each process.
//
// # codex
//
// Runs "codex exec --json" with the prompt on standard input and without its own sandbox, which needs user
// namespaces and keeps the agent from committing: the box is the sandbox. The key is OPENAI_API_KEY or
// CODEX_API_KEY; where the box has OPENAI_BASE_URL, the CLI is told so on its command line, above every
// file. A repository's .codex/config.toml is not obeyed: the CLI does not trust the folder. A login with ChatGPT
// is not possible, as the gateway has no way to count it. harness.args may name another provider
// (-c model_provider=…), whose settings setup has to write to ~/.codex/config.toml.
//
// The run succeeds when its last turn was completed and the exit code is 0. The stream has tokens only, and
// only at the end of a turn; they are those of the whole session, so that what an earlier process said is
// subtracted. A turn is one prompt, however many calls of the model it takes.
//
// "You've hit your usage limit" parks the task until the time that is said there. The CLI does not retry HTTP 429: a short
// throttle (also by requests_per_minute) ends the run as failed. A wrong key ends it at the first refusal.
//
// A hook of ours tells the agent of time and budget, as with Claude Code.
//
// # opencode
//
// Runs "opencode run --format json" with the prompt on standard input. harness.model is provider/model; one
// without a provider belongs to openai or anthropic, whichever the box has a key for (names that begin with claude:
// anthropic). Another provider is one that the repository's opencode.json configures. Servers and keys of the
// two are fixed in OPENCODE_CONFIG_CONTENT, which goes above the repository's settings.
//
// The run succeeds when its last step ended with "stop" and the exit code is 0. Tokens and cost of steps add up;
// sub-agents are not in the stream. A step that cost nothing is one whose price the CLI does not know: then no
// cost is reported. The gateway sees all of it.
//
// HTTP 429 is retried by the CLI without end and without a word: a usage limit is not seen, and the run ends by
// hang_timeout or timeout_minutes. A wrong key ends it at once.
//
// The agent is told of time and budget by a file among its instructions, which the CLI reads again before each call.
package harness
