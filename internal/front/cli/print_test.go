package cli

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/internal/host/taskstore"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// evil is what a git server, a registry or an agent may say: ESC, DEL and CSI.
const evil = "before\x1b[2J\x7f\u009b31mafter"

func obeyed(s string) bool { return strings.ContainsAny(s, "\x1b\x7f\u009b") }

func TestTerminalIsNotCommanded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	st := taskstore.New(dir)
	rec := &taskstore.Record{TaskID: "T-A1B2C3D4", CreatedAt: time.Now(), Task: evil, Project: evil, Collected: true, Status: workorder.StatusFailed}
	lock, err := st.Create(rec)
	if err != nil {
		t.Fatal(err)
	}
	lock.Unlock()
	res := workorder.Result{TaskID: rec.TaskID, Status: workorder.StatusFailed, Reasons: workorder.Because(workorder.ReasonAgent, "%s", evil), Warnings: []string{evil}}
	b, err := res.Encode()
	if err == nil {
		err = os.WriteFile(filepath.Join(rec.Dir, workorder.ResultFile), b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	a := cmdutil.New(cmdutil.IO{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &out}, app.Env{
		OpenEngine: func() (*app.Backend, error) { return nil, errors.New(evil) },
		Getenv: func(name string) string {
			if name == "SANDBOX_AGENT_STATE_DIR" {
				return dir
			}
			return ""
		},
	})
	for _, args := range []string{"result T-A1B2C3D4", "result T-A1B2C3D4 --json", "ps", "ps --json", "doctor", "doctor --json", "gc", "gc --json"} {
		out.Reset()
		Main(t.Context(), a, strings.Fields(args))
		if !strings.Contains(out.String(), "after") || obeyed(out.String()) {
			t.Errorf("%s prints %q", args, out.String())
		}
	}
	for _, asJSON := range []bool{false, true} {
		out.Reset()
		printError(a, exiterr.New(1, errors.New(evil), evil), 1, asJSON)
		if strings.Count(out.String(), "after") != 2 || obeyed(out.String()) {
			t.Errorf("an error is printed as %q", out.String())
		}
	}
}
