//go:build e2e

package e2e

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/host/doctor/conformance"
)

// doctor --deep runs every check in real boxes, and leaves neither a task nor a box.
func TestDoctorDeep(t *testing.T) {
	t.Parallel()
	u := newCarefulUser(t)
	c := u.run("", "doctor", "--deep", "--json")
	var checks []conformance.Check
	if err := json.Unmarshal([]byte(c.stdout), &checks); err != nil {
		t.Fatalf("exit code %d, %v", c.code, err)
	}
	want := 0
	for _, p := range conformance.Parts() {
		names, err := conformance.Names(p)
		if err != nil {
			t.Fatal(err)
		}
		want += len(names)
	}
	if len(checks) != want || c.code != 0 {
		t.Errorf("exit code %d, %d checks of %d", c.code, len(checks), want)
	}
	for _, check := range checks {
		if !check.OK {
			t.Errorf("%s: %s: %s", check.Part, check.Name, strings.ReplaceAll(check.Detail, "|", "\n"))
		}
	}
	if rows := u.ps(); len(rows) != 0 {
		t.Errorf("tasks are left: %+v", rows)
	}
	left, err := os.ReadDir(u.state)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range left {
		if taskID.MatchString(e.Name()) {
			t.Errorf("the state folder has %s", e.Name())
		}
	}
}

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
