package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// The preset comes first and the code second; each is given once.
func TestRunArguments(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]int{
		"run":                        workorder.ExitUsage,
		"run -e A=1":                 workorder.ExitUsage,
		"run python 1 2":             workorder.ExitUsage,
		"run python 1 -f x":          workorder.ExitUsage,
		"run --env python 1 2":       workorder.ExitUsage,
		"run -e MYVAR python 1":      workorder.ExitUsage,
		"run python --session ../ 1": workorder.ExitUsage,
	} {
		var errs bytes.Buffer
		a := cmdutil.New(cmdutil.IO{Stdin: strings.NewReader("1"), Stdout: &errs, Stderr: &errs}, app.Env{Getenv: func(string) string { return "" }})
		if code := Main(t.Context(), a, strings.Fields(line)); code != want {
			t.Errorf("%q: exit %d, %s", line, code, errs.String())
		}
	}
}
