package cli

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// A word that names no command is an error behind every command that has others below it, and prints nothing for a script to read.
func TestUnknownCommands(t *testing.T) {
	t.Parallel()
	groups := 0
	var walk func(cmd *cobra.Command, path []string)
	walk = func(cmd *cobra.Command, path []string) {
		if !cmd.HasSubCommands() {
			return
		}
		groups++
		for _, args := range [][]string{{"bogus-word"}, {"bogus-word", "x"}, {"bogus-word", "--json"}} {
			args = append(append([]string{}, path...), args...)
			for _, args := range [][]string{args, append([]string{"help"}, args...)} {
				if args[0] == "help" && strings.HasPrefix(args[len(args)-1], "--") || args[0] == "network" { // which a sandbox follows
					continue
				}
				var out, errs bytes.Buffer
				a := cmdutil.New(cmdutil.IO{Stdout: &out, Stderr: &errs, Stdin: strings.NewReader("")}, app.Env{Getenv: func(string) string { return "" }})
				if code := Main(t.Context(), a, args); code != workorder.ExitUsage || out.Len() > 0 || errs.Len() == 0 {
					t.Errorf("%q: exit code %d, prints %q", args, code, out.String())
				}
			}
		}
		for _, sub := range cmd.Commands() {
			walk(sub, append(append([]string{}, path...), sub.Name()))
		}
	}
	walk(newRootCmd(cmdutil.New(cmdutil.IO{}, app.Env{Getenv: func(string) string { return "" }})), nil)
	var errs bytes.Buffer
	a := cmdutil.New(cmdutil.IO{Stdout: &errs, Stderr: &errs}, app.Env{Getenv: func(string) string { return "" }})
	if code := Main(t.Context(), a, []string{"help", "nme"}); code != workorder.ExitUsage || !strings.Contains(errs.String(), " names?") {
		t.Errorf("exit code %d, %s", code, errs.String())
	}
	if groups < 12 {
		t.Errorf("%d groups", groups)
	}
}

// A sandbox can have the name of a command below network.
func TestNetworkOfSandboxNamedCheck(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	for _, name := range []string{"check", "suggest"} {
		a := cmdutil.New(cmdutil.IO{Stdout: io.Discard, Stderr: io.Discard}, app.Env{
			Getenv: func(name string) string { return map[string]string{"SANDBOX_AGENT_STATE_DIR": state}[name] },
		})
		if code := Main(t.Context(), a, []string{"network", "--", name}); code == workorder.ExitUsage {
			t.Errorf("%s: exit code %d", name, code)
		}
	}
}
