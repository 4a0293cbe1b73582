//go:build e2e

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// put writes a file of the user's.
func (u *user) put(name, content string, mode os.FileMode) string {
	u.t.Helper()
	path := filepath.Join(u.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		u.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		u.t.Fatal(err)
	}
	return path
}

// Artifacts of ours work alone, and by `run`; those of others by `run`. The script is that of seed 003.
func TestArtifacts(t *testing.T) {
	t.Parallel()
	u := newCarefulUser(t)
	seed := u.put("seed.sh", `set -e
test -x result/bin/run
test -f result/metadata.json
test "$(jq -r .name result/metadata.json)" = "$1"
printf %s "$2" | result/bin/run
`, 0o644)
	for name, row := range map[string]struct{ definition, code, want string }{
		"jail":         {"interpreter: python3 -c", `print("hello")`, "hello\n"},
		"container":    {"interpreter: python3 -c\nbackend: container", `print("hello")`, "hello\n"},
		"jailpackage":  {"interpreter: bc -q\npackages: [bc]", "6*7\n", "42\n"},
		"imagepackage": {"interpreter: bc -q\npackages: [bc]\nbackend: container", "6*7\n", "42\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file, dir := u.put(name+".yaml", "name: "+name+"\n"+row.definition+"\n", 0o644), filepath.Join(u.dir, name, "result")
			if c := u.run("", "artifact", "build", file, "-o", dir); c.code != 0 {
				t.Fatalf("exit code %d: %s", c.code, c.stderr)
			}
			cmd := exec.CommandContext(t.Context(), "sh", seed, name, row.code)
			cmd.Dir = filepath.Dir(dir)
			if out, err := cmd.CombinedOutput(); err != nil || string(out) != row.want {
				t.Errorf("alone: %v, %q", err, out)
			}
			if c := u.run(row.code, "run", "--env", dir); c.code != 0 || c.stdout != row.want {
				t.Errorf("by run: exit code %d, %q: %s", c.code, c.stdout, c.stderr)
			}
		})
	}
	other := filepath.Dir(filepath.Dir(u.put("theirs/bin/run", "#!/bin/sh\nexec sh -s\n", 0o755)))
	u.put("theirs/metadata.json", `{"name":"theirs","backend":"jail","timeout_seconds":1}`, 0o644)
	if c := u.run("", "run", "--env", other, "echo $((6 * 7)); setsid sleep 61.5 & sleep 60"); c.code != 124 || c.stdout != "42\n" {
		t.Errorf("exit code %d, %q: %s", c.code, c.stdout, c.stderr)
	}
	if exec.CommandContext(t.Context(), "pgrep", "-f", "sleep 61.5").Run() == nil {
		t.Error("a child of what was out of time is left")
	}
	if c := u.run("", "artifact", "validate", other, u.dir); c.code != 6 {
		t.Errorf("exit code %d", c.code)
	}
}

// Presets of the user's file: variables reach the code and nothing else, each backend is what it says.
func TestPresetsFile(t *testing.T) {
	t.Parallel()
	u := newCarefulUser(t)
	const secret = "s3cret-of-the-environment"
	file := u.put("presets.yaml", `
presets:
  jailed: {preset: shell, backend: jail, inherit_vars: [GIVEN], env: {MORE: "${GIVEN}-x"}}
  contained: {preset: shell, backend: container, inherit_vars: [GIVEN], project: .}
  boxed: {preset: shell, backend: box}
  quick: {preset: python, timeout_seconds: 0.5}
  nix: {flake: "github:a/b"}
`, 0o644)
	u.env = append(u.env, "SANDBOX_AGENT_PRESETS="+file, "GIVEN="+secret)
	run := func(want string, code int, args ...string) {
		t.Helper()
		if c := u.run("", append([]string{"run"}, args...)...); c.code != code || c.stdout != want {
			t.Errorf("%q: exit code %d, %q: %s", args, c.code, c.stdout, c.stderr)
		}
	}
	run(secret+" "+secret+"-x\n", 0, "--env", "jailed", "echo $GIVEN $MORE")
	run(secret+"\n"+filepath.Base(file)+"\n", 0, "--env", "contained", "echo $GIVEN; ls /project")
	run("26\n", 0, "--env", "boxed", "docker version --format '{{.Server.Version}}' | sed 's/[.].*//'")
	run("", 124, "--env", "quick", "import time; time.sleep(60)")
	run("", 6, "--env", "nix", "1")
	run("", 2, "--env", "cobol", "1")
	run("", 0, "--env", "contained", "--session", "s", "x=$GIVEN")
	run(secret+"\n", 0, "--env", "contained", "--session", "s", "echo $x")
	if c := u.run("", "inspect", "run-s"); c.code != 0 || strings.Contains(c.stdout, secret) {
		t.Errorf("exit code %d, %s", c.code, c.stdout)
	}
	out, err := exec.CommandContext(t.Context(), "sh", "-c", "docker ps -aq | xargs -r docker inspect 2>/dev/null; true").Output() // others go meanwhile
	if err != nil || strings.Contains(string(out), secret) {
		t.Errorf("the engine knows it (%v)", err)
	}
	if out, err := exec.CommandContext(t.Context(), "grep", "-rlF", secret, u.state).Output(); err == nil {
		t.Errorf("the state folder has it: %s", out)
	}
	run("", 0, "--env", "contained", "--session", "t", "exit")
	if c := u.run("", "session", "rm", "s"); c.code != 0 {
		t.Errorf("exit code %d: %s", c.code, c.stderr)
	}
}
