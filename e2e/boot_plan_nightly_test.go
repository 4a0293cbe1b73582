//go:build e2e && nightly

package e2e

import (
	"slices"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// The steps of an order can be read without running anything.
func TestBootPlan(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	order := u.run("", "create", "--project", u.project("name: plan\nservices: {redis: {image: x}}\nharness: {name: command, command: \"true\"}\n"), "--task", "x", "--dry-run", "--json")
	image, err := proc.Output(t.Context(), proc.Spec{Argv: []string{bin, "image", "build"}})
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(image))
	counted.Started(t.Name(), "boot --plan")
	out, err := proc.Output(t.Context(), proc.Spec{
		Argv:  []string{"docker", "run", "--rm", "-i", "--network", "none", "--entrypoint", "entrypoint", fields[len(fields)-1], "boot", "--plan"},
		Stdin: strings.NewReader(`{"order":` + order.stdout + `}`),
	})
	if err != nil {
		t.Fatal(err)
	}
	var steps []string
	for line := range strings.Lines(string(out)) {
		steps = append(steps, strings.Fields(line)[0])
	}
	for _, want := range []workorder.StepName{workorder.StepDocker, workorder.StepServices, workorder.StepClone, workorder.StepAgent, workorder.StepPush} {
		if !slices.Contains(steps, string(want)) {
			t.Errorf("the plan lacks %s:\n%s", want, out)
		}
	}
}
