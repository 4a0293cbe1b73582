package cli

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// helpOf is what a command line prints on standard output, without a terminal.
func helpOf(t *testing.T, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	a := cmdutil.New(cmdutil.IO{Stdout: &out, Stderr: &errs, Stdin: strings.NewReader("")}, app.Env{Getenv: func(string) string { return "" }})
	if code := Main(t.Context(), a, args); code != workorder.ExitOK || errs.Len() > 0 {
		t.Errorf("%q: exit code %d, %s", args, code, errs.String())
	}
	return out.String()
}

// Every help text fits a terminal of 80 columns, and the first one a screen.
func TestHelpFits(t *testing.T) {
	t.Parallel()
	const screen = 35
	if n := strings.Count(helpOf(t, "--help"), "\n"); n > screen {
		t.Errorf("the top-level help has %d lines, more than %d", n, screen)
	}
	var walk func(cmd *cobra.Command, path []string)
	walk = func(cmd *cobra.Command, path []string) {
		for line := range strings.Lines(helpOf(t, append([]string{"help"}, path...)...)) {
			if line = strings.TrimSuffix(line, "\n"); utf8.RuneCountInString(line) > helpWidth {
				t.Errorf("help %s: %d columns: %s", strings.Join(path, " "), utf8.RuneCountInString(line), line)
			}
		}
		for _, sub := range cmd.Commands() {
			if cmd.Name() != "completion" { // the library's texts
				walk(sub, append(slices.Clone(path), sub.Name()))
			}
		}
	}
	walk(newRootCmd(cmdutil.New(cmdutil.IO{}, app.Env{Getenv: func(string) string { return "" }})), nil)
}

// Every visible command is in one group of the top-level help.
func TestHelpGroups(t *testing.T) {
	t.Parallel()
	listed := map[string]int{}
	for _, g := range helpGroups() {
		for _, row := range g.rows {
			for verb := range strings.FieldsSeq(row.verbs) {
				listed[verb]++
			}
		}
	}
	for _, cmd := range newRootCmd(cmdutil.New(cmdutil.IO{}, app.Env{})).Commands() {
		want := 1
		if cmd.Hidden || cmd.IsAdditionalHelpTopicCommand() {
			want = 0
		}
		if listed[cmd.Name()] != want {
			t.Errorf("%s is in the top-level help %d times", cmd.Name(), listed[cmd.Name()])
		}
		delete(listed, cmd.Name())
	}
	if len(listed) > 0 {
		t.Errorf("the top-level help has unknown commands: %v", listed)
	}
}

// A narrow terminal gets narrow text; what is indented is not filled.
func TestWrapText(t *testing.T) {
	t.Parallel()
	const in = "\none two three\nfour\n\n  kept   as it is, however long\nfive"
	if got, want := wrapText(in, 10), "one two\nthree four\n\n  kept   as it is, however long\nfive"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// The help topic has every exit code.
func TestHelpOfExitCodes(t *testing.T) {
	t.Parallel()
	topic := helpOf(t, "help", "exit-codes")
	for _, code := range []int{
		workorder.ExitOK, workorder.ExitGeneral, workorder.ExitNotFound, workorder.ExitNoProject, workorder.ExitPort, workorder.ExitBox, workorder.ExitInvalid,
		workorder.ExitGit, workorder.ExitTaskFailed, workorder.ExitInterrupted, workorder.ExitTimeout, workorder.ExitBudget, workorder.ExitParked,
		workorder.ExitUnproven, workorder.ExitUsage,
	} {
		if !strings.Contains(topic, "\n  "+strconv.Itoa(code)+" ") {
			t.Errorf("the topic lacks exit code %d", code)
		}
	}
}
