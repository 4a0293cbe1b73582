package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// An agent that fails at once is told by what it has printed, whoever has begun tmux, and the terminal beside it can still be left.
func TestStartScript(t *testing.T) {
	t.Parallel()
	for name, terminal := range map[string]bool{"first": false, "beside the terminal": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			run := func(argv ...string) (string, error) {
				cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
				cmd.Dir, cmd.Env = dir, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "TMUX_TMPDIR=" + dir, "SHELL=/bin/sh"}
				out, err := cmd.CombinedOutput()
				return strings.TrimSpace(string(out)), err
			}
			defer func() {
				if out, err := run("tmux", "kill-server"); err != nil {
					t.Errorf("%v: %s", err, out)
				}
			}()
			if terminal {
				if out, err := run("sh", "-c", beginTerminal); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
			}
			start := func(agent, program string) (string, error) {
				launcher := filepath.Join(dir, agent+".sh")
				if err := os.WriteFile(launcher, []byte(program), 0o600); err != nil {
					t.Fatal(err)
				}
				return run("sh", "-c", startScript, "sh", tmuxSession, agent, dir, launcher)
			}
			for heard := false; !heard; { // go test's own deadline ends it: on a busy machine tmux may miss what is printed at the very end
				out, err := start("broken", "echo its last words; exit 3")
				if heard = strings.Contains(out, "its last words"); err == nil || !heard && !strings.Contains(out, "3") {
					t.Fatalf("%v: %s", err, out)
				}
			}
			for _, agent := range []string{"one", "two"} {
				if out, err := start(agent, "sleep 1000"); err != nil {
					t.Errorf("%v: %s", err, out)
				}
				if out, err := run("sh", "-c", runsScript, "sh", tmuxSession, agent); err != nil || out != "1" {
					t.Errorf("%s runs: %q, %v", agent, out, err)
				}
			}
			if out, err := run("sh", "-c", runsScript, "sh", tmuxSession, "broken"); err != nil || out != "" {
				t.Errorf("broken runs: %q, %v", out, err)
			}
			if out, err := start("quick", "exit 0"); err == nil {
				t.Errorf("it runs: %s", out)
			}
			if out, err := run("tmux", "show-options", "-gwv", "remain-on-exit"); err != nil || out != "off" {
				t.Errorf("other windows stay when their program has ended: %q, %v", out, err)
			}
			if out, err := run("tmux", "show-options", "-gv", "history-limit"); err != nil || out != "50000" {
				t.Errorf("%q, %v", out, err)
			}
		})
	}
}
