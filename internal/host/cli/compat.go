package cli

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/internal/host/branch"
	"github.com/sandbox-agent/sandbox-agent/internal/host/registry"
	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
)

// The names below stand for app and cmdutil while commands move to packages of their own. New code uses those.

type (
	// Backend is an engine with the parts that commands need.
	Backend = app.Backend
	// Images builds the images of boxes.
	Images   = app.Images
	ruleList = cmdutil.RuleList
)

const (
	exitLeft   = cmdutil.ExitLeft
	exitSignal = cmdutil.ExitSignal
	engineWait = cmdutil.EngineWait
	mayBeEmpty = cmdutil.MayBeEmpty

	exitTimedOut, exitCannotRun, exitOurs = cmdutil.ExitTimedOut, cmdutil.ExitCannotRun, cmdutil.ExitLost
)

var (
	parsePorts, printLog                     = cmdutil.ParsePorts, cmdutil.PrintLog
	usage, notFound, sandboxError            = app.Usagef, app.NotFound, app.SandboxError
	checkSandbox, isTask                     = app.CheckSandbox, app.IsTask
	endpointsOf, local                       = app.Addresses, app.LocalAddress
	left                                     = cmdutil.Interrupted
	noArgs, each, noEmptyFlag                = cmdutil.NoArgs, cmdutil.Each, cmdutil.NoEmptyFlag
	oneTask, someTasks, lastOrOne, oneOrThis = cmdutil.OneTask, cmdutil.SomeTasks, cmdutil.LastOrOne, cmdutil.OneOrThis
	oneSandbox, someSandboxes                = cmdutil.OneSandbox, cmdutil.SomeSandboxes
	errNoCommand, oldName, nameAndCommand    = cmdutil.ErrNoCommand, cmdutil.OldName, cmdutil.NameAndCommand
	durationVar, fromEnvironment             = cmdutil.DurationVar, cmdutil.FromEnvironment
	isTerminal, termSize                     = cmdutil.IsTerminal, cmdutil.TerminalSize
	clip, orDash, age, since, ago            = cmdutil.Clip, cmdutil.OrDash, cmdutil.Age, cmdutil.Since, cmdutil.Ago
	completeList                             = cmdutil.CompleteList
	parseMemory, parseCPUs, parsePIDs        = cmdutil.ParseMemory, cmdutil.ParseCPUs, cmdutil.ParsePIDs
	parseOutput                              = cmdutil.ParseOutput
	unknownEnd, exitOf, exitCode, hint       = cmdutil.UnknownEnd, cmdutil.ExitOf, cmdutil.ExitCode, cmdutil.Hint
)

func unknownName(ctx context.Context, a *App, name string, err error) error {
	return a.UnknownName(ctx, name, err)
}

func (a *App) store() (*store.Store, error)          { return a.Store() }
func (a *App) registry() (*registry.Registry, error) { return a.Registry() }
func (a *App) branches() (*branch.Store, error)      { return a.BranchStore() }
func (a *App) open() (*Backend, error)               { return a.Engine() }
func (a *App) sandboxes() (*sandbox.Manager, error)  { return a.Manager(false) }
func (a *App) here() (string, error)                 { return a.CurrentDir() }
func (a *App) top() (string, error)                  { return a.RepoRoot() }
func (a *App) json(v any) error                      { return a.JSON(v) }
func (a *App) warn(what string)                      { a.Warn(what) }
func (a *App) color(w io.Writer) bool                { return a.Color(w) }

func (a *App) sandbox(ctx context.Context, name string) (sb *sandbox.Sandbox, done func(), err error) {
	return a.Sandboxes().Get(ctx, name)
}

func (a *App) completeSandboxes(several bool) cobra.CompletionFunc {
	return a.CompleteSandboxes(several)
}
