// Package cli is the command line: it reads flags and environment, calls the packages
// that do the work and reports the outcome. A command is a struct of options, a
// constructor and a run function; nothing is contacted before its run function.
package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/diag"
	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/internal/host/resolve"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/host/signals"
	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
	"github.com/sandbox-agent/sandbox-agent/internal/host/tasks"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/projects"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// App is the environment of commands: streams, variables and connections, so that tests
// run the same commands with others.
type App struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Getenv         func(string) string
	// Hard is closed when the user insists on stopping (Ctrl-C again, at a terminal).
	Hard <-chan struct{}
	// Executable is this program, to start the companion with.
	Executable func() (string, error)
	// Open connects to the engine that the environment names. It contacts nothing yet.
	Open func() (*Backend, error)
	// Sandboxes opens the manager of sandboxes without a task, likewise; nil if there are none.
	Sandboxes func(sandbox.Options) (*sandbox.Manager, error)

	debug, verbose bool
	// dir overrides the current folder.
	dir string
	// patience overrides how long to wait for another command; if 0, each wait has its own bound.
	patience time.Duration
	// Reloads lets a server read its configuration anew when it is asked to; nil: it never is.
	Reloads func() (asked <-chan struct{}, stop func())
}

// Backend is an engine with its images.
type Backend = app.Backend

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
func Main(ctx context.Context, a *App, args []string) int {
	root := newRootCmd(a)
	root.SetArgs(taskFirst(root, args))
	root.SetIn(a.Stdin)
	root.SetOut(a.Stdout)
	root.SetErr(a.Stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if errors.Is(err, tasks.ErrLeft) {
		err = left(ctx)
	}
	if end, ok := errors.AsType[*ending](err); ok {
		return end.code
	}
	if err == nil {
		return workorder.ExitOK
	}
	code := exitCode(err)
	if code == workorder.ExitGeneral {
		if by := signalCode(err); by != 0 {
			code = by
		}
	}
	a.printError(err, code, wantsJSON(cmd))
	return code
}

// exitSignal and its number is what a shell says of whom a signal ended.
const exitSignal = 128

// signalCode is the exit code of whom a signal ended, by its error; 0 of others.
func signalCode(err error) int {
	if s, ok := errors.AsType[*signals.Stopped](err); ok {
		return exitSignal + int(s.Signal)
	}
	return 0
}

// left is the end of a command that a signal ended, which its user knows.
func left(ctx context.Context) error {
	return &ending{cmp.Or(signalCode(context.Cause(ctx)), exitLeft)}
}

// ending is the error of a command that has printed everything: only an exit code.
type ending struct{ code int }

func (e *ending) Error() string { return fmt.Sprintf("exit %d", e.code) }

func exitCode(err error) int {
	var coded interface{ ExitCode() int }
	var ambiguous *store.AmbiguousError
	switch {
	case errors.As(err, &coded):
		return coded.ExitCode()
	case errors.Is(err, store.ErrNotFound):
		return workorder.ExitNotFound
	case errors.As(err, &ambiguous), errors.Is(err, store.ErrExists):
		return workorder.ExitUsage
	}
	if c := fault.Code(err); c != workorder.ExitGeneral {
		return c
	}
	if errors.Is(err, runtime.ErrUnavailable) || errors.Is(err, runtime.ErrIsolation) {
		return workorder.ExitBox
	}
	return workorder.ExitGeneral
}

// kinds are names of our own exit codes, for programs that cannot see them: behind a command that was passed one through.
var kinds = map[int]string{
	workorder.ExitNotFound: "not_found", workorder.ExitNoProject: "no_project", workorder.ExitPort: "port", workorder.ExitBox: "unavailable",
	workorder.ExitInvalid: "invalid", workorder.ExitGit: "git", workorder.ExitUsage: "usage", exitOurs: "lost",
}

func kindOf(code int) string { return cmp.Or(kinds[code], "failed") }

// hint is the advice for an error; empty if there is none.
func hint(err error) string {
	// These are at the bottom of errors whose own hint is about something else.
	if denied, ok := errors.AsType[*runtime.DeniedError](err); ok {
		return denied.Hint()
	}
	if proc.Missing(err) == "git" {
		return "install git (`sudo apt install git`, `brew install git`), or put it on PATH: repositories and credentials need it"
	}
	if h := fault.Hint(err); h != "" {
		return h
	}
	if e, ok := errors.AsType[*store.DamagedError](err); ok {
		return "`sandbox-agent rm --force " + e.TaskID + "` forgets the task here, with its sandboxes; `sandbox-agent continue " + e.TaskID + " --project P` goes on from the remote then"
	}
	var option *projects.OptionError
	var missing *projects.NotFoundError
	switch {
	case errors.As(err, &option):
		return option.Hint
	case errors.As(err, &missing):
		return projects.NotFoundHint
	case errors.Is(err, runtime.ErrUnavailable):
		return "start the Docker engine, or point DOCKER_HOST at one that runs"
	case errors.Is(err, store.ErrExists):
		return "choose another --task-id, or forget that task with `sandbox-agent rm`"
	}
	return ""
}

func (a *App) printError(err error, code int, asJSON bool) {
	list, positioned := projects.Problems(err)
	hint := hint(err)
	untrusted, _ := errors.AsType[*resolve.UntrustedError](err)
	if asJSON {
		b, _ := json.Marshal(struct { // strings and numbers always encode
			Error    string    `json:"error"`
			Hint     string    `json:"hint,omitempty"`
			Kind     string    `json:"kind"`
			ExitCode int       `json:"exit_code"`
			Problems diag.List `json:"problems,omitempty"`
			// Untrusted lists the requests of a project file that came with a repository.
			Untrusted *resolve.UntrustedError `json:"untrusted,omitempty"`
		}{err.Error(), hint, kindOf(code), code, list, untrusted})
		fmt.Fprintln(a.Stderr, string(text.EscapeControls(b)))
		return
	}
	if positioned {
		if perr := list.Print(a.Stderr, diag.Style{Color: a.color(a.Stderr)}); perr == nil {
			return
		}
	}
	// The text may quote a git server, a registry or a build.
	fmt.Fprintln(a.Stderr, "error: "+text.Clean(strings.TrimRight(err.Error(), "\n")))
	if hint != "" {
		fmt.Fprintln(a.Stderr, "hint: "+text.Clean(hint))
	}
}

func wantsJSON(cmd *cobra.Command) bool {
	if cmd == nil {
		return false
	}
	f := cmd.Flags().Lookup("json")
	return f != nil && f.Value.String() == "true"
}

// usage makes an error of the command line.
func usage(format string, v ...any) error {
	return fault.New(workorder.ExitUsage, fmt.Errorf(format, v...), "")
}

func (a *App) log() *slog.Logger {
	level := slog.LevelWarn
	if a.debug {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(a.Stderr, &slog.HandlerOptions{Level: level}))
}

// env is the surroundings of use cases.
func (a *App) env() *app.Env {
	return &app.Env{
		Getenv: a.Getenv, Executable: a.Executable, OpenEngine: a.Open, Logger: a.log, Hard: a.Hard, Patience: a.patience,
		Note: func(remark string) { fmt.Fprintln(a.Stderr, remark) },
	}
}

func (a *App) store() (*store.Store, error) { return a.env().Store() }

// open connects to the engine.
func (a *App) open() (*Backend, error) { return a.env().Engine() }

// json prints a document. It escapes characters that JSON allows and a terminal interprets.
func (a *App) json(v any) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}
	_, err := a.Stdout.Write(text.EscapeControls(b.Bytes()))
	return err
}
