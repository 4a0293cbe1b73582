package app

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/sandbox"
)

// VisitorTerminal returns the command for a person who opens a sandbox: it shows the agent that runs in it, or else its
// own terminal.
func VisitorTerminal(ctx context.Context, sb *sandbox.Sandbox) ([]string, error) {
	if argv, err := AgentTerminal(ctx, sb); err != nil || argv != nil {
		return argv, err
	}
	return OwnTerminal(ctx, sb)
}

// AgentTerminal returns the command that shows the running agent; nil if none runs.
func AgentTerminal(ctx context.Context, sb *sandbox.Sandbox) ([]string, error) {
	r, err := sb.Run(ctx, sandbox.Command{
		Argv: []string{"sh", "-c", anyAgentScript, "sh", AgentSession}, Dir: "/", Timeout: beginTime, Unrecorded: true,
	})
	if err != nil {
		return nil, SandboxError(err)
	}
	window := strings.TrimSpace(string(r.Stdout))
	if window == "" {
		return nil, nil
	}
	return SessionTerminal("=" + AgentSession + ":" + window), nil
}

// SessionTerminal returns the command that shows a session of tmux, or a window of one.
func SessionTerminal(target string) []string { return []string{"sh", "-c", showTerminal, "sh", target} }

// OwnTerminal returns the command that shows a sandbox's own terminal: a session of tmux, which goes on without a
// client. A separate command starts it, since all that a command started ends when its caller is killed. Without tmux
// it is a shell that ends with its caller.
func OwnTerminal(ctx context.Context, sb *sandbox.Sandbox) ([]string, error) {
	r, err := sb.Run(ctx, sandbox.Command{Argv: []string{"sh", "-c", beginTerminal}, Timeout: beginTime, Unrecorded: true})
	if err != nil {
		return nil, SandboxError(err)
	}
	if r.ExitCode != 0 {
		return BestShell(ctx, sb)
	}
	return SessionTerminal("=" + shellSession), nil
}

const (
	// shellSession is the session of tmux with a sandbox's own terminal. That of agents is AgentSession.
	shellSession  = "main"
	beginTerminal = `command -v tmux >/dev/null || exit 1
tmux has-session -t =` + shellSession + ` && exit
set -- new-session -d -s ` + shellSession + `
` + runTmux + ` || tmux has-session -t =` + shellSession
	// runTmux executes the tmux commands in the script's arguments, with one server for all sessions. The user's
	// ~/.tmux.conf replaces these options.
	runTmux = `test -e ~/.tmux.conf || set -- set-option -g history-limit 50000 ';' set-option -g mouse on ';' \
	set-option -g focus-events on ';' set-option -g default-terminal tmux-256color ';' "$@"
tmux start-server ';' "$@"`
	// anyAgentScript prints the window of an agent whose program runs: the current one, if it is among them.
	anyAgentScript = `tmux list-windows -t "=$1" -F '#{pane_dead} #{window_active} #{window_index}' 2>/dev/null |
sed -n 's/^0 //p' | sort -r | sed -n '1s/.* //p'`
	// An unknown terminal is treated as xterm; a dumb one cannot show another.
	showTerminal = `test "$TERM" != dumb || exec sh
infocmp >/dev/null 2>&1 || TERM=xterm-256color
export TERM
exec tmux -u attach-session -t "$1"`
	// beginTime bounds a start of tmux on a busy machine.
	beginTime = 20 * time.Second
)

// bestShells are tried in this order.
var bestShells = []string{"bash", "ash", "sh"}

// BestShell returns the first available shell of a sandbox.
func BestShell(ctx context.Context, sb *sandbox.Sandbox) ([]string, error) {
	for _, name := range bestShells {
		r, err := sb.Run(ctx, sandbox.Command{Argv: []string{name, "-c", ":"}, Unrecorded: true})
		if err != nil {
			return nil, SandboxError(err)
		}
		if r.ExitCode == 0 {
			return []string{name}, nil
		}
	}
	return nil, NotFound(fmt.Errorf("sandbox %s has none of %s", sb.Name(), strings.Join(bestShells, ", ")),
		"`sandbox-agent shell "+sb.Name()+" -- PROGRAM` runs a program that it has")
}
