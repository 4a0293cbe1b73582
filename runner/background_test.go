package runner

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/internal/redact"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// leave runs a command of setup that leaves a server in the background, whose
// standard output is the command's own. The server goes on when the command has
// long been over, and ends after its script.
func leave(t *testing.T, b *box, server string) ShellResult {
	t.Helper()
	r := Shell(t.Context(), b.Config, ShellCommand{
		Name: "setup", Log: "logs/setup.log",
		Run: `echo begin; (while ! [ -e ../go ]; do sleep 0.01; done; ` + server + `; touch ../survived) & printf 'the end of s3'`,
	})
	if r.Err != nil || r.Tail != "begin\nthe end of " && r.Tail != "begin\nthe end of s3" {
		t.Fatalf("got %+v", r)
	}
	dir := filepath.Dir(b.Workspace)
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the server's end", func() bool { return exists(filepath.Join(dir, "survived")) })
	return r
}

// TestBackgroundServerMayLog: what setup left lives on when it prints, and what
// it prints is in the log, without secrets, also across the end of the command.
func TestBackgroundServerMayLog(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.Redact = redact.Named(map[string]string{"KEY": "s3cr3t-value"})
	leave(t, b, `printf 'cr3t-value\n'; /bin/echo second s3cr3t-value; /bin/echo third >&2`)
	path := filepath.Join(b.OutDir, "logs/setup.log")
	waitFor(t, "the server's last line in the log", func() bool { return strings.Contains(b.read(t, path), "third\n") })
	got := b.read(t, path)
	if !strings.HasPrefix(got, "begin\nthe end of ") || !strings.Contains(got, "[redacted:KEY]\nsecond [redacted:KEY]\nthird\n") || strings.Contains(got, "cr3t") {
		t.Errorf("log %q", got)
	}
	if ev := b.of(workorder.EventOutput); len(ev) != 2 {
		t.Errorf("what comes after the command is no event of it: %+v", ev)
	}
}

// TestBackgroundFloodIsBounded: a server that floods is read, so that it goes on, and not kept.
func TestBackgroundFloodIsBounded(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	lim := b.limits()
	lim.background = 1000
	b.bounds = &lim
	leave(t, b, `head -c 5000000 /dev/zero | tr '\0' x`)
	path := filepath.Join(b.OutDir, "logs/setup.log")
	waitFor(t, "a mark behind what is kept", func() bool {
		_, kept, _ := strings.Cut(b.read(t, path), "xxx")
		return strings.Trim(kept, "x") != ""
	})
	if n := len(b.read(t, path)); n > 1100 {
		t.Errorf("the log has %d bytes", n)
	}
}

// TestOutputByName needs root: scripts open their output by name, which the
// kernel allows only to the owner of the pipe.
func TestOutputByName(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root can start processes as another user")
	}
	b := newBox(t)
	b.User, b.Workspace = &proc.Credential{UID: 64321, GID: 64321}, "/"
	r := Shell(t.Context(), b.Config, ShellCommand{Name: "x", Run: "echo out >/dev/stdout; echo err >/dev/stderr", Log: "logs/x.log"})
	if want := fmt.Sprintln("out") + fmt.Sprintln("err"); r.Err != nil || r.Tail != want {
		t.Errorf("got %+v", r)
	}
}
