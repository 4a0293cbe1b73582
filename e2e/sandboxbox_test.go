//go:build e2e

package e2e

import (
	"context"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// standingBox makes a sandbox of kind box of a project, removed at the test's end.
func (u *user) standingBox(name, yaml string, args ...string) string {
	u.t.Helper()
	name += "-" + strconv.Itoa(os.Getpid())
	u.removeLater(name)
	if c := u.run("", append([]string{"up", name, "--project", u.project(yaml)}, args...)...); c.code != 0 {
		u.t.Fatalf("exit code %d", c.code)
	}
	return name
}

// A box without a task has what its project asks for, and holds commands as a task's box holds the agent.
func TestSandboxBox(t *testing.T) {
	t.Parallel()
	u := newUser(t, "KEY_OF_SETUP=value-for-setup-alone", "KEY_OF_ALL=value-for-all-commands")
	repo := u.repo(map[string]string{"f": "hi"})
	name := u.standingBox("box", `name: standing
repo: `+repo+`
harness: {name: command, command: "true"}
env: {GREET: hello}
secrets:
  KEY_OF_SETUP: {from: env://KEY_OF_SETUP, for: setup}
  KEY_OF_ALL: env://KEY_OF_ALL
services:
  redis: {image: `+redisImage+`, ports: ["6379"]}
lifecycle:
  setup: ["echo $KEY_OF_SETUP | wc -c >made"]
network: {mode: none}
`, "--memory", "2g")

	sh := func(script string, args ...string) (execAnswer, int) {
		t.Helper()
		return u.exec(name, "", append(args, "--timeout", "60s", "--", "bash", "-c", script)...)
	}
	for what, script := range map[string]string{
		"work as the agent's user":          `test "$(id -un):$(pwd)" = sandbox:/workspace`,
		"the branch is checked out":         `test "$(cat f)" = hi && test "$(git rev-parse --abbrev-ref HEAD)" = sandbox/` + name,
		"what git ignores is not there":     `test -z "$(git status --porcelain | grep -v made)"`,
		"fetch from where it came from":     `git fetch origin`,
		"setup ran, with its secret":        `test "$(cat made)" -gt 10`,
		"that secret is setup's":            `test -z "$KEY_OF_SETUP"`,
		"a secret of commands is there":     `test "$KEY_OF_ALL" = value-for-all-commands && test "$GREET" = hello`,
		"the service answers":               `exec 3<>/dev/tcp/redis/6379 && printf 'PING\r\n' >&3 && head -n 1 <&3 | grep -q PONG`,
		"Docker inside":                     `docker run --rm --network none ` + redisImage + ` true`,
		"no capability":                     `grep -q '^CapEff:.0*$' /proc/self/status && grep -q '^NoNewPrivs:.1$' /proc/self/status`,
		"the wire's socket is out of reach": `! ls /run/sandbox-agent-wire && ! cat /run/sandbox-agent-wire/wire.sock`,
		"the memory of root's, too":         `for p in /proc/[0-9]*; do if [ "$(stat -c %u $p)" = 0 ]; then ! cat $p/environ || exit 1; ! ls $p/fd || exit 1; fi; done`,
		"nor the engine's data":             `! ls /var/lib/docker`,
		"nor its kills":                     `! kill -KILL 1`,
		"nothing outside":                   `! getent hosts example.com`,
	} {
		if got, code := sh(script); code != 0 {
			t.Errorf("%s: exit code %d, %s%s", what, code, got.Stdout, got.Stderr)
		}
	}
	if got, code := u.exec(name, "", "--timeout", "1s", "--", "sh", "-c", "setsid sleep 987 & env -i setsid -f sleep 987; (sleep 987 &); sleep 987"); code != 124 || !got.TimedOut {
		t.Errorf("timeout: %+v, exit code %d", got, code)
	}
	if got, _ := sh("pgrep -x sleep | wc -l"); got.Stdout != "0\n" {
		t.Errorf("left after the timeout: %s", got.Stdout)
	}
	if got, code := sh("tail /dev/zero"); code != 137 || !got.OutOfMemory {
		t.Errorf("too much memory: %+v, exit code %d", got, code)
	}

	// Over a stop its files stay, and what its services wrote.
	if got, code := sh(`exec 3<>/dev/tcp/redis/6379; printf 'SET a kept\r\nSAVE\r\n' >&3; head -n 2 <&3; echo mine >/home/sandbox/own; docker volume create kept`); code != 0 {
		t.Fatalf("exit code %d, %s", code, got.Stderr)
	}
	if c := u.run("", "stop", name); c.code != 0 {
		t.Fatalf("stop: exit code %d", c.code)
	}
	if got, code := sh(`exec 3<>/dev/tcp/redis/6379; printf 'GET a\r\n' >&3; head -n 2 <&3; cat /home/sandbox/own made; docker volume ls -q; test "$KEY_OF_ALL" = value-for-all-commands`); code != 0 ||
		got.Stdout != "$4\r\nkept\r\nmine\n22\nkept\n" {
		t.Errorf("after a stop: exit code %d, %q, %s", code, got.Stdout, got.Stderr)
	}
	// What commands print has a mask in place of secrets; also when it comes in parts, and encoded.
	if got, code := sh(`for p in value-for -all -commands; do printf %s $p; sleep 0.2; done; echo; printf %s "$KEY_OF_ALL" | base64 >&2; echo end`); code != 0 ||
		!strings.HasSuffix(got.Stdout, "\nend\n") || strings.Contains(got.Stdout, "commands") || strings.Contains(got.Stderr, "dmFsdWUt") || got.Stderr == "" {
		t.Errorf("exit code %d, %q, %q", code, got.Stdout, got.Stderr)
	}
	// A background process of a command that has ended may still write.
	if got, code := sh(`(for i in $(seq 200); do echo "$KEY_OF_ALL"; sleep 0.02; done) & echo begun`); code != 0 || strings.Contains(got.Stdout, "value-for") {
		t.Errorf("exit code %d, %q", code, got.Stdout)
	}
	in, err := eng.ContainerInspect(t.Context(), "sandbox-agent-sandbox-"+name)
	if err != nil {
		t.Fatal(err)
	}
	if s := strings.Join(in.Config.Env, "\n") + in.Config.Labels["sandbox-agent.sandbox.spec"]; strings.Contains(s, "value-for") {
		t.Error("a secret is in what the engine keeps of the container")
	}
}

// A box that cannot be made ready says why, and is gone.
func TestSandboxBoxFails(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	repo := u.repo(map[string]string{"f": "hi"})
	name := "fails-" + strconv.Itoa(os.Getpid())
	u.removeLater(name)
	for what, row := range map[string]struct {
		yaml string
		args []string
		code int
	}{
		"setup":          {yaml: "lifecycle: {setup: ['exit 3']}\n", code: workorder.ExitGeneral},
		"no such branch": {yaml: "branch: none\n", code: workorder.ExitGit},
		"no repository":  {args: []string{"--repo", "/no/such/folder"}, code: workorder.ExitGit},
		"two mistakes":   {args: []string{"--memory", "1", "--cpus", "x"}, code: workorder.ExitUsage},
		"a container":    {yaml: "services: {db: {image: none}}\n", args: []string{"--runtime", "container"}, code: workorder.ExitInvalid},
	} {
		c := u.run("", append([]string{"up", name, "--project", u.project("name: fails\nrepo: " + repo + "\nharness: {name: command, command: \"true\"}\n" + row.yaml)}, row.args...)...)
		if c.code != row.code {
			t.Errorf("%s: exit code %d, want %d", what, c.code, row.code)
		}
		if _, err := eng.ContainerInspect(t.Context(), "sandbox-agent-sandbox-"+name); err == nil {
			t.Errorf("%s: a container is left", what)
		}
	}
}

// removeLater removes a sandbox at the test's end, whatever the program did.
func (u *user) removeLater(name string) {
	u.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(u.t.Context()), time.Minute)
		defer cancel()
		_ = eng.ContainerRemove(ctx, "sandbox-agent-sandbox-"+name, container.RemoveOptions{Force: true, RemoveVolumes: true}) // it may be gone
	})
}
