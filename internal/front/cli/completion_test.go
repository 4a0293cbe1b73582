package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/internal/host/taskstore"
)

// TestNamesAreCompleted: each command completes the ids of tasks and the names of projects where its usage line or a flag takes them.
func TestNamesAreCompleted(t *testing.T) {
	state, dir, more := t.TempDir(), t.TempDir(), t.TempDir()
	lock, err := taskstore.New(state).Create(&taskstore.Record{TaskID: "T-A1B2C3D4", CreatedAt: time.Now(), Task: "x"})
	if err != nil {
		t.Fatal(err)
	}
	lock.Unlock()
	if err := os.Mkdir(filepath.Join(dir, "projects"), 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "projects", "my-shop.yaml"), "name: my-shop\n")
	write(t, filepath.Join(more, "elsewhere.yaml"), "name: elsewhere\n")
	t.Chdir(dir)
	complete := func(args ...string) string {
		t.Helper()
		var out, errs bytes.Buffer
		a := cmdutil.New(cmdutil.IO{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs}, app.Env{
			Getenv: func(name string) string {
				return map[string]string{"SANDBOX_AGENT_STATE_DIR": state, "SANDBOX_AGENT_PROJECTS_DIR": more}[name]
			},
		})
		if code := Main(t.Context(), a, append([]string{"__complete"}, args...)); code != 0 {
			t.Errorf("%q: exit %d: %s", args, code, errs.String())
		}
		return out.String()
	}
	tasks, names := 0, 0
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		for _, c := range cmd.Commands() {
			visit(c)
		}
		path := strings.Fields(cmd.CommandPath())[1:]
		if strings.Contains(cmd.Use, "TASK") {
			if tasks++; !strings.Contains(complete(append(path, "")...), "T-A1B2C3D4") {
				t.Errorf("%s completes no task", cmd.CommandPath())
			}
		}
		if strings.Contains(cmd.Use, "NAME") {
			if names++; !strings.Contains(complete(append(path, "")...), "my-shop") {
				t.Errorf("%s completes no project", cmd.CommandPath())
			}
		}
		if cmd.Flags().Lookup("project") != nil {
			if names++; !strings.Contains(complete(append(path, "--project", "")...), "my-shop") {
				t.Errorf("%s --project completes no project", cmd.CommandPath())
			}
		}
	}
	visit(newRootCmd(cmdutil.New(cmdutil.IO{}, app.Env{})))
	if got := complete("create", "--project", ""); !strings.Contains(got, "elsewhere") {
		t.Errorf("a project of SANDBOX_AGENT_PROJECTS_DIR is not completed: %s", got)
	}
	if tasks < 14 || names < 9 {
		t.Errorf("only %d commands take tasks, and %d take projects", tasks, names)
	}
}
