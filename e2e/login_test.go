//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// The login of an agent's program is used through the gateway: the server gets its token, the box has a placeholder and no file, and
// nothing that is kept of the run has it. A key of models that is not there is not missed beside it.
func TestLogin(t *testing.T) {
	t.Parallel()
	const token = "login-token-of-the-test"
	m, dir := newModelHost(t), t.TempDir()
	file := fmt.Sprintf(`{"claudeAiOauth":{"accessToken":%q,"refreshToken":"refresh-token-of-the-test","expiresAt":%d}}`, token, time.Now().Add(time.Hour).UnixMilli())
	if err := os.WriteFile(filepath.Join(dir, ".credentials.json"), []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	u := newUser(t, "CLAUDE_CONFIG_DIR="+dir)
	c := u.run("", "create", "--repo", u.repo(map[string]string{"a": "1"}), "--task", "ask", "-p", u.project(`
name: login
gateway: {anthropic: {base_url: "`+m.url+`"}}
secrets:
  CLAUDE_CODE_OAUTH_TOKEN: login://claude-code
  SENTRY: {from: env://SENTRY_OF_THE_TEST, optional: true}
timeout_minutes: 2
harness:
  name: command
  command: |
`+indent(`curl -sf -o /dev/null "$ANTHROPIC_BASE_URL/v1/messages" -H "Authorization: Bearer $CLAUDE_CODE_OAUTH_TOKEN" -H 'content-type: application/json' -d '{"model":"m","max_tokens":10,"messages":[{"role":"user","content":"x"}]}' || exit 1
env | grep -q of-the-test && exit 1
find / -xdev -name .credentials.json 2>/dev/null | grep -q . && exit 1
test -z "${SENTRY+set}" && echo done >done`)))
	if r := u.result(c.task(t)); c.code != 0 || r.Status != workorder.StatusSuccess {
		t.Fatalf("exit code %d, %s: %s", c.code, r.Status, r.Reasons)
	}
	if len(m.keys) != 1 || m.keys[0] != token {
		t.Errorf("the server got %q", m.keys)
	}
	nowhere(t, u, c, token, "refresh-token-of-the-test")
}
