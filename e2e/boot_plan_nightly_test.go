//go:build e2e && nightly

package e2e

import (
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

// The steps of an order can be read without running anything.
func TestBootPlan(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	order := u.run("", "create", "--project", u.project("name: plan\nservices: {redis: {image: x}}\nharness: {name: command, command: \"true\"}\n"), "--task", "x", "--dry-run")
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
	for _, want := range []string{"services create the services", "after docker", "budget", "skipped: the task has no repository"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the plan lacks %q:\n%s", want, out)
		}
	}
}
