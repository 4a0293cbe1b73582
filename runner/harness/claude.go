package harness

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/sandbox-agent/sandbox-agent/internal/agentkind"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// claudeRetries bounds the CLI's retries of a failing model call: about two minutes, enough for an overloaded API.
const claudeRetries = 8

var claudeCode = agentkind.Of(agentkind.ClaudeCode)

type claude struct{}

var (
	_ Resumer  = claude{}
	_ Notifier = claude{}
	_ Recorder = claude{}
)

func (claude) Name() string { return workorder.HarnessClaudeCode }

// claudeOurs are the flags that this adapter depends on.
var claudeOurs = []string{
	"-p", "--print", "--output-format", "--input-format", "--session-id",
	"-r", "--resume", "-c", "--continue", "--fork-session",
}

func (c claude) Command(in Input) (Invocation, error) { return c.command(in, "--session-id") }

// Resume continues the session from the CLI's own record. The budget then counts for the new process only.
func (c claude) Resume(in Input) (Invocation, error) { return c.command(in, "--resume") }

// command starts the CLI; session is the flag for the session id.
func (claude) command(in Input, session string) (Invocation, error) {
	spec := in.Order.Harness
	if err := checkArgs(workorder.HarnessClaudeCode, spec, claudeOurs); err != nil {
		return Invocation{}, err
	}
	ownSettings := hasFlag(spec.Args, "--settings")
	direct, err := claudeAuth(in.Env, ownSettings)
	if err != nil {
		return Invocation{}, err
	}

	argv := append(slices.Clone(claudeCode.Task), session, in.SessionID)
	if spec.Model != "" {
		argv = append(argv, "--model", spec.Model)
	}
	if b := in.Order.MaxBudgetUSD; b != nil {
		argv = append(argv, "--max-budget-usd", strconv.FormatFloat(*b, 'f', -1, 64))
	}
	if !ownSettings {
		ours, err := claudeSettings(in, direct)
		if err != nil {
			return Invocation{}, err
		}
		argv = append(argv, "--settings", ours)
	}
	if text := briefing(in.Order); text != "" && !hasFlag(spec.Args, "--append-system-prompt") && !hasFlag(spec.Args, "--system-prompt") {
		argv = append(argv, "--append-system-prompt", text)
	}
	argv = append(argv, spec.Args...)

	// The user's own variable is ignored on purpose: inside the workspace the state would be committed.
	env := []string{claudeCode.DirVariable + "=" + path.Join(in.Home, claudeCode.Dir)}
	for _, kv := range append(slices.Clone(claudeCode.Env), "CLAUDE_CODE_MAX_RETRIES="+strconv.Itoa(claudeRetries)) {
		if name, _, _ := strings.Cut(kv, "="); envValue(in.Env, name) == "" {
			env = append(env, kv)
		}
	}
	return Invocation{
		Argv: argv, Env: env,
		// After SIGINT the CLI still writes a result with the cost; after SIGTERM it does not.
		Stop: []syscall.Signal{syscall.SIGINT, syscall.SIGTERM},
	}, nil
}

// claudeAuth checks for credentials, because the CLI reports missing ones only after everything has been set up. It
// reports whether calls go to Anthropic's own API or the gateway.
func claudeAuth(env []string, ownSettings bool) (direct bool, err error) {
	for _, provider := range claudeCode.Clouds {
		if envValue(env, provider) != "" {
			return false, nil
		}
	}
	for _, key := range workorder.APIAnthropic.KeyVariables() {
		if envValue(env, key) != "" {
			return true, nil
		}
	}
	if ownSettings { // they may name an apiKeyHelper
		return true, nil
	}
	return true, errors.New("harness claude-code: no model key: add the secret ANTHROPIC_API_KEY to the project " +
		"(secrets: {ANTHROPIC_API_KEY: env://ANTHROPIC_API_KEY}) and set it where you run the command; " +
		"ANTHROPIC_AUTH_TOKEN or CLAUDE_CODE_OAUTH_TOKEN do as well")
}

// claudeSettings returns settings at the CLI's highest level, which fix the server: otherwise a repository's
// .claude/settings.json could send the key to any server. They also contain the notice hook.
func claudeSettings(in Input, direct bool) (string, error) {
	settings := map[string]any{}
	if direct {
		server := workorder.APIAnthropic.BaseURLVariable()
		url := cmp.Or(envValue(in.Env, server), workorder.APIAnthropic.DefaultBaseURL())
		settings["env"] = map[string]string{server: url}
	}
	if in.NoticeFile != "" {
		settings["disableAllHooks"] = false
		settings["hooks"] = map[string]any{hookEvent: []any{map[string]any{
			"matcher": "*",
			"hooks":   []any{map[string]any{"type": "command", "command": noticeHook(in), "timeout": noticeHookSeconds}},
		}}}
	}
	b, err := json.Marshal(settings)
	if err != nil {
		return "", fmt.Errorf("harness claude-code: write settings: %w", err)
	}
	return string(b), nil
}

func (claude) Parser(Input) Parser { return &claudeParser{} }

// Transcript returns the path of the CLI's own record of the session.
func (claude) Transcript(in Input) string {
	return path.Join(claudeCode.Dir, "projects", "*", in.SessionID+".jsonl")
}

// Cost reads two sources: cost-state, for the whole session, and the budget line before each model call, for this process.
func (claude) Cost(line []byte) (usd float64, ofSession, ok bool) {
	o, isObject := object(line)
	if !isObject {
		return 0, false, false
	}
	var cost *float64
	switch field[string](o, "type") {
	case "cost-state":
		cost, ofSession = field[*float64](o, "totalCostUSD"), true
	case "attachment":
		if a := field[map[string]json.RawMessage](o, "attachment"); field[string](a, "type") == "budget_usd" {
			cost = field[*float64](a, "used")
		}
	}
	if cost == nil || !sane(workorder.Usage{CostUSD: cost}) {
		return 0, false, false
	}
	return *cost, ofSession, true
}
