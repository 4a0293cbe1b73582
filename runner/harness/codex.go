package harness

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/agentkind"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

var codexCLI = agentkind.Of(agentkind.Codex)

type codex struct{ session conversation }

var (
	_ Resumer  = (*codex)(nil)
	_ Notifier = (*codex)(nil)
	_ Recorder = (*codex)(nil)
)

func (*codex) Name() string { return workorder.HarnessCodex }

// codexOurs are the flags that this adapter depends on, or that would move the work out of the workspace.
var codexOurs = []string{
	"--json", "-m", "--model", "--ephemeral", "-C", "--cd", "--worktree", "-s", "--sandbox", "-o", "--output-last-message",
	"--approve-for-me", "resume", "fork", "review",
}

func (h *codex) Command(in Input) (Invocation, error) { return h.command(in, "") }

// Resume continues the session from the CLI's own record.
func (h *codex) Resume(in Input) (Invocation, error) {
	id := h.session.name()
	if id == "" {
		return Invocation{}, errors.New("harness codex: it was stopped before it had a session")
	}
	return h.command(in, id)
}

func (*codex) command(in Input, session string) (Invocation, error) {
	spec := in.Order.Harness
	if err := checkArgs(workorder.HarnessCodex, spec, codexOurs); err != nil {
		return Invocation{}, err
	}
	key := cmp.Or(envValue(in.Env, agentkind.CodexKey), envValue(in.Env, agentkind.OpenAIKey)) // the CLI itself ignores the second
	if key == "" && !agentkind.CodexOwnProvider(spec.Args) {
		return Invocation{}, errors.New("harness codex: no model key: add the secret OPENAI_API_KEY to the project " +
			"(secrets: {OPENAI_API_KEY: env://OPENAI_API_KEY}) and set it where you run the command; CODEX_API_KEY does as well. " +
			"A login with ChatGPT is not possible in a sandbox")
	}
	argv := slices.Clone(codexCLI.Task)
	if base := envValue(in.Env, workorder.APIOpenAI.BaseURLVariable()); base != "" {
		argv = append(argv, "-c", "openai_base_url="+agentkind.TOMLString(base))
	}
	if !in.Order.Gateway.RunsProviderTools(in.Order.Network.Mode) {
		// The gateway refuses every request with the tool, and "cached" sends it all the same.
		argv = append(argv, "-c", `web_search="disabled"`)
	}
	if in.NoticeFile != "" {
		argv = append(
			argv, "--dangerously-bypass-hook-trust", "-c",
			fmt.Sprintf("hooks.%s=[{matcher=\"\",hooks=[{type=\"command\",timeout=%d,command=%s}]}]",
				hookEvent, noticeHookSeconds, agentkind.TOMLString(noticeHook(in))),
		)
	}
	if spec.Model != "" {
		argv = append(argv, "--model", spec.Model)
	}
	argv = append(argv, spec.Args...)
	if session != "" {
		argv = append(argv, "resume", session)
	}
	// Empty on purpose: inside the workspace its sessions would be committed.
	env := []string{codexCLI.DirVariable + "="}
	if key != "" {
		env = append(env, agentkind.CodexKey+"="+key)
	}
	return Invocation{
		Argv: append(argv, "-"), Env: env,
		// Neither SIGTERM nor SIGINT makes it print more.
		Stop: []syscall.Signal{syscall.SIGTERM},
	}, nil
}

// Notice returns the hook's output; its format is Claude Code's.
func (*codex) Notice(in Input, text string) ([]byte, error) {
	for _, a := range in.Order.Harness.Args {
		if strings.Contains(a, "hooks") {
			return nil, errors.New("harness.args changes the hooks that deliver notices")
		}
	}
	return hookOutput(text)
}

func (h *codex) Parser(in Input) Parser {
	zone := time.Local
	if tz := envValue(in.Env, "TZ"); tz != "" {
		// An unknown zone is ignored: at worst the time is a wrong guess.
		if z, err := time.LoadLocation(strings.TrimPrefix(tz, ":")); err == nil {
			zone = z
		}
	}
	return &codexParser{
		session: &h.session, before: h.session.used(), version: in.Order.Harness.Version, model: in.Order.Harness.Model,
		now: func() time.Time { return time.Now().In(zone) },
	}
}

// Transcript returns the path of the CLI's own record of the session.
func (h *codex) Transcript(Input) string {
	return path.Join(codexCLI.Dir, "sessions", "*", "*", "*", "rollout-*"+h.session.name()+".jsonl")
}

// Cost is never known: the record has only tokens, which the gateway counts as well.
func (*codex) Cost([]byte) (usd float64, ofSession, ok bool) { return 0, false, false }
