package cli

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
)

// eachCommand visits the commands of the command line, without the library's own and the help topics.
func eachCommand(visit func(cmd *cobra.Command, path string)) {
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			if sub.Name() != "completion" && sub.Name() != "help" && !sub.IsAdditionalHelpTopicCommand() {
				visit(sub, strings.TrimPrefix(sub.CommandPath(), "sandbox-agent "))
				walk(sub)
			}
		}
	}
	walk(emptyRoot())
}

func emptyRoot() *cobra.Command {
	return newRootCmd(cmdutil.New(cmdutil.IO{Stdin: strings.NewReader("")}, app.Env{Getenv: func(string) string { return "" }}))
}

// TestJSONEverywhere: a command that shows or changes something has --json. The others are here, with the reason.
func TestJSONEverywhere(t *testing.T) {
	t.Parallel()
	without := map[string]string{}
	for reason, commands := range map[string]string{
		"it shows a terminal, a browser or another program's output": "attach shell ssh watch open",
		"its output is a document of its own format":                 "diff man ssh-config ssh-cmd project.schema",
		"a server until it ends":                                     "mcp gateway pool.serve",
		"it is JSON already":                                         "inspect",
	} {
		for c := range strings.FieldsSeq(commands) {
			without[strings.ReplaceAll(c, ".", " ")] = reason
		}
	}
	eachCommand(func(cmd *cobra.Command, path string) {
		if cmd.Hidden || cmd.HasSubCommands() {
			return
		}
		_, listed := without[path]
		has := cmd.Flags().Lookup("json") != nil
		if has == listed {
			t.Errorf("%s: --json: %t; listed as a command without: %t", path, has, listed)
		}
		delete(without, path)
	})
	if len(without) > 0 {
		t.Errorf("no such commands: %v", without)
	}
}

// TestExamples: the command line accepts the arguments and flags of every example in a help text.
func TestExamples(t *testing.T) {
	t.Parallel()
	eachCommand(func(cmd *cobra.Command, path string) {
		for line := range strings.Lines(cmd.Example) {
			words := exampleWords(t, line)
			for len(words) > 0 && words[0] != "sandbox-agent" {
				words = words[1:]
			}
			if len(words) == 0 {
				continue // another program's
			}
			root := emptyRoot()
			words = taskFirst(root, words[1:])
			if err := parse(root, words); err != nil {
				t.Errorf("help %s: %s: %v", path, strings.TrimSpace(line), err)
			}
		}
	})
}

// parse finds the command of words and parses its arguments and flags, as cobra does before it runs a command.
func parse(root *cobra.Command, words []string) error {
	cmd, rest, err := root.Find(words)
	if err != nil {
		return err
	}
	if err := cmd.ParseFlags(rest); err != nil {
		return cmd.FlagErrorFunc()(cmd, err)
	}
	if err := cmdutil.NoEmptyFlag(cmd.Flags()); err != nil {
		return err
	}
	if err := cmd.ValidateArgs(cmd.Flags().Args()); err != nil {
		return err
	}
	return cmd.ValidateFlagGroups()
}

// exampleWords splits the last command of an example as a shell does, as far as examples need it.
func exampleWords(t *testing.T, line string) (words []string) {
	t.Helper()
	var word strings.Builder
	begun, quote := false, rune(0)
	end := func() {
		if begun {
			words = append(words, word.String())
		}
		word.Reset()
		begun = false
	}
	for _, r := range strings.TrimSpace(line) {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '\'' || r == '"':
			quote, begun = r, true
		case r == ' ':
			end()
		case r == '#' && !begun:
			return words
		case r == '|':
			words = nil
		case (r == '>' || r == '<') && !begun:
			return words
		default:
			begun = true
			word.WriteRune(r)
		}
	}
	if quote != 0 {
		t.Errorf("an open quote: %s", line)
	}
	end()
	return words
}

// TestSeedVerbs: the verbs that users have known from the beginning are visible.
func TestSeedVerbs(t *testing.T) {
	t.Parallel()
	root := emptyRoot()
	for verb := range strings.FieldsSeq("create continue revise rebase up ps ssh ssh-cmd start shell exec reset down logs " +
		"templates list log diff checkout merge apply delete prune watch inspect gateway mcp pool") {
		if cmd, _, err := root.Find([]string{verb}); err != nil || cmd.Name() != verb || cmd.Hidden {
			t.Errorf("%s: %v", verb, err)
		}
	}
	aliases := map[string][]string{}
	for _, cmd := range root.Commands() {
		for _, alias := range cmd.Aliases {
			aliases[alias] = append(aliases[alias], cmd.Name())
		}
	}
	if !slices.Equal(aliases["ls"], []string{"ps"}) {
		t.Errorf("ls is %v", aliases["ls"])
	}
}

// TestDurationFlags: every flag for a time takes a number as seconds.
func TestDurationFlags(t *testing.T) {
	t.Parallel()
	eachCommand(func(cmd *cobra.Command, path string) {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Value.Type() != "duration" {
				return
			}
			if err := f.Value.Set("5"); err != nil || f.Value.String() != "5s" {
				t.Errorf("%s --%s 5: %s, %v", path, f.Name, f.Value, err)
			}
		})
	})
}
