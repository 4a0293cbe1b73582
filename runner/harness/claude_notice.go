package harness

import (
	"encoding/json"
	"errors"
	"path"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/text"
)

// A hook tells the agent, rather than a second message on an open standard
// input: that would have to be closed by us at the right moment, and a message that comes
// too late costs a turn of its own (both were tried with 2.1.329). The hook runs after each tool
// call, and what it prints goes to the model with the tool's result.
const (
	hookEvent = "PostToolUse"
	// noticeHookSeconds bounds it; it only looks for a file.
	noticeHookSeconds = 10
)

// noticeHook prints the notice once for each content of the file. The folder that it
// makes as a mark, in the agent's home, is made by one of several calls only. It stays silent in a
// sub-agent, which the CLI marks by agent_id: that one cannot decide what to do.
func noticeHook(r Run) string {
	file, seen := text.Shell(r.NoticeFile), text.Shell(path.Join(r.Home, ".sandbox-agent-told-"+path.Base(path.Dir(r.NoticeFile))))
	return `[ -e ` + file + ` ] || exit 0; case "$(cat)" in *'"agent_id":'*) exit 0;; esac; ` +
		`mkdir ` + seen + `"$(cksum <` + file + `)" 2>/dev/null && cat ` + file + `; exit 0`
}

// Notice is what the hook prints.
func (claude) Notice(r Run, text string) ([]byte, error) {
	switch args := r.Order.Harness.Args; {
	case hasFlag(args, "--settings"):
		return nil, errors.New("--settings in harness.args replaces the settings that would tell it")
	case hasFlag(args, "--bare"):
		return nil, errors.New("--bare in harness.args turns hooks off")
	}
	return hookOutput(text)
}

// hookOutput is how a hook hands text to the model. Codex took it over from Claude Code.
func hookOutput(text string) ([]byte, error) {
	return json.Marshal(map[string]any{
		"hookSpecificOutput": map[string]string{"hookEventName": hookEvent, "additionalContext": text},
	})
}

func hasFlag(args []string, flag string) bool {
	return slices.ContainsFunc(args, func(a string) bool { return a == flag || strings.HasPrefix(a, flag+"=") })
}
