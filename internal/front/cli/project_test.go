package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/diag"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cli/setupcmd"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// project runs `sandbox-agent project ...` in a folder of its own.
func project(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	a := cmdutil.New(cmdutil.IO{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs}, app.Env{Getenv: func(string) string { return "" }})
	cmd := setupcmd.NewCmdProject(a)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetOut(&out)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(t.Context())
	var end *cmdutil.ExitError
	switch {
	case errors.As(err, &end):
		code = end.Code
	case err != nil:
		code = app.ExitCode(err)
		printError(a, err, code, false)
	}
	return code, out.String(), errs.String()
}

func write(t *testing.T, name, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestProjectInit(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("HOME", t.TempDir())
	write(t, "go.mod", "module x\n")
	if code, _, errs := project(t, "validate"); code != workorder.ExitNoProject || !strings.Contains(errs, "project init") {
		t.Errorf("validate without a project: exit %d, %s", code, errs)
	}
	if code, out, errs := project(t, "init", "--output", "outside.yaml"); code != 0 || !strings.Contains(errs, "git init") {
		t.Fatalf("init outside of a repository: exit %d, %s%s", code, out, errs)
	}
	if err := errors.Join(os.Mkdir(".git", 0o755), os.MkdirAll("lib/.git", 0o755)); err != nil {
		t.Fatal(err)
	}
	write(t, "lib/package.json", `{"scripts": {"test": "true"}}`)
	if code, out, errs := project(t, "init"); code != 0 || !strings.Contains(out, "go.mod") || strings.Contains(out, "lib/") || errs != "" {
		t.Fatalf("init: exit %d, %s%s", code, out, errs)
	}
	if code, out, errs := project(t, "validate"); code != 0 || !strings.HasPrefix(out, ".sandbox-agent.yaml: ok\n") {
		t.Errorf("validate: exit %d, %s%s", code, out, errs)
	}
	write(t, ".sandbox-agent.yaml", "mine")
	if code, _, errs := project(t, "init"); code != workorder.ExitGeneral || !strings.Contains(errs, "--force") {
		t.Errorf("init over a file: exit %d, %s", code, errs)
	}
	if b, _ := os.ReadFile(".sandbox-agent.yaml"); string(b) != "mine" {
		t.Error("init replaced a file without --force")
	}
	if code, _, _ := project(t, "init", "--force"); code != 0 {
		t.Errorf("init --force: exit %d", code)
	}
	write(t, "other", "mine")
	if err := errors.Join(os.Remove(".sandbox-agent.yaml"), os.Symlink("other", ".sandbox-agent.yaml")); err != nil {
		t.Fatal(err)
	}
	if code, _, _ := project(t, "init", "--force"); code != 0 {
		t.Errorf("init --force over a link: exit %d", code)
	}
	if b, _ := os.ReadFile("other"); string(b) != "mine" {
		t.Error("init --force wrote through a symbolic link")
	}
}

func TestProjectValidate(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("HOME", t.TempDir())
	write(t, "projects/bad.yaml", "nmae: x\nsecrets: {A: hunter2}\n")
	write(t, "good.yaml", "name: good\n")
	code, out, errs := project(t, "validate", "good.yaml", "bad")
	if code != workorder.ExitInvalid || errs != "" {
		t.Errorf("exit %d, %s", code, errs)
	}
	for _, want := range []string{
		"good.yaml: ok\n", "projects/bad.yaml:1:1: error[unknown-key]: ", "\"nmae\"\n  | nmae: x\n  | ^\n  hint: ", "\"name\"",
		"projects/bad.yaml:2:14: error[secret-value]:",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("output lacks %q:\n%s", want, out)
		}
	}
	code, out, _ = project(t, "validate", "--json", "bad")
	var list diag.List
	if err := json.Unmarshal([]byte(out), &list); err != nil || len(list) != 2 || code != workorder.ExitInvalid {
		t.Errorf("exit %d, %v in %s", code, err, out)
	}
	if strings.Contains(out, "hunter2") {
		t.Error("a secret is printed")
	}
	if code, out, _ = project(t, "validate", "--json", "good.yaml"); code != 0 || out != "[]\n" {
		t.Errorf("exit %d, %q", code, out)
	}
	code, _, errs = project(t, "validate", "godo", "bad")
	if code != workorder.ExitNoProject || !strings.Contains(errs, `"godo"`) {
		t.Errorf("exit %d, %s", code, errs)
	}
}

func TestProjectShow(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("HOME", t.TempDir())
	write(t, ".sandbox-agent.yaml", "name: x\nsecrets: {A: env://B}\n")
	if _, out, _ := project(t, "show"); out != "name: x\nsecrets:\n  A: env://B\n" {
		t.Errorf("show:\n%s", out)
	}
	_, out, _ := project(t, "show", "--effective")
	for _, want := range []string{"name: x", "# .sandbox-agent.yaml:1", "isolation: confined", "# default"} {
		if !strings.Contains(out, want) {
			t.Errorf("show --effective lacks %q:\n%s", want, out)
		}
	}
	if code, _, _ := project(t, "show", "my-saas-app"); code != 0 {
		t.Error("the shipped project is not found by its name")
	}
	if code, out, _ := project(t, "schema"); code != 0 || !json.Valid([]byte(out)) {
		t.Error("the schema is no JSON")
	}
	if code, out, _ := project(t, "--help"); code != 0 || !strings.Contains(out, "validate") {
		t.Error("no help")
	}
}

// Everything that can be refused before an agent costs money is refused: the environment of these tests has no engine.
func TestProjectInitAgentRefuses(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("HOME", t.TempDir())
	for _, flag := range []string{"--rounds=2", "--pr", "--harness=codex", "--command=x", "--max-budget-usd=1", "--timeout-minutes=1"} {
		if code, _, _ := project(t, "init", flag); code != workorder.ExitUsage {
			t.Errorf("%s without --agent: exit %d", flag, code)
		}
	}
	if code, _, _ := project(t, "init", "--agent"); code != workorder.ExitNoProject {
		t.Errorf("outside of a repository: exit %d", code)
	}
	gittest.Git(t, ".", "init", "--quiet")
	if code, _, _ := project(t, "init", "--agent"); code != workorder.ExitGit {
		t.Errorf("without a commit: exit %d", code)
	}
	gittest.Git(t, ".", "commit", "--quiet", "--allow-empty", "--message", "x")
	for args, want := range map[string]int{"--rounds=0": workorder.ExitUsage, "--pr": workorder.ExitUsage} { // there is no origin
		if code, _, _ := project(t, "init", "--agent", args); code != want {
			t.Errorf("%s: exit %d, want %d", args, code, want)
		}
	}
	write(t, ".sandbox-agent.yaml", "mine")
	if code, _, errs := project(t, "init", "--agent"); code != workorder.ExitGeneral || !strings.Contains(errs, "--force") {
		t.Errorf("over a file: exit %d, %s", code, errs)
	}
}
