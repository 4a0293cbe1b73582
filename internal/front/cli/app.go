// Package cli is the command line: it reads flags and environment, calls the packages
// that do the work and reports the outcome. A command is a struct of options, a
// constructor and a run function; nothing is contacted before its run function.
package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/diag"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/projects"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// taskFirst inserts `create` where the command line names no command but has a task: `sandbox-agent "fix the flaky test"`,
// `sandbox-agent --plan "split the parser"`. A task has a space, and no command's name does.
func taskFirst(root *cobra.Command, args []string) []string {
	isTask := func(arg string) bool {
		return !strings.HasPrefix(arg, "-") && strings.ContainsAny(strings.TrimSpace(arg), " \n\t")
	}
	if len(args) == 0 || !strings.HasPrefix(args[0], "-") && !isTask(args[0]) {
		return args
	}
	if cmd, _, _ := root.Find(args); cmd != root || !slices.ContainsFunc(args, isTask) { // its error is that of an unknown command
		return args
	}
	return append([]string{"create"}, args...)
}

// Main runs the command line and returns the exit code.
func Main(ctx context.Context, f *cmdutil.Factory, args []string) int {
	start := time.Now()
	code := run(ctx, f, args)
	f.Log().Debug("end", "exit_code", code, "duration_ms", time.Since(start).Milliseconds())
	return code
}

func run(ctx context.Context, f *cmdutil.Factory, args []string) int {
	root := newRootCmd(f)
	root.SetArgs(taskFirst(root, args))
	root.SetIn(f.Stdin)
	root.SetOut(f.Stdout)
	root.SetErr(f.Stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if errors.Is(err, app.ErrInterrupted) {
		err = cmdutil.Interrupted(ctx)
	}
	if end, ok := errors.AsType[*cmdutil.ExitError](err); ok {
		return end.Code
	}
	if err == nil {
		return workorder.ExitOK
	}
	code := app.ExitCode(err)
	if code == workorder.ExitGeneral {
		if by := app.SignalCode(err); by != 0 { // what the signal interrupted is of no interest
			code, err = by, errors.New("interrupted")
		}
	}
	printError(f, err, code, wantsJSON(cmd))
	return code
}

// kinds are names of our own exit codes, for programs that cannot see them: behind a command that was passed one through.
var kinds = map[int]string{
	workorder.ExitNotFound: "not_found", workorder.ExitNoProject: "no_project", workorder.ExitPort: "port", workorder.ExitBox: "unavailable",
	workorder.ExitInvalid: "invalid", workorder.ExitGit: "git", workorder.ExitUsage: "usage", app.ExitLost: "lost",
}

func kindOf(code int) string { return cmp.Or(kinds[code], "failed") }

func printError(f *cmdutil.Factory, err error, code int, asJSON bool) {
	list, positioned := projects.Problems(err)
	hint := app.Hint(err)
	untrusted, _ := errors.AsType[*app.UntrustedError](err)
	if asJSON {
		b, _ := json.Marshal(struct { // strings and numbers always encode
			Error    string    `json:"error"`
			Hint     string    `json:"hint,omitempty"`
			Kind     string    `json:"kind"`
			ExitCode int       `json:"exit_code"`
			Problems diag.List `json:"problems,omitempty"`
			// Untrusted lists the requests of a project file that came with a repository.
			Untrusted *app.UntrustedError `json:"untrusted,omitempty"`
		}{err.Error(), hint, kindOf(code), code, list, untrusted})
		fmt.Fprintln(f.Stderr, string(text.EscapeControls(b)))
		return
	}
	if positioned {
		if perr := list.Print(f.Stderr, diag.Style{Color: f.Color(f.Stderr)}); perr == nil {
			return
		}
	}
	// The text may quote a git server, a registry or a build.
	fmt.Fprintln(f.Stderr, "error: "+text.Clean(strings.TrimRight(err.Error(), "\n")))
	if hint != "" {
		fmt.Fprintln(f.Stderr, "hint: "+text.Clean(hint))
	}
}

func wantsJSON(cmd *cobra.Command) bool {
	if cmd == nil {
		return false
	}
	flag := cmd.Flags().Lookup("json")
	return flag != nil && flag.Value.String() == "true"
}
