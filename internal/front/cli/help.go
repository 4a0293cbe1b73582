package cli

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
)

// helpGroup is a group of commands in the top-level help.
type helpGroup struct {
	title string
	rows  []helpRow
}

// helpRow describes some commands of a group in one line.
type helpRow struct{ verbs, about string }

// helpGroups has every visible command once.
func helpGroups() []helpGroup {
	return []helpGroup{
		{"Tasks", []helpRow{
			{"create continue", "run a task; resume one that stopped"},
			{"revise rebase", "address a review; rebase a branch"},
			{"ps logs result stop", "list, follow and stop tasks; outcomes"},
		}},
		{"Take the work", []helpRow{
			{"diff log list watch", "show changes, commits and branches"},
			{"checkout apply merge", "get the changes into your repository"},
			{"open pr", "open the pull request or the report"},
			{"delete prune", "delete sandboxes with their branches"},
		}},
		{"Sandboxes", []helpRow{
			{"up down rm reset update", "create, remove, recreate sandboxes"},
			{"exec shell ssh cp", "run commands, open shells, copy files"},
			{"start attach resume", "run an agent at a terminal; go back"},
			{"status inspect monitor", "show state, usage, history; watch all"},
			{"ports network", "publish ports; network and its rules"},
			{"snapshot fork", "keep the files; copy a sandbox"},
			{"gateway ssh-cmd ssh-config", "reach sandboxes by SSH"},
		}},
		{"Run code", []helpRow{
			{"run session notebook", "run code in fresh sandboxes; notebooks"},
			{"preset artifact", "list presets; build custom ones"},
			{"mcp pool standby", "serve sandboxes; keep some booted"},
		}},
		{"Set up", []helpRow{
			{"doctor demo runtime", "check this machine; try a whole task"},
			{"project templates", "create and check project files"},
			{"image cache gc", "build images, show caches, clean up"},
		}},
		{"More", []helpRow{
			{"completion man version", "shell completion, man pages, version"},
			{"help", "help COMMAND, or help TOPIC"},
		}},
	}
}

const (
	// helpWidth is the width of help texts without a terminal.
	helpWidth = 80
	// minHelpWidth is the least width at which help texts are wrapped.
	minHelpWidth = 40
)

// setHelp makes the library print help texts wrapped at the width of the terminal.
func setHelp(root *cobra.Command) {
	for _, g := range helpGroups() {
		root.AddGroup(&cobra.Group{ID: g.title, Title: g.title})
		for _, row := range g.rows {
			for _, cmd := range root.Commands() {
				if slices.Contains(strings.Fields(row.verbs), cmd.Name()) {
					cmd.GroupID = g.title
				}
			}
		}
	}
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		w := cmd.OutOrStdout()
		width, _ := cmdutil.TerminalSize(w)
		width = cmp.Or(width, helpWidth)
		writeHelp(w, cmd, max(width, minHelpWidth))
	})
}

// writeHelp prints the help text of a command.
func writeHelp(w io.Writer, cmd *cobra.Command, width int) {
	if !cmd.HasParent() {
		writeRootHelp(w, cmd, width)
		return
	}
	long := cmp.Or(cmd.Long, cmd.Short)
	fmt.Fprintln(w, wrapText(long, width))
	if cmd.IsAdditionalHelpTopicCommand() {
		return
	}
	fmt.Fprintf(w, "\nUsage:\n  %s\n", cmd.UseLine())
	if len(cmd.Aliases) > 0 {
		fmt.Fprintf(w, "\nAliases:\n  %s\n", cmd.NameAndAliases())
	}
	if cmd.HasExample() {
		fmt.Fprintf(w, "\nExamples:\n%s\n", cmd.Example)
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintln(w, "\nCommands:")
		writeCommands(w, cmd.Commands(), width)
	}
	if cmd.HasAvailableLocalFlags() {
		fmt.Fprintf(w, "\nFlags:\n%s", cmd.LocalFlags().FlagUsagesWrapped(width))
	}
	if cmd.HasAvailableInheritedFlags() {
		fmt.Fprintf(w, "\nGlobal flags:\n%s", cmd.InheritedFlags().FlagUsagesWrapped(width))
	}
}

func writeRootHelp(w io.Writer, root *cobra.Command, width int) {
	fmt.Fprintln(w, wrapText(root.Long, width))
	fmt.Fprint(w, "\nUsage: sandbox-agent \"TASK\" [FLAGS OF create]\n       sandbox-agent COMMAND [ARGUMENTS]\n\n")
	for _, g := range helpGroups() {
		title := g.title
		for _, row := range g.rows {
			fmt.Fprintf(w, "%-14s %-27s%s\n", title, row.verbs, row.about)
			title = ""
		}
	}
	_ = root.Flags().MarkHidden("help") // known to everyone; it fails only for a missing flag
	fmt.Fprintf(w, "\nTopics: %s\n\nFlags:\n%s", strings.Join(topicNames(), ", "), root.LocalFlags().FlagUsagesWrapped(width))
}

// writeCommands lists commands with what they do.
func writeCommands(w io.Writer, all []*cobra.Command, width int) {
	const indent = 14
	for _, cmd := range all {
		if !cmd.IsAvailableCommand() {
			continue
		}
		lines := strings.Split(wrapText(cmd.Short, max(width-indent, minHelpWidth)), "\n")
		fmt.Fprintf(w, "  %-*s%s\n", indent-2, cmd.Name(), lines[0])
		for _, line := range lines[1:] {
			fmt.Fprintf(w, "%*s%s\n", indent, "", line)
		}
	}
}

// wrapText fills the paragraphs of a text to a width. Lines that begin with a space stay as they are.
func wrapText(s string, width int) string {
	var out []string
	var words []string
	flush := func() {
		line := ""
		for _, word := range words {
			switch {
			case line == "":
				line = word
			case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width:
				out = append(out, line)
				line = word
			default:
				line += " " + word
			}
		}
		if line != "" {
			out = append(out, line)
		}
		words = nil
	}
	for line := range strings.SplitSeq(strings.Trim(s, "\n"), "\n") {
		switch {
		case strings.TrimSpace(line) == "", strings.HasPrefix(line, " "):
			flush()
			out = append(out, strings.TrimRight(line, " "))
		default:
			words = append(words, strings.Fields(line)...)
		}
	}
	flush()
	return strings.Join(out, "\n")
}
