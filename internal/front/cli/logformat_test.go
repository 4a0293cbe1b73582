package cli

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
)

// Each line of standard error is a JSON object, for each verb and each kind of message.
func TestLogFormat(t *testing.T) {
	t.Parallel()
	vars := map[string]string{"HOME": t.TempDir(), "SANDBOX_AGENT_STATE_DIR": t.TempDir()}
	for name, row := range map[string]struct {
		args   []string
		levels string // of the lines
	}{
		"an error with a hint": {[]string{"--log-format", "json", "result", "nosuch"}, "ERROR INFO"},
		"a wrong flag":         {[]string{"--log-format", "json", "ps", "--nosuch"}, "ERROR INFO"},
		"debug":                {[]string{"--log-format", "json", "--debug", "version"}, "DEBUG DEBUG"},
		"a document":           {[]string{"--log-format", "json", "result", "nosuch", "--json"}, ""},
	} {
		var out, log bytes.Buffer
		f := cmdutil.New(cmdutil.IO{Stdout: &out, Stderr: &log}, app.Env{Getenv: func(name string) string { return vars[name] }})
		code := Main(t.Context(), f, row.args)
		var levels []string
		for line := range strings.Lines(log.String()) {
			var e struct{ Level, Msg, Error string }
			if err := json.Unmarshal([]byte(line), &e); err != nil || e.Msg == "" && e.Error == "" {
				t.Errorf("%s: exit code %d: %s: %v", name, code, line, err)
			}
			levels = append(levels, e.Level)
		}
		if got := strings.Join(levels, " "); got != row.levels || len(levels) == 0 {
			t.Errorf("%s: exit code %d: %q", name, code, got)
		}
	}
}
