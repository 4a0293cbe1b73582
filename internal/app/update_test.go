package app

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/projects"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

func TestSandboxChange(t *testing.T) {
	t.Parallel()
	two, setup := "2", []string{"new"}
	box := &sandbox.BoxSpec{Env: map[string]string{"P": "p", "Q": "q"}, Setup: []string{"old"}, Services: []sandbox.Service{{Name: "a", Image: "a:1", Ports: []string{"1"}}, {Name: "b", Image: "b:1"}}}
	before := sandbox.Spec{Runtime: sandbox.RuntimeBox, Env: []string{"A=1", "AB=1"}, Box: box, Limits: sandbox.Limits{MemoryBytes: 1 << 30, CPUs: 1, PIDs: 100}}
	got, err := SandboxChange{
		Image: "i", Env: map[string]*string{"A": &two, "P": nil, "AB": nil}, Setup: &setup, Limits: sandbox.Limits{CPUs: 2, PIDs: sandbox.NoLimit},
		Services: []sandbox.Service{{Name: "a", Image: "a:2"}, {Name: "b"}, {Name: "c", Image: "c:1"}},
	}.Apply(before)
	if err != nil {
		t.Fatal(err)
	}
	want := sandbox.Spec{
		Runtime: sandbox.RuntimeBox, Image: "i", Env: []string{"A=2"}, Limits: sandbox.Limits{MemoryBytes: 1 << 30, CPUs: 2, PIDs: sandbox.NoLimit},
		Box: &sandbox.BoxSpec{Env: map[string]string{"Q": "q"}, Setup: setup, SetupAsked: true, Services: []sandbox.Service{
			{Name: "a", Image: "a:2", Ports: []string{"1"}, Asked: true}, {Name: "c", Image: "c:1", Asked: true},
		}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if len(box.Services) != 2 || box.Services[0].Image != "a:1" || box.Env["P"] != "p" || before.Env[1] != "AB=1" {
		t.Errorf("the spec of before has changed: %+v", box)
	}
	_, err = SandboxChange{
		Image: "i", Env: map[string]*string{"": &two}, Services: []sandbox.Service{{Name: "x"}},
	}.Apply(sandbox.Spec{Runtime: sandbox.RuntimeJail})
	if exiterr.Code(err) != workorder.ExitUsage || strings.Count(err.Error(), "\n") != 2 {
		t.Error(err)
	}
	for _, c := range []SandboxChange{{Services: []sandbox.Service{{Name: "x"}}}, {Env: map[string]*string{"B": nil}}} {
		if _, err := c.Apply(before); exiterr.Code(err) != workorder.ExitUsage {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// A project file that has the settings of a sandbox, which are written to it, makes the same sandbox, and stays as it is.
func TestSandboxImport(t *testing.T) {
	t.Parallel()
	const file = `name: p # the name
env: # all
  A: "1"
  OLD: x
  SAME: a$$b
packages: [jq]
lifecycle:
  setup: [old]
services:
  a: {image: "a:1", ports: ["1"]}
  gone: {image: "g:1"}
timeout_minutes: 5
`
	box := sandbox.Spec{
		Runtime: sandbox.RuntimeBox, Image: "mine:1", Env: []string{"A=2", "NEW=c$d", "TOKEN=ghp_abcdefghijklmnopqrstuvwxyz0123456789"},
		Network: sandbox.NetworkRestricted, Allow: []string{"a.example"}, IdleTimeout: time.Minute, User: "1:1",
		Limits: sandbox.Limits{MemoryBytes: 3 << 29, CPUs: sandbox.DefaultCPUs, PIDs: sandbox.NoLimit},
		Box: &sandbox.BoxSpec{
			Env: map[string]string{"A": "1", "SAME": "a$b"}, ImageEnv: map[string]string{"PATH": "/x:$PATH"}, Setup: []string{"one && two", "three"},
			Tools: map[string]string{"node": "22"}, SecretNames: []string{"K"},
			Services: []sandbox.Service{
				{Name: "a", Image: "a:2", Ports: []string{"1"}},
				{
					Name: "new", Image: "n:1", Command: []string{"sh", "-c", "run it"}, Env: map[string]string{"X": "1.10"}, StartTimeoutSeconds: 90,
					Healthcheck: &sandbox.Healthcheck{Test: []string{"CMD-SHELL x"}, IntervalSeconds: 2, Retries: 3},
				},
			},
		},
	}
	jail := sandbox.Spec{Runtime: sandbox.RuntimeJail, Env: []string{"A=2"}, Network: sandbox.NetworkNone}
	for name, row := range map[string]struct {
		spec sandbox.Spec
		drop []string
		has  []string // lines of the file
		not  []string
	}{
		"box": {
			box,
			[]string{"env.TOKEN", "limits.pids", "user", "idle", "secrets.K"},
			[]string{"name: p # the name", "env: # all", `  A: "2"`, "  SAME: a$$b", "  NEW: c$$d", "  PATH: /x:$PATH", "image: mine:1", "  memory: 1536m", "timeout_minutes: 5"},
			[]string{"OLD", "gone", "jq", "ghp_"},
		},
		"jail": {jail, nil, []string{`  A: "2"`, "  OLD: x", "packages: [jq]", "  mode: none"}, nil},
	} {
		parse := func(content string) *projects.Project {
			t.Helper()
			p, err := projects.Parse("p.yaml", []byte(content), projects.LoadOptions{})
			if err != nil {
				t.Fatalf("%s: %v\n%s", name, err, content)
			}
			return p
		}
		i := &sandboxImport{of: parse(file)}
		if err := i.compare(row.spec); err != nil {
			t.Fatal(err)
		}
		changed, _, err := projects.Change("p.yaml", []byte(file), i.edits...)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if len(i.dropped) != len(row.drop) {
			t.Errorf("%s: dropped %q", name, i.dropped)
		}
		for n, want := range row.drop {
			if n < len(i.dropped) && !slices.ContainsFunc(i.dropped, func(d string) bool { return strings.HasPrefix(d, want) }) {
				t.Errorf("%s: %s is not among %q", name, want, i.dropped)
			}
		}
		lines := strings.Split(string(changed), "\n")
		for _, want := range row.has {
			if !slices.Contains(lines, want) {
				t.Errorf("%s: no line %q in\n%s", name, want, changed)
			}
		}
		for _, no := range row.not {
			if strings.Contains(string(changed), no) {
				t.Errorf("%s: %q is in\n%s", name, no, changed)
			}
		}
		again := &sandboxImport{of: parse(string(changed))}
		if err := again.compare(row.spec); err != nil || len(again.edits) > 0 {
			t.Errorf("%s: %+v, %v\n%s", name, again.edits, err, changed)
		}
	}
}
