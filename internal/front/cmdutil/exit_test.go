package cmdutil

import (
	"bytes"
	"syscall"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
)

// A command that was killed says so on standard error, and one that ended by itself, or by its user, does not.
func TestTellEnd(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		r    sandbox.ExitStatus
		told bool
	}{
		"ended":         {sandbox.ExitStatus{}, false},
		"failed":        {sandbox.ExitStatus{ExitCode: 137}, false},
		"timeout":       {sandbox.ExitStatus{ExitCode: 143, Signal: syscall.SIGTERM, TimedOut: true}, true},
		"out of memory": {sandbox.ExitStatus{ExitCode: 137, Signal: syscall.SIGKILL, OutOfMemory: true}, true},
		"killed":        {sandbox.ExitStatus{ExitCode: 137, Signal: syscall.SIGKILL}, true},
		"not started":   {sandbox.ExitStatus{ExitCode: 126, Reason: "no process is left"}, true},
		"Ctrl-C":        {sandbox.ExitStatus{ExitCode: 130, Signal: syscall.SIGINT}, false},
		"closed pipe":   {sandbox.ExitStatus{ExitCode: 141, Signal: syscall.SIGPIPE}, false},
	} {
		for _, limit := range []time.Duration{0, time.Second} {
			var out bytes.Buffer
			New(IO{Stderr: &out}, app.Env{}).TellEnd(row.r, limit, "more")
			if lines := bytes.Count(out.Bytes(), []byte("\n")); lines > 1 || lines == 1 != row.told {
				t.Errorf("%s: %q", name, out.String())
			}
		}
	}
}
