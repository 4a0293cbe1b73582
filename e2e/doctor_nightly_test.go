//go:build e2e && nightly

package e2e

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/host/doctor"
)

// doctor --deep runs every check in real boxes, and leaves neither a task nor a box.
func TestDoctorDeep(t *testing.T) {
	t.Parallel()
	u := newCarefulUser(t)
	c := u.run("", "doctor", "--deep", "--json")
	var checks []doctor.DockerCheck
	if err := json.Unmarshal([]byte(c.stdout), &checks); err != nil {
		t.Fatalf("exit code %d, %v", c.code, err)
	}
	want := 0
	for _, p := range doctor.DockerParts() {
		names, err := doctor.DockerChecks(p)
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
