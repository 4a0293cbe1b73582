package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// A task that is given in a way that is not understood is answered with the one that is.
func TestHowATaskIsGiven(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"refactor"}, {"create", "mend it", "--task", "and that"}, {"create", "mend", "it"}, {"--harness", "codex", "mend"}} {
		var errs bytes.Buffer
		a := cmdutil.New(cmdutil.IO{Stdin: strings.NewReader(""), Stdout: &errs, Stderr: &errs}, app.Env{Getenv: func(string) string { return "" }})
		if code := Main(t.Context(), a, args); code != workorder.ExitUsage {
			t.Errorf("%q: exit %d, %s", args, code, errs.String())
		}
	}
	root := newRootCmd(cmdutil.New(cmdutil.IO{}, app.Env{}))
	for _, args := range [][]string{{"mend it"}, {"mend it", "--dry-run"}, {"--dry-run", "mend it"}, {"--harness", "codex", "mend it"}} {
		if got := taskFirst(root, args); len(got) != len(args)+1 || got[0] != "create" {
			t.Errorf("%q: %q", args, got)
		}
	}
	for _, args := range [][]string{{"--debug", "run", "python", "print(1, 2)"}, {"exec", "dev", "ls -la"}, {"--help"}} {
		if got := taskFirst(root, args); got[0] != args[0] {
			t.Errorf("%q: %q", args, got)
		}
	}
}

// A command line with a name or a value that cannot be is refused before anything is changed, and whatever else it names.
func TestNamesAndValuesAreCheckedFirst(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	for _, line := range [][]string{
		{"delete", "--force", "a", "", "b"},
		{"down", "a", ""},
		{"down", "--force", "a", "../x"},
		{"resume", "missing", ""},
		{"snapshot", "rm", "a", "s", ""},
		{"stop", "b", ""},
		{"rm", "--force", "b", ""},
		{"stop", "T-00000000", "é"},
		{"session", "rm", "s", " "},
		{"session", "rm", "../x"},
		{"run", "--env", "python", "--session", " ", "1"},
		{"run", "--env", "python", "--session", "../x", "1"},
		{"run", "--env", "python", "--session", "é", "1"},
		{"run", "--env", "python", "--session", "", "1"},
		{"up", "a", "--repo", ""},
		{"up", "a", "--repo", ".", "--from-ref", ""},
		{"up", "a", "--env", ""},
		{"create", "--task", "x", "--task-id", ""},
		{"network", "suggest", tid, "--status", ""},
		{"result", tid, "--attempt", "1", ""},
		{"log", tid, "-p", "--json"},
	} {
		var errs bytes.Buffer
		a := cmdutil.New(cmdutil.IO{Stdin: strings.NewReader(""), Stdout: &errs, Stderr: &errs}, app.Env{
			Getenv: func(name string) string {
				return map[string]string{"SANDBOX_AGENT_STATE_DIR": state}[name]
			},
		})
		if code := Main(t.Context(), a, line); code != workorder.ExitUsage {
			t.Errorf("%q: exit %d, %s", line, code, errs.String())
		}
	}
	serve, args, err := newRootCmd(cmdutil.New(cmdutil.IO{}, app.Env{})).Find([]string{"mcp", "--listen", ""})
	if err == nil {
		err = serve.ParseFlags(args)
	}
	if err == nil {
		err = cmdutil.NoEmptyFlag(serve.Flags()) // it means the default address
	}
	if err != nil {
		t.Error(err)
	}
}

// All commands that take tasks alone, and all that take sandboxes as well, say in the same words that a name does not exist.
func TestNothingOfThatName(t *testing.T) {
	t.Parallel()
	state, said := t.TempDir(), map[bool]map[string]bool{true: {}, false: {}}
	for _, verb := range []string{"diff", "apply", "checkout", "result", "open", "merge", "log"} {
		var errs bytes.Buffer
		a := cmdutil.New(cmdutil.IO{Stdin: strings.NewReader(""), Stdout: &errs, Stderr: &errs}, app.Env{
			Dir: t.TempDir(),
			Getenv: func(name string) string {
				return map[string]string{"SANDBOX_AGENT_STATE_DIR": state}[name]
			},
		})
		if code := Main(t.Context(), a, []string{verb, "none-a"}); code != workorder.ExitNotFound {
			t.Errorf("%s: exit %d", verb, code)
		}
		said[verb == "result" || verb == "open"][errs.String()] = true
	}
	if len(said[true]) != 1 || len(said[false]) != 1 {
		t.Errorf("more than one sentence: %v", said)
	}
}

// Outside of any repository there is nothing that a project file would help.
func TestOutsideOfARepository(t *testing.T) {
	t.Parallel()
	state, plain := t.TempDir(), t.TempDir()
	var errs bytes.Buffer
	a := cmdutil.New(cmdutil.IO{Stdin: strings.NewReader(""), Stdout: &errs, Stderr: &errs}, app.Env{
		Getenv: func(name string) string {
			return map[string]string{"SANDBOX_AGENT_STATE_DIR": state}[name]
		},
	})
	if code := Main(t.Context(), a, []string{"create", "--task", "x", "--repo", plain}); code != workorder.ExitNoProject || !strings.Contains(errs.String(), "git init") {
		t.Errorf("exit %d, %s", code, errs.String())
	}
}
