//go:build e2e

package e2e

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/api/types/volume"
	"github.com/docker/docker/client"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// newCarefulUser is a user at whose end nothing of theirs may be left: no
// container, no volume of one, no process of the program.
func newCarefulUser(t *testing.T, env ...string) *user {
	t.Helper()
	u := newUser(t, env...)
	t.Cleanup(func() { u.noneLeft(eng) })
	return u
}

// noneLeft checks that nothing on the engine carries the user's label and that
// no process of theirs lives.
func (u *user) noneLeft(c *client.Client) {
	u.t.Helper()
	ctx := context.WithoutCancel(u.t.Context()) // which has ended when clean-up runs
	label := filters.NewArgs(filters.Arg("label", workorder.LabelOwner))
	mine := func(labels map[string]string) bool {
		return strings.HasSuffix(labels[workorder.LabelOwner], ":"+u.state)
	}
	cs, err := c.ContainerList(ctx, container.ListOptions{All: true, Filters: label})
	for _, b := range cs {
		if mine(b.Labels) {
			u.t.Errorf("container %s is left: %s", b.Names, b.Status)
		}
	}
	vs, verr := c.VolumeList(ctx, volume.ListOptions{Filters: label})
	for _, v := range vs.Volumes {
		if mine(v.Labels) {
			u.t.Errorf("volume %s is left", v.Name)
		}
	}
	ns, nerr := c.NetworkList(ctx, network.ListOptions{Filters: label})
	for _, n := range ns {
		if mine(n.Labels) {
			u.t.Errorf("network %s is left", n.Name)
		}
	}
	if err := errors.Join(err, verr, nerr); err != nil {
		u.t.Error(err)
	}
	// A companion that lost its CLI takes a moment to be sure of it.
	left := u.processes()
	for range 600 {
		if len(left) == 0 {
			return
		}
		time.Sleep(100 * time.Millisecond)
		left = u.processes()
	}
	for pid, cmdline := range left {
		u.t.Errorf("process %s is left: %s", pid, cmdline)
	}
}

// processes are the living processes of the program that use the user's state
// folder, by process id.
func (u *user) processes() map[string]string {
	u.t.Helper()
	list, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		u.t.Fatal(err)
	}
	got := map[string]string{}
	for _, p := range list {
		cmdline, err := os.ReadFile(p + "/cmdline")
		if err != nil || !strings.HasPrefix(string(cmdline), bin+"\x00") {
			continue
		}
		env, err := os.ReadFile(p + "/environ")
		if err == nil && strings.Contains("\x00"+string(env), "\x00SANDBOX_AGENT_STATE_DIR="+u.state+"\x00") {
			got[filepath.Base(p)] = strings.ReplaceAll(string(cmdline), "\x00", " ")
		}
	}
	return got
}

// scripted is a project whose agent is a shell script. The project has
// whatever else head declares.
func scripted(head, script string) string {
	var b strings.Builder
	b.WriteString("name: e2e\n" + strings.TrimPrefix(head, "\n") + "harness:\n  name: command\n  command: |\n")
	for line := range strings.Lines(strings.TrimPrefix(script, "\n")) {
		b.WriteString("    " + line)
	}
	b.WriteString("\n")
	return b.String()
}

// A failure is one way to be let down, and what has to be said about it.
type failure struct {
	name string
	// head is the project above its harness, yaml a whole project instead.
	head, yaml string
	code       int
	// says are names of the user's that have to be in the message.
	says []string
	// status and by are the result's.
	status workorder.Status
	by     workorder.EndedBy
	// reason is the decisive one; none: check looks at it.
	reason workorder.ReasonCode
	check  func(t *testing.T, r *workorder.Result)
	// refused: it is no task.
	refused bool
	// nightly: the services' own tests and those of processes have it.
	nightly bool
}

func (f *failure) run(t *testing.T) {
	t.Parallel()
	u := newCarefulUser(t)
	yaml := f.yaml
	if yaml == "" {
		yaml = scripted(f.head, "echo never >/workspace/never\necho the agent ran")
	}
	c := u.run("", "create", "--task", "x", "-p", u.project(yaml))
	if c.code != f.code {
		t.Errorf("exit code %d, want %d", c.code, f.code)
	}
	said := c.stdout + c.stderr
	for _, want := range f.says {
		if !strings.Contains(said, want) {
			t.Errorf("it does not say %q", want)
		}
	}
	if strings.Contains(said, "goroutine ") || strings.Contains(said, "%!") {
		t.Error("it says what only a programmer understands")
	}
	if f.refused {
		if p := u.run("", "ps", "--all", "--json"); strings.TrimSpace(p.stdout) != "[]" {
			t.Errorf("it left a task: %s", p.stdout)
		}
		return
	}
	r := u.result(c.task(t))
	if r.Status != f.status || r.EndedBy != f.by || len(r.Reasons) == 0 {
		t.Errorf("the result says %s by %s (%s), want %s by %s", r.Status, r.EndedBy, r.Reasons, f.status, f.by)
	}
	if f.reason != "" && r.Reasons.Code() != f.reason {
		t.Errorf("the reason is %s (%s), want %s", r.Reasons, r.Reasons.Code(), f.reason)
	}
	if strings.Contains(said, "the agent ran") {
		t.Error("the agent was started all the same")
	}
	if f.check != nil {
		f.check(t, r)
	}
}

// Parts that the box needs and that are missing: the run is refused, and is no task.
func TestMissingGround(t *testing.T) {
	t.Parallel()
	for _, f := range []failure{
		{
			name: "custom image", head: "image: sandbox-agent-e2e/none:1\n", code: workorder.ExitBox,
			says: []string{"sandbox-agent-e2e/none:1"}, refused: true,
		},
		{
			name: "OCI runtime", head: "oci_runtime: no-such-runtime\n", code: workorder.ExitBox,
			says: []string{"no-such-runtime"}, refused: true,
		},
	} {
		t.Run(f.name, f.run)
	}
	if _, err := eng.ImageInspect(t.Context(), "sandbox-agent-e2e/none:1"); err == nil {
		t.Error("the missing custom image was made")
	}
}

// A service that is not there ends the run with the reason and its log.
func TestServicesThatFail(t *testing.T) {
	t.Parallel()
	service := func(rest string) string {
		return "services:\n  store:\n" + rest
	}
	failed := func(state, log string) func(*testing.T, *workorder.Result) {
		return func(t *testing.T, r *workorder.Result) {
			t.Helper()
			if s := step(t, r, "services"); s.Status != workorder.StepFailed {
				t.Errorf("step services is %s", s.Status)
			}
			if len(r.Services) != 1 || r.Services[0].State != state || !strings.Contains(r.Services[0].Tail, log) {
				t.Errorf("services %+v, want %s with %q in the log", r.Services, state, log)
			}
			if r.Reasons.Code() != workorder.ReasonServices || !strings.Contains(r.Reasons.String(), "store") {
				t.Errorf("the reason %q does not name the service", r.Reasons)
			}
		}
	}
	for _, f := range []failure{
		{
			name: "exits at once", head: service("    image: " + redisImage + "\n    command: [sh, -c, echo boom-42; exit 3]\n    ports: [6379]\n"),
			code: workorder.ExitBox, says: []string{"boom-42", "store"}, status: workorder.StatusFailed, by: workorder.EndedByServices, check: failed("exited", "boom-42"),
		},
		{
			name: "never healthy", nightly: true,
			head: service("    image: " + redisImage + "\n    healthcheck:\n      test: \"false\"\n      interval: 500ms\n      retries: 2\n    start_timeout: 60s\n"),
			code: workorder.ExitBox, says: []string{"store"}, status: workorder.StatusFailed, by: workorder.EndedByServices, check: failed("unhealthy", "Ready to accept"),
		},
		{
			name: "never listens", nightly: true, head: service("    image: " + redisImage + "\n    command: [sh, -c, echo waiting-77; sleep 600]\n    ports: [6379]\n    start_timeout: 10s\n"),
			code: workorder.ExitBox, says: []string{"store"}, status: workorder.StatusFailed, by: workorder.EndedByServices, check: failed("failed", "waiting-77"),
		},
		{
			name: "missing image", head: service("    image: sandbox-agent-e2e.invalid/none:1\n"), code: workorder.ExitBox,
			says: []string{"sandbox-agent-e2e.invalid/none:1"}, status: workorder.StatusFailed, by: workorder.EndedByServices, check: failed("failed", ""),
		},
	} {
		if f.nightly && !nightly {
			continue
		}
		t.Run(f.name, f.run)
	}
}

// Commands that run before the agent, and the agent itself.
func TestCommandsThatFail(t *testing.T) {
	t.Parallel()
	setupFails := func(code int) func(*testing.T, *workorder.Result) {
		return func(t *testing.T, r *workorder.Result) {
			t.Helper()
			s := step(t, r, "setup")
			if s.Status != workorder.StepFailed || s.ExitCode == nil || *s.ExitCode != code {
				t.Errorf("step setup %+v, want exit code %d", s, code)
			}
		}
	}
	for _, f := range []failure{
		{
			name: "setup", head: "lifecycle:\n  setup:\n    - \"true\"\n    - echo said-before; exit 7\n    - touch /tmp/third\n", code: workorder.ExitTaskFailed,
			says: []string{"said-before", "7"}, status: workorder.StatusFailed, by: workorder.EndedBySetup, reason: workorder.ReasonSetup, check: setupFails(7),
		},
		{
			name: "setup killed", nightly: true, head: "lifecycle:\n  setup: ['kill -9 $$']\n", code: workorder.ExitTaskFailed,
			status: workorder.StatusFailed, by: workorder.EndedBySetup, check: setupFails(137),
		},
		{
			name: "missing package", head: "packages: [sandbox-agent-no-such-package]\n", code: workorder.ExitTaskFailed,
			says: []string{"sandbox-agent-no-such-package"}, status: workorder.StatusFailed, by: workorder.EndedBySetup,
		},
		{
			name: "agent that is not there", yaml: "name: e2e\nharness:\n  name: command\n  command: [no-such-agent, run]\n", code: workorder.ExitTaskFailed,
			says: []string{"no-such-agent"}, status: workorder.StatusFailed, by: workorder.EndedByAgent, reason: workorder.ReasonNoAgent,
		},
		{
			name: "setup beyond the time limit", head: "timeout_minutes: 0.03\nlifecycle:\n  setup: [sleep 600]\n", code: workorder.ExitTimeout,
			status: workorder.StatusTimeout, by: workorder.EndedByTimeout, reason: workorder.ReasonTimeout,
		},
	} {
		if f.nightly && !nightly {
			continue
		}
		t.Run(f.name, f.run)
	}
}
