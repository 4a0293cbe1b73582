package harness

import (
	"errors"
	"fmt"
	"path"
	"strings"
	"syscall"
	"time"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// codexHome is where the CLI keeps its sessions, relative to HOME, if CODEX_HOME is empty. It ignores the
// environment on purpose: inside the workspace the sessions would be committed.
const codexHome = ".codex"

type codex struct{ session session }

func (*codex) Name() string { return workorder.HarnessCodex }

// codexOurs are the flags that this adapter depends on, and flags that would move the work out of the
// workspace.
var codexOurs = []string{
	"--json", "-m", "--model", "--ephemeral", "-C", "--cd", "--worktree", "-s", "--sandbox", "-o", "--output-last-message",
	"--approve-for-me", "resume", "fork", "review",
}

func (h *codex) Command(r Run) (Command, error) { return h.command(r, "") }

// Resume continues the session from the CLI's own record.
func (h *codex) Resume(r Run) (Command, error) {
	id := h.session.name()
	if id == "" {
		return Command{}, errors.New("harness codex: it was stopped before it had a session")
	}
	return h.command(r, id)
}

func (*codex) command(r Run, session string) (Command, error) {
	spec := r.Order.Harness
	if err := checkArgs(workorder.HarnessCodex, spec, codexOurs); err != nil {
		return Command{}, err
	}
	key := envValue(r.Env, "CODEX_API_KEY")
	if key == "" {
		key = envValue(r.Env, "OPENAI_API_KEY") // the CLI itself ignores it
	}
	if key == "" && !ownProvider(spec.Args) {
		return Command{}, errors.New("harness codex: no model key: add the secret OPENAI_API_KEY to the project " +
			"(secrets: {OPENAI_API_KEY: env://OPENAI_API_KEY}) and set it where you run the command; CODEX_API_KEY does as well. " +
			"A login with ChatGPT is not possible in a sandbox")
	}
	argv := []string{
		"codex", "exec", "--json",
		// There is no user to ask. The box isolates: the CLI's own sandbox needs user namespaces and prevents the
		// agent from committing.
		"--dangerously-bypass-approvals-and-sandbox", "--skip-git-repo-check",
		// Without these it contacts servers of its vendor, and waits indefinitely for one that does not answer.
		"-c", "analytics.enabled=false", "--disable", "plugins", "--disable", "apps", "--disable", "unbounded_connection_retries",
	}
	if base := envValue(r.Env, workorder.APIOpenAI.BaseURLVariable()); base != "" {
		argv = append(argv, "-c", "openai_base_url="+tomlString(base))
	}
	if !r.Order.Gateway.RunsProviderTools(r.Order.Network.Mode) {
		// The gateway refuses every request with the tool, and "cached" sends it all the same.
		argv = append(argv, "-c", `web_search="disabled"`)
	}
	if r.NoticeFile != "" {
		argv = append(
			argv, "--dangerously-bypass-hook-trust", "-c",
			fmt.Sprintf("hooks.%s=[{matcher=\"\",hooks=[{type=\"command\",timeout=%d,command=%s}]}]",
				hookEvent, noticeHookSeconds, tomlString(noticeHook(r))),
		)
	}
	if spec.Model != "" {
		argv = append(argv, "--model", spec.Model)
	}
	argv = append(argv, spec.Args...)
	if session != "" {
		argv = append(argv, "resume", session)
	}
	env := []string{"CODEX_HOME="}
	if key != "" {
		env = append(env, "CODEX_API_KEY="+key)
	}
	return Command{
		Argv: append(argv, "-"), Env: env,
		// Neither SIGTERM nor SIGINT makes it print more.
		Stop: []syscall.Signal{syscall.SIGTERM},
	}, nil
}

// ownProvider reports whether the arguments select a provider other than OpenAI.
func ownProvider(args []string) bool {
	for _, a := range args {
		if strings.Contains(a, "model_provider") || a == "--oss" || a == "-p" || strings.HasPrefix(a, "--profile") {
			return true
		}
	}
	return false
}

// tomlString returns s as a basic string of TOML.
func tomlString(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r < ' ' || r == 0x7f:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// Notice returns the hook's output; its format is Claude Code's.
func (*codex) Notice(r Run, text string) ([]byte, error) {
	for _, a := range r.Order.Harness.Args {
		if strings.Contains(a, "hooks") {
			return nil, errors.New("harness.args changes the hooks that deliver notices")
		}
	}
	return hookOutput(text)
}

func (h *codex) Parser(r Run) Parser {
	zone := time.Local
	if tz := envValue(r.Env, "TZ"); tz != "" {
		// An unknown zone is ignored: at worst the time is a wrong guess.
		if z, err := time.LoadLocation(strings.TrimPrefix(tz, ":")); err == nil {
			zone = z
		}
	}
	return &codexParser{
		session: &h.session, before: h.session.used(), version: r.Order.Harness.Version, model: r.Order.Harness.Model,
		now: func() time.Time { return time.Now().In(zone) },
	}
}

// VersionCommand strips the name from "codex-cli 0.169.0".
func (*codex) VersionCommand() []string {
	return []string{"sh", "-c", `v=$(codex --version) && echo "${v##* }"`}
}

// Transcript returns the path of the CLI's own record of the session.
func (h *codex) Transcript(Run) string {
	return path.Join(codexHome, "sessions", "*", "*", "*", "rollout-*"+h.session.name()+".jsonl")
}

// Cost is never known: the record has only tokens, which the gateway counts as well.
func (*codex) Cost([]byte) (usd float64, ofSession, ok bool) { return 0, false, false }
