package harness

import (
	"encoding/json"
	"errors"
	"path"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/text"
)

// A hook passes notices to the agent after a tool call. A second message on standard input would cost an extra turn when late.
const (
	hookEvent = "PostToolUse"
	// noticeHookSeconds is the hook's timeout; it only checks for a file.
	noticeHookSeconds = 10
)

// noticeHook prints the notice once per content of the file: only one of several concurrent calls can create the mark.
// It stays silent in a sub-agent, which cannot decide what to do.
func noticeHook(in Input) string {
	file, seen := text.Shell(in.NoticeFile), text.Shell(path.Join(in.Home, ".sandbox-agent-told-"+path.Base(path.Dir(in.NoticeFile))))
	return `[ -e ` + file + ` ] || exit 0; case "$(cat)" in *'"agent_id":'*) exit 0;; esac; ` +
		`mkdir ` + seen + `"$(cksum <` + file + `)" 2>/dev/null && cat ` + file + `; exit 0`
}

func (claude) Notice(in Input, text string) ([]byte, error) {
	switch args := in.Order.Harness.Args; {
	case hasFlag(args, "--settings"):
		return nil, errors.New("--settings in harness.args replaces the settings with the notice hook")
	case hasFlag(args, "--bare"):
		return nil, errors.New("--bare in harness.args turns hooks off")
	}
	return hookOutput(text)
}

// hookOutput formats text for the model as hook output; Codex uses the format of Claude Code.
func hookOutput(text string) ([]byte, error) {
	return json.Marshal(map[string]any{
		"hookSpecificOutput": map[string]string{"hookEventName": hookEvent, "additionalContext": text},
	})
}

func hasFlag(args []string, flag string) bool {
	return slices.ContainsFunc(args, func(a string) bool { return a == flag || strings.HasPrefix(a, flag+"=") })
}
