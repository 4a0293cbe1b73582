package doctor

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// harnesses lists the agents of the image, as noted when it was built.
func (d *Doctor) harnesses(ctx context.Context, p runtime.Prober, info runtime.Info, image string) Check {
	out, err := d.probe(ctx, p, info, image, workorder.IsolationConfined, "", []string{"/bin/cat", "/usr/share/sandbox-agent/image.json"})
	var about struct{ Contents map[string]string }
	if err == nil {
		err = json.Unmarshal([]byte(out), &about)
	}
	if err != nil {
		return Check{
			"harnesses", Warn, "the image does not say which agents it has: " + err.Error(),
			"build it again: sandbox-agent image build --rebuild",
		}
	}
	var there, missing []string
	for _, name := range workorder.Harnesses() {
		version := strings.IndexFunc(about.Contents[name], func(r rune) bool { return r >= '0' && r <= '9' })
		switch {
		case name == workorder.HarnessCommand: // any program
			there = append(there, name)
		case version < 0:
			missing = append(missing, name)
		default:
			there = append(there, name+" "+strings.Fields(about.Contents[name][version:])[0])
		}
	}
	c := Check{"harnesses", OK, strings.Join(there, ", "), ""}
	if len(missing) > 0 {
		slices.Sort(missing)
		c.Status, c.Message = Warn, c.Message+"; without "+strings.Join(missing, ", ")
		c.Hint = "the package registry lacked them when the image was built: sandbox-agent image build --rebuild tries again, or a setup command installs them"
	}
	return c
}
