package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// A task that is given in a way that is not understood is answered with the one that is.
func TestHowATaskIsGiven(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"refactor"}, {"create", "mend it"}, {"--dry-run", "mend it"}, {"--harness", "codex", "mend it"}} {
		var errs bytes.Buffer
		a := &App{Stdin: strings.NewReader(""), Stdout: &errs, Stderr: &errs, Getenv: func(string) string { return "" }}
		if code := Main(t.Context(), a, args); code != workorder.ExitUsage || !strings.Contains(errs.String(), "--task") {
			t.Errorf("%q: exit %d, %s", args, code, errs.String())
		}
	}
}

// Outside of any repository there is nothing that a project file would help.
func TestOutsideOfARepository(t *testing.T) {
	t.Parallel()
	state, plain := t.TempDir(), t.TempDir()
	var errs bytes.Buffer
	a := &App{Stdin: strings.NewReader(""), Stdout: &errs, Stderr: &errs, Getenv: func(name string) string {
		return map[string]string{"SANDBOX_AGENT_STATE_DIR": state}[name]
	}}
	if code := Main(t.Context(), a, []string{"create", "--task", "x", "--repo", plain}); code != workorder.ExitNoProject || !strings.Contains(errs.String(), "git init") {
		t.Errorf("exit %d, %s", code, errs.String())
	}
}
