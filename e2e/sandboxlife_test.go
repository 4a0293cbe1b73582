//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/image"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

type sandboxStatus struct {
	Name, State, Image, Snapshot string
	Own                          bool
	MemoryBytes                  int64 `json:"memory_bytes"`
	Processes                    int64
	Commands                     []struct {
		ID      string
		Argv    []string
		Running bool
	}
	Endpoints map[string]string
	Spec      struct{ Network string }
}

// What is told of a sandbox, and what is done to it, from its beginning until after its end.
func TestSandboxLife(t *testing.T) {
	t.Parallel()
	u := newCarefulUser(t)
	name := u.sandbox("life", "--network", "none", "--memory", "256m", "--port", "3000", "--idle", "1h", "--ttl", "8h")
	if c := u.run("", "exec", name, "--background", "--", "sh", "-c", "sleep 900; : canary"); c.code != 0 {
		t.Fatalf("exit code %d", c.code)
	}
	s := jsonOf[sandboxStatus](u, "status", name)
	if s.State != "running" || !s.Own || s.Image != plainImage || s.MemoryBytes <= 0 || s.Processes < 2 || len(s.Commands) != 1 || !s.Commands[0].Running || s.Commands[0].Argv[0] != "sh" ||
		s.Endpoints["3000"] == "" || s.Spec.Network != "none" {
		t.Errorf("%+v", s)
	}
	if c := u.run("", "status", name); c.code != 0 || !strings.Contains(c.stdout, s.Commands[0].ID[:8]) || !strings.Contains(c.stdout, s.Endpoints["3000"]) {
		t.Errorf("exit code %d", c.code)
	}
	var inspected sandboxStatus
	if c := u.run("", "inspect", name); c.code != 0 || json.Unmarshal([]byte(c.stdout), &inspected) != nil || inspected.Image != s.Image {
		t.Errorf("exit code %d, %+v", c.code, inspected)
	}
	other := u.sandbox("life-2", "--network", "none")
	if c := u.run("", "stop", name, other); c.code != 0 {
		t.Errorf("stop two: exit code %d", c.code)
	}
	// To look starts nothing.
	if s := jsonOf[sandboxStatus](u, "status", name); s.State != "stopped" || s.Processes != 0 || u.run("", "ports", name).code != 0 || jsonOf[sandboxStatus](u, "status", name).State != "stopped" {
		t.Errorf("%+v", s)
	}
	if c := u.run("", "logs", name); c.code != 0 {
		t.Errorf("logs: exit code %d", c.code)
	}
	if c := u.run("", "rm", other); c.code != 0 || len(u.sandboxesOf(other)) != 0 {
		t.Errorf("rm: exit code %d", c.code)
	}
	if c := u.run("", "resume", name); c.code != 0 || jsonOf[sandboxStatus](u, "status", name).State != "running" {
		t.Errorf("resume: exit code %d", c.code)
	}
	if c := u.run("", "rm", name); c.code != workorder.ExitGeneral || len(u.sandboxesOf(name)) != 1 {
		t.Errorf("rm of one that runs: exit code %d", c.code)
	}
	// A shell, and a script for one.
	if c := u.run("echo in-$((40 + 2)); exit 4", "shell", name); c.code != 4 || c.stdout != "in-42\n" {
		t.Errorf("shell: exit code %d, %q", c.code, c.stdout)
	}
	if c := u.run("", "shell", name, "--", "sh", "-c", "exit 5"); c.code != 5 {
		t.Errorf("shell with a command: exit code %d", c.code)
	}
	if c := u.run("", "exec", name, "--shell", "bash", "--", "[[ a == a ]] &&", "echo $((6 * 7))"); c.code != 0 || c.stdout != "42\n" {
		t.Errorf("a script: exit code %d, %q", c.code, c.stdout)
	}
	seated := *u
	seated.terminal = true
	shell := seated.start("", "shell", name)
	if _, err := shell.keys.WriteString("tty >/dev/tty && echo a-$((40+2))\n"); err != nil {
		t.Fatal(err)
	}
	shell.waitFor("a-42")
	if _, err := shell.keys.WriteString("exit 6\n"); err != nil {
		t.Fatal(err)
	}
	if c := shell.wait(); c.code != 6 {
		t.Errorf("a shell at a terminal: exit code %d", c.code)
	}

	// Somebody removes its container.
	u.removeNow(name)
	type did struct {
		Action, Target string
		NeedsForce     bool `json:"needs_force"`
	}
	forget := did{"forget sandbox", name, true}
	if s := jsonOf[sandboxStatus](u, "status", name); s.State != "gone" || !slices.Contains(jsonOf[[]did](u, "gc", "--dry-run"), forget) || !slices.Contains(jsonOf[[]did](u, "gc"), forget) {
		t.Errorf("%+v", s)
	}
	c := u.run("", "exec", name, "--json", "--", "sh", "-c", "ls /sys/class/net; cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes 2>/dev/null; true")
	var got execAnswer
	if err := json.Unmarshal([]byte(c.stdout), &got); err != nil || c.code != 0 || got.Stdout != "lo\n268435456\n" || !strings.Contains(c.stderr, "note: ") {
		t.Errorf("made anew: exit code %d, %q, %v", c.code, got.Stdout, err)
	}
	if s := jsonOf[sandboxStatus](u, "status", name); s.State != "running" || s.Endpoints["3000"] == "" {
		t.Errorf("%+v", s)
	}
	// Its record is lost: its container says what it is.
	if err := os.Remove(filepath.Join(u.state, "registry", name, "record.json")); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(jsonOf[[]did](u, "gc"), did{"keep record", name, false}) || len(jsonOf[[]did](u, "gc")) != 0 {
		t.Error("the record is not kept anew")
	}
	stranger := newUser(t)
	if rows := jsonOf[[]did](stranger, "gc", "--force"); len(rows) != 0 || len(u.sandboxesOf(name)) != 1 {
		t.Errorf("another state folder: %+v", rows)
	}
	for _, args := range [][]string{{"exec", name, "--", "true"}, {"status", name}, {"stop", name}, {"reset", name}, {"down", name}, {"down", name, "--force"}, {"snapshot", "create", name}, {"fork", name, "x"}} {
		if c := stranger.run("", args...); c.code != 2 || len(u.sandboxesOf(name)) != 1 {
			t.Errorf("another state directory: %q: exit code %d", args, c.code)
		}
	}
	if c := stranger.run("", "down", "--all"); c.code != 0 || len(u.sandboxesOf(name)) != 1 {
		t.Errorf("another state folder: exit code %d", c.code)
	}
	if c := u.run("", "down", "--all"); c.code != 0 || len(u.sandboxesOf(name)) != 0 {
		t.Errorf("down: exit code %d", c.code)
	}
	var history []struct{ Event, Program string }
	if c := u.run("", "inspect", name, "--history"); c.code != 0 || json.Unmarshal([]byte(c.stdout), &history) != nil || history[0].Event != "created" || history[len(history)-1].Event != "removed" ||
		strings.Contains(c.stdout, "canary") {
		t.Errorf("exit code %d", c.code)
	}
	if left, err := filepath.Glob(filepath.Join(u.state, "registry", "*")); err != nil || len(left) != 1 { // the history
		t.Errorf("left: %v, %v", left, err)
	}
}

// Files are kept under names, brought back, and had twice.
func TestSandboxSnapshots(t *testing.T) {
	t.Parallel()
	u := newCarefulUser(t)
	name := u.sandbox("snap", "--user", "nobody", "--env", "A=b", "--network", "none")
	t.Cleanup(func() { u.removeSnapshots(name) })
	fork := u.claim(name + "-fork")
	read := func(name string) string {
		got, _ := u.exec(name, "", "--", "sh", "-c", "cat /tmp/f; echo $A; id -un; ls /sys/class/net")
		return strings.Join(strings.Fields(got.Stdout), " ")
	}
	write := func(name, text string) {
		if _, code := u.exec(name, "", "--", "sh", "-c", "echo "+text+" >/tmp/f"); code != 0 {
			t.Fatalf("exit code %d", code)
		}
	}
	write(name, "one")
	kept := jsonOf[struct {
		Name  string
		Bytes int64
	}](u, "snapshot", "create", name, "s")
	if kept.Name != "s" || kept.Bytes <= 0 {
		t.Errorf("%+v", kept)
	}
	write(name, "two")
	if c := u.run("", "snapshot", "restore", name, "s"); c.code != 0 || read(name) != "one b nobody lo" {
		t.Errorf("exit code %d, %q", c.code, read(name))
	}
	if c := u.run("", "snapshot", "restore", name, "before-restore"); c.code != 0 || read(name) != "two b nobody lo" {
		t.Errorf("taken back: exit code %d, %q", c.code, read(name))
	}
	if c := u.run("", "fork", name, fork); c.code != 0 || read(fork) != "two b nobody lo" {
		t.Errorf("fork: exit code %d, %q", c.code, read(fork))
	}
	write(fork, "three")
	if read(name) != "two b nobody lo" {
		t.Errorf("%q", read(name))
	}
	for _, row := range []struct {
		args []string
		want int
	}{
		{[]string{"snapshot", "create", name, "s"}, workorder.ExitUsage},
		{[]string{"snapshot", "create", name, "../evil"}, workorder.ExitUsage},
		{[]string{"snapshot", "restore", name, "nope"}, workorder.ExitNotFound},
		{[]string{"snapshot", "rm", name, "nope"}, workorder.ExitNotFound},
		{[]string{"snapshot", "rm", name, "before-restore"}, workorder.ExitGeneral}, // the sandbox is made of it
		{[]string{"fork", name, fork}, workorder.ExitUsage},
		{[]string{"fork", name, "Not A Name"}, workorder.ExitUsage},
	} {
		if c := u.run("", row.args...); c.code != row.want || strings.Count("\n"+c.stderr, "\nerror: ") != 1 {
			t.Errorf("%q: exit code %d, want %d", row.args, c.code, row.want)
		}
	}
	if c := u.run("", "down", name, fork); c.code != 0 {
		t.Errorf("down: exit code %d", c.code)
	}
	if _, err := eng.ImageInspect(t.Context(), "sandbox-agent-fork:"+fork); err == nil {
		t.Error("the image of the fork is left")
	}
	if c := u.run("", "snapshot", "restore", name, "s"); c.code != 0 || read(name) != "one b nobody lo" {
		t.Errorf("one that was removed: exit code %d, %q", c.code, read(name))
	}
	if c := u.run("", "down", name); c.code != 0 {
		t.Errorf("down: exit code %d", c.code)
	}
	if c := u.run("", "snapshot", "rm", name, "s", "before-restore", "before-restore-2"); c.code != 0 || len(jsonOf[[]struct{}](u, "snapshot", "list", name)) != 0 {
		t.Errorf("exit code %d", c.code)
	}
}

// removeSnapshots removes those of a sandbox, whatever the program did.
func (u *user) removeSnapshots(name string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(u.t.Context()), time.Minute)
	defer cancel()
	for _, ref := range []string{"snapshot:" + name + ".s", "snapshot:" + name + ".before-restore", "snapshot:" + name + ".before-restore-2", "fork:" + name + "-fork"} {
		_, _ = eng.ImageRemove(ctx, "sandbox-agent-"+ref, image.RemoveOptions{Force: true, PruneChildren: true}) // it may be gone
	}
}

// A command that names no sandbox has one of its folder, made at the first use; nothing runs on this machine instead.
func TestSandboxOfFolder(t *testing.T) {
	t.Parallel()
	u := newCarefulUser(t)
	exec := func(args ...string) (answer execAnswer, c call) {
		t.Helper()
		c = u.run("", append([]string{"exec", "--json"}, args...)...)
		if c.code != workorder.ExitNotFound && c.code != workorder.ExitBox && json.Unmarshal([]byte(c.stdout), &answer) != nil {
			t.Fatalf("exit code %d", c.code)
		}
		return answer, c
	}
	marker := filepath.Join(u.dir, "marker")
	first, c := exec("--image", plainImage, "--", "sh", "-c", "touch /tmp/a "+marker+"; hostname")
	u.removeLater(first.Sandbox)
	if here, err := os.Hostname(); err != nil || c.code == 0 && first.Stdout == here+"\n" || !strings.HasPrefix(first.Sandbox, "default-") || !strings.Contains(c.stderr, "note: ") {
		t.Errorf("%+v, %v", first, err)
	}
	if _, err := os.Stat(marker); err == nil {
		t.Error("the command ran on this machine")
	}
	if again, c := exec("--", "test", "-e", "/tmp/a"); c.code != 0 || again.Sandbox != first.Sandbox || strings.Contains(c.stderr, "note: ") {
		t.Errorf("exit code %d, %+v", c.code, again)
	}
	if c := u.run("", "exec", "--image", "another:1", "--", "true"); c.code != workorder.ExitUsage {
		t.Errorf("another image: exit code %d", c.code)
	}
	named := u.sandbox("named")
	u.env = append(u.env, "SANDBOX_AGENT_SANDBOX="+named)
	if got, c := exec("--", "test", "-e", "/tmp/a"); c.code != 1 || got.Sandbox != named {
		t.Errorf("exit code %d, %+v", c.code, got)
	}
	u.env = append(u.env, "SANDBOX_AGENT_SANDBOX=no-such")
	if _, c := exec("--", "true"); c.code != workorder.ExitNotFound {
		t.Errorf("exit code %d", c.code)
	}
	u.env = append(u.env, "SANDBOX_AGENT_SANDBOX=", "DOCKER_HOST=unix://"+filepath.Join(u.dir, "no.sock"))
	if _, c := exec("--", "touch", marker); c.code != workorder.ExitBox || !strings.Contains(c.stderr, `"kind":"unavailable"`) {
		t.Errorf("without an engine: exit code %d", c.code)
	}
	if _, err := os.Stat(marker); err == nil {
		t.Error("the command ran on this machine")
	}
	u.env = append(u.env, "DOCKER_HOST="+os.Getenv("DOCKER_HOST"))
	if c := u.run("", "down", "--all"); c.code != 0 || len(u.sandboxesOf(first.Sandbox)) != 0 {
		t.Errorf("down: exit code %d", c.code)
	}
}
