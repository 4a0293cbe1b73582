package browse

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// agentRunning runs the agent's commands for a server.
func agentRunning(t *testing.T, command string, port int) (dev func(want int, args ...string) string, a agentServer) {
	t.Helper()
	a = agentServer{
		workorder.Dev{Command: command, Port: port, StartTimeoutSeconds: 30}, t.TempDir(), filepath.Join(t.TempDir(), "dev"),
	}
	b, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) (string, int) {
		cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "/proc/self/exe", append([]string{"dev"}, args...)...)
		cmd.Env = append(os.Environ(), devVar+"="+string(b))
		out, err := cmd.CombinedOutput()
		if err != nil && cmd.ProcessState == nil {
			t.Fatal(err)
		}
		return string(out), cmd.ProcessState.ExitCode()
	}
	t.Cleanup(func() { run("stop") })
	return func(want int, args ...string) string {
		t.Helper()
		out, code := run(args...)
		if code != want {
			t.Fatalf("dev %s: exit code %d: %s", args, code, out)
		}
		return out
	}, a
}

// The server runs on after the command that started it, can be restarted and read, and ends with all that it started.
func TestDevCommand(t *testing.T) {
	t.Parallel()
	port := free(t)
	dev, a := agentRunning(t, `echo "begins in $PWD"; setsid sh -c 'exec 9>alive; flock -n 9 && sleep 3600' & exec "`+os.Args[0]+`" serve $PORT`, port)
	dev(workorder.ExitGeneral, "status")
	dev(workorder.ExitGeneral, "logs")
	dev(workorder.ExitOK, "stop")
	answers := func() bool {
		res, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/", port)) //nolint:noctx // a test
		if err == nil {
			res.Body.Close()
		}
		return err == nil
	}
	first := dev(workorder.ExitOK, "start")
	if !strings.Contains(first, fmt.Sprintf("http://127.0.0.1:%d", port)) || !answers() {
		t.Errorf("start: %s", first)
	}
	if again := dev(workorder.ExitOK, "start"); again != first || dev(workorder.ExitOK, "status") != first {
		t.Errorf("start again: %s", again)
	}
	if out := dev(workorder.ExitOK, "logs"); !strings.HasPrefix(out, "begins in "+a.Dir+"\n") {
		t.Errorf("logs: %s", out)
	}
	if out := dev(workorder.ExitOK, "logs", "1"); strings.Count(out, "\n") != 1 {
		t.Errorf("one line: %q", out)
	}
	if out := dev(workorder.ExitOK, "restart"); out == first || !answers() {
		t.Errorf("restart: %s", out)
	}
	dev(workorder.ExitOK, "stop")
	if answers() {
		t.Error("it answers after stop")
	}
	dev(workorder.ExitGeneral, "status")
	if err := exec.CommandContext(t.Context(), "flock", "-n", filepath.Join(a.Dir, "alive"), "true").Run(); err != nil {
		t.Errorf("what it started runs: %v", err)
	}
}

// A server that ends at once is an error with its output, and can be started again.
func TestDevCommandFails(t *testing.T) {
	t.Parallel()
	dev, a := agentRunning(t, "echo because; exit 7", free(t))
	for range 2 {
		if out := dev(workorder.ExitGeneral, "start"); !strings.Contains(out, "because") || !strings.Contains(out, "7") {
			t.Errorf("start: %s", out)
		}
	}
	if _, runs := a.state(); runs {
		t.Error("it runs")
	}
	dev(workorder.ExitUsage, "begin")
	dev(workorder.ExitUsage, "logs", "0")
	dev(workorder.ExitUsage)
}
