package cli

import (
	"os"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// TestDryRunRefuses: a rehearsal finds what a run would be refused for before its box starts, with that exit code, and a run is refused for it.
func TestDryRunRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		yaml   string
		engine func(*runtime.Info)
		args   []string
		code   int
		says   string
	}{
		"nothing":                 {code: 0, says: tid},
		"a secret":                {yaml: "secrets: {S: env://ABSENT}\n", code: workorder.ExitInvalid, says: "ABSENT"},
		"an optional secret":      {yaml: "secrets: {S: {from: env://ABSENT, optional: true}}\n", code: 0, says: "S (optional"},
		"an image":                {args: []string{"--image", "absent:1"}, code: workorder.ExitBox, says: "absent:1"},
		"an old engine":           {engine: func(i *runtime.Info) { i.APIVersion = "1.40" }, code: workorder.ExitBox, says: "1.40"},
		"an engine of today":      {engine: func(i *runtime.Info) { i.APIVersion = "1.52" }, code: 0, says: tid},
		"containers of Windows":   {engine: func(i *runtime.Info) { i.OSType = "windows" }, code: workorder.ExitBox, says: "windows"},
		"a runtime":               {engine: func(i *runtime.Info) { i.Runtimes = []string{"runc"} }, args: []string{"--oci-runtime", "kata"}, code: workorder.ExitBox, says: "kata"},
		"all at once, the first":  {yaml: "secrets: {S: env://ABSENT}\n", args: []string{"--image", "absent:1"}, code: workorder.ExitInvalid, says: "ABSENT"},
		"all at once, the second": {yaml: "secrets: {S: env://ABSENT}\n", args: []string{"--image", "absent:1"}, code: workorder.ExitInvalid, says: "absent:1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, ends(workorder.StatusSuccess, workorder.EndedByAgent))
			write(t, r.project, string(must(os.ReadFile(r.project)))+c.yaml)
			if c.engine != nil {
				c.engine(&r.fake.Details)
			}
			code, out, errs := r.run(create(append(c.args, "--dry-run")...)...)
			said := out + errs
			if c.code != 0 { // what would refuse it, and not the plan
				said = ""
				for line := range strings.Lines(errs) {
					if strings.HasPrefix(line, "error: ") {
						said += line
					}
				}
			}
			if code != c.code || !strings.Contains(said, c.says) {
				t.Errorf("exit %d, want %d and %q:\n%s%s", code, c.code, c.says, out, errs)
			}
			r.boxes(0)
			if entries, err := os.ReadDir(r.state); err != nil || len(entries) > 0 {
				t.Errorf("the state folder has %v, %v", entries, err)
			}
		})
	}
}
