//go:build e2e

package e2e

import (
	"os"
	"strings"
	"testing"
)

// A secret's command runs once for a run, and not at all for one that cannot start.
func TestSecretCommandRunsOnce(t *testing.T) {
	t.Parallel()
	u := newCarefulUser(t)
	counter := t.TempDir() + "/runs"
	project := u.project(`
name: once
secrets:
  TOKEN: "cmd://echo x >>` + counter + `; echo hunter2hunter2"
harness: {name: command, command: 'test "$(printf %s "$TOKEN" | wc -c)" = 14'}
`)
	runs := func() int {
		b, err := os.ReadFile(counter)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		return strings.Count(string(b), "x")
	}
	if c := u.run("", "create", "-p", project, "--task", "x", "--image", "no-such-image"); c.code == 0 || runs() != 0 {
		t.Errorf("exit code %d, the command ran %d times for a run without an image", c.code, runs())
	}
	if c := u.run("", "create", "-p", project, "--task", "x", "--task-id", "T-0NCE0001", "--if-exists", "continue"); c.code != 0 || runs() != 1 {
		t.Errorf("exit code %d, the command ran %d times", c.code, runs())
	}
	for _, file := range []string{"workorder.json", "result.json", "events.jsonl", "host-events.jsonl"} {
		if b, err := os.ReadFile(u.state + "/T-0NCE0001/" + file); err != nil || strings.Contains(string(b), "hunter2") {
			t.Errorf("%s: %v, holds the secret: %v", file, err, strings.Contains(string(b), "hunter2"))
		}
	}
}
