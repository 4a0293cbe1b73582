package cli_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cli"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/outcome"
	"github.com/sandbox-agent/sandbox-agent/internal/host/provision"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime/docker"
	"github.com/sandbox-agent/sandbox-agent/internal/host/taskstore"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"sandbox-agent": func() {
		app := cmdutil.New(cmdutil.IO{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}, app.Env{
			Getenv:     os.Getenv,
			Executable: os.Executable,
			OpenEngine: func() (*app.Backend, error) {
				e, err := docker.New(os.Getenv)
				if err != nil {
					return nil, err
				}
				return &app.Backend{Engine: e, Images: noImages{}}, nil
			},
		})
		os.Exit(cli.Main(context.Background(), app, os.Args[1:]))
	}})
}

// TestScripts runs the command line where no engine answers.
func TestScripts(t *testing.T) {
	t.Parallel()
	scripts, err := filepath.Glob("testdata/script/*.txtar")
	if err != nil || len(scripts) == 0 {
		t.Fatal(scripts, err)
	}
	if testing.Short() {
		// Each line starts the program anew: with the race detector that is most of the time.
		scripts = []string{"testdata/script/usage.txtar", "testdata/script/badground.txtar"}
	}
	testscript.Run(t, testscript.Params{
		Files:               scripts,
		RequireExplicitExec: true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("HOME", e.WorkDir)
			e.Setenv("DOCKER_HOST", "unix://"+e.WorkDir+"/none.sock")
			e.Setenv("SANDBOX_AGENT_STATE_DIR", e.WorkDir+"/state")
			e.Setenv("GIT_CONFIG_GLOBAL", "/dev/null")
			e.Setenv("GIT_CONFIG_NOSYSTEM", "1")
			for _, who := range []string{"AUTHOR", "COMMITTER"} {
				e.Setenv("GIT_"+who+"_NAME", "t")
				e.Setenv("GIT_"+who+"_EMAIL", "t@t")
			}
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits, "recorded": recorded},
	})
}

// exits runs a command that has to end with the given exit code.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits code command...")
	}
	err := ts.Exec(args[1], args[2:]...)
	code := "0"
	if err != nil {
		var coded interface{ ExitCode() int }
		if !errors.As(err, &coded) {
			ts.Fatalf("%v", err)
		}
		code = strconv.Itoa(coded.ExitCode())
	}
	if code != args[0] {
		ts.Fatalf("exit code %s, want %s", code, args[0])
	}
}

// recorded makes a task of which no sandbox is left: recorded ID [flag=value...], as create -p p.yaml with these flags made it.
func recorded(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 {
		ts.Fatalf("usage: recorded ID [flag=value...]")
	}
	rec := &taskstore.Record{
		TaskID: args[0], Project: "shop", Task: "a task", CreatedAt: time.Now(), StartedAt: time.Now(), AttemptID: workorder.NewAttemptID(), Attempt: 1,
		Request: taskstore.Request{ProjectFile: ts.MkAbs("p.yaml"), ProjectBy: "named", Overrides: map[string]string{}},
		Harness: workorder.HarnessCommand, Mode: workorder.ModeCreate, Collected: true, Status: workorder.StatusError, EndedBy: workorder.EndedByBox,
	}
	for _, a := range args[1:] {
		flag, value, _ := strings.Cut(a, "=")
		rec.Request.Overrides[flag] = value
	}
	lock, err := taskstore.New(ts.MkAbs("state")).Create(rec)
	ts.Check(err)
	defer lock.Unlock()
	order := workorder.Order{Version: workorder.Version, TaskID: rec.TaskID, Task: rec.Task}
	b, err := json.Marshal(order)
	ts.Check(err)
	ts.Check(os.WriteFile(filepath.Join(rec.Dir, workorder.OrderFile), b, 0o600))
	ts.Check(outcome.WriteResult(rec, &workorder.Result{
		Version: workorder.Version, TaskID: rec.TaskID, Status: rec.Status, EndedBy: rec.EndedBy, Resumable: true,
		Reasons: workorder.Because(workorder.ReasonNotReady, "no sandbox"),
	}))
}

type noImages struct{ app.Images }

func (noImages) Ensure(context.Context, string, []string, func(workorder.Event)) (workorder.Image, error) {
	return workorder.Image{}, runtime.ErrUnavailable
}

func (noImages) Prepare(context.Context, workorder.Image, []string, map[string]string, func(workorder.Event)) (workorder.Image, error) {
	return workorder.Image{}, runtime.ErrUnavailable
}

func (noImages) Build(context.Context, []string, bool, bool, func(workorder.Event)) (workorder.Image, error) {
	return workorder.Image{}, runtime.ErrUnavailable
}

func (noImages) Small(context.Context, func(string), func(workorder.Event)) (workorder.Image, error) {
	return workorder.Image{}, errors.ErrUnsupported
}

func (noImages) ReadFiles(context.Context, string, string, func(io.Reader) error) (bool, error) {
	return false, runtime.ErrUnavailable
}

func (noImages) Root(context.Context, string, string) error { return runtime.ErrUnavailable }

func (noImages) Derive(context.Context, string, []byte, func(workorder.Event)) error {
	return runtime.ErrUnavailable
}

func (noImages) List(context.Context) ([]provision.BuiltImage, error) {
	return nil, runtime.ErrUnavailable
}
func (noImages) Remove(context.Context, string) error { return runtime.ErrUnavailable }
