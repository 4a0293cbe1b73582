package harness

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const claudeName = "claude-code"

// claudeRetries bounds the CLI's own retries of a failing model call. By its
// observed back-off eight take about two minutes: long enough for an overloaded API, short
// enough not to eat a run's time before an outage is reported.
const claudeRetries = 8

// claudeConfig is where the CLI keeps all its state, relative to HOME. It is
// fixed, whatever the environment says: inside the workspace it would be committed.
const claudeConfig = ".claude"

// anthropicAPI is the CLI's default server.
const anthropicAPI = "https://api.anthropic.com"

type claude struct{}

func (claude) Name() string { return claudeName }

// claudeOurs are the flags that this adapter depends on.
var claudeOurs = []string{
	"-p", "--print", "--output-format", "--input-format", "--session-id",
	"-r", "--resume", "-c", "--continue", "--fork-session",
}

func (claude) Command(r Run) (Command, error) {
	spec := r.Order.Harness
	if len(spec.Command) > 0 {
		return Command{}, errors.New("harness claude-code: harness.command is only for the command harness: remove it or use harness.args")
	}
	for _, a := range spec.Args {
		flag, _, _ := strings.Cut(a, "=")
		if slices.Contains(claudeOurs, flag) {
			return Command{}, fmt.Errorf("harness claude-code: harness.args must not contain %s: the runner sets it", flag)
		}
	}
	ownSettings := slices.ContainsFunc(spec.Args, func(a string) bool {
		return a == "--settings" || strings.HasPrefix(a, "--settings=")
	})
	direct, err := claudeAuth(r.Env, ownSettings)
	if err != nil {
		return Command{}, err
	}

	argv := []string{
		"claude", "-p", "--output-format", "stream-json", "--verbose",
		// Nobody is there to ask, and the box is what protects.
		"--dangerously-skip-permissions",
		"--session-id", r.SessionID,
	}
	if spec.Model != "" {
		argv = append(argv, "--model", spec.Model)
	}
	if b := r.Order.MaxBudgetUSD; b != nil {
		argv = append(argv, "--max-budget-usd", strconv.FormatFloat(*b, 'f', -1, 64))
	}
	if direct && !ownSettings {
		pin, err := pinServer(r.Env)
		if err != nil {
			return Command{}, err
		}
		argv = append(argv, "--settings", pin)
	}
	argv = append(argv, spec.Args...)

	env := []string{"CLAUDE_CONFIG_DIR=" + path.Join(r.Home, claudeConfig)}
	for _, kv := range []string{
		"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1",
		"DISABLE_AUTOUPDATER=1",
		"CLAUDE_CODE_MAX_RETRIES=" + strconv.Itoa(claudeRetries),
	} {
		if name, _, _ := strings.Cut(kv, "="); envValue(r.Env, name) == "" {
			env = append(env, kv)
		}
	}
	return Command{
		Argv: argv, Env: env,
		// After SIGINT the CLI still writes a result with the cost; after SIGTERM it does not.
		Stop: []syscall.Signal{syscall.SIGINT, syscall.SIGTERM},
	}, nil
}

// claudeAuth checks that there is something to authenticate with, because
// without it the CLI only says "Not logged in" after everything else was set
// up. It reports whether the calls go to Anthropic's own API (or what stands in for it).
func claudeAuth(env []string, ownSettings bool) (direct bool, err error) {
	for _, provider := range []string{"CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_USE_FOUNDRY"} {
		if envValue(env, provider) != "" {
			return false, nil
		}
	}
	for _, key := range []string{"ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"} {
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

// pinServer fixes the server at the CLI's highest level of settings: a
// repository's .claude/settings.json can set environment variables, and would otherwise
// send the key to any server it likes, without the model doing anything.
func pinServer(env []string) (string, error) {
	url := envValue(env, "ANTHROPIC_BASE_URL")
	if url == "" {
		url = anthropicAPI
	}
	b, err := json.Marshal(map[string]any{"env": map[string]string{"ANTHROPIC_BASE_URL": url}})
	if err != nil {
		return "", fmt.Errorf("harness claude-code: write settings: %w", err)
	}
	return string(b), nil
}

func (claude) Parser(Run) Parser { return &claudeParser{} }

// VersionCommand prints, for example, "2.1.5 (Claude Code)".
func (claude) VersionCommand() []string { return []string{"claude", "--version"} }

// Transcript is the CLI's own record of the session.
func (claude) Transcript(r Run) string {
	return path.Join(claudeConfig, "projects", "*", r.SessionID+".jsonl")
}

// Cost reads the CLI's running account, which it writes after every reply.
func (claude) Cost(line []byte) (float64, bool) {
	o, ok := object(line)
	if !ok || field[string](o, "type") != "cost-state" {
		return 0, false
	}
	usd := field[*float64](o, "totalCostUSD")
	if usd == nil || !sane(workorder.Usage{CostUSD: usd}) {
		return 0, false
	}
	return *usd, true
}
